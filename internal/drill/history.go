package drill

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// history is the file that keeps every fault and every change, one JSON object a line, the changes run by run.
type history struct {
	path string
	file *os.File
	out  *bufio.Writer
	enc  *json.Encoder
}

func openHistory(opts Options, faults []Fault) (*history, error) {
	var (
		h   = &history{}
		err error
	)
	if opts.HistoryFile != "" {
		h.file, err = os.Create(opts.HistoryFile)
	} else {
		h.file, err = os.CreateTemp("", fmt.Sprintf("weir-drill-%d-*.jsonl", opts.Seed))
	}
	if err != nil {
		return nil, fmt.Errorf("drill: the history's file: %w", err)
	}
	h.path, h.out = h.file.Name(), bufio.NewWriter(h.file)
	h.enc = json.NewEncoder(h.out)
	for _, f := range faults {
		if err := h.enc.Encode(f); err != nil {
			return nil, errors.Join(err, h.close(false))
		}
	}
	return h, nil
}

func (h *history) add(c change) error { return h.enc.Encode(c) }

// close keeps the file, or removes it.
func (h *history) close(keep bool) error {
	err := errors.Join(h.out.Flush(), h.file.Close())
	if !keep {
		err = errors.Join(err, os.Remove(h.path))
	}
	return err
}
