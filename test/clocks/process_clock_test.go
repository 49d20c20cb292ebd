//go:build linux

package clocks_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"syscall"
	"time"
)

// Go reads the clock without the C library, so faketime does nothing to a worker. This gives a process another clock by
// replacing the code of time.Now in its memory, once, before anything runs: a real worker whose every look at the time of
// day is off. Timers go by the monotonic clock, which no clock of the day moves, and stay right.

// clockOffset is by how much this process's clock is ahead.
var clockOffset time.Duration

// wrongNow takes the place of time.Now. Without a monotonic reading, what measures with it measures by the wrong clock
// alone, which is off by the same at both ends.
func wrongNow() time.Time {
	return rightNow().Add(clockOffset)
}

func rightNow() time.Time {
	var tv syscall.Timeval
	if err := syscall.Gettimeofday(&tv); err != nil {
		panic(err)
	}
	return time.Unix(tv.Unix())
}

// setClock puts this process's clock ahead by offset.
func setClock(offset time.Duration) error {
	clockOffset = offset
	if offset == 0 {
		return nil
	}
	code, err := jump(uint64(reflect.ValueOf(wrongNow).Pointer()))
	if err != nil {
		return err
	}
	// The kernel writes also to pages that the process may only execute.
	memory, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	if _, err := memory.WriteAt(code, int64(reflect.ValueOf(time.Now).Pointer())); err != nil {
		return err
	}
	if off := time.Since(rightNow()); (off - offset).Abs() > time.Second {
		return fmt.Errorf("the clock is ahead by %s, not by %s", off, offset)
	}
	return nil
}

// jump is the code that goes to an address, by a register that Go's functions do not expect to keep.
func jump(to uint64) ([]byte, error) {
	switch runtime.GOARCH {
	case "amd64": // mov r11, to; jmp r11
		return append(binary.LittleEndian.AppendUint64([]byte{0x49, 0xbb}, to), 0x41, 0xff, 0xe3), nil
	case "arm64": // ldr x16, +8; br x16; to
		return binary.LittleEndian.AppendUint64([]byte{0x50, 0x00, 0x00, 0x58, 0x00, 0x02, 0x1f, 0xd6}, to), nil
	}
	return nil, fmt.Errorf("no way to another clock on %s", runtime.GOARCH)
}
