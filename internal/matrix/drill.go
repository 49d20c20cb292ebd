package main

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// drill runs real workers under faults against this version (`worker drill`), and says how it went in a word.
//
// The check goes when the subcommand is there: until then a matrix without it is no failure.
func drill(ctx context.Context, v version) (word, output string, err error) {
	if _, err := os.Stat("cmd/worker/drill.go"); errors.Is(err, os.ErrNotExist) {
		return "not there yet", "", nil
	}
	if output, err = goCommand(ctx, v, "run", "./cmd/worker", "drill", "--duration", "20s", "--json"); err != nil {
		return "FAILED", output, fmt.Errorf("drill: %w", err)
	}
	return "ok", "", nil
}
