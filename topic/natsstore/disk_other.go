//go:build !linux && !darwin && !freebsd

package natsstore

import (
	"errors"
	"os"
)

// volume is not supported here: writes to a full disk fail after Options.Timeout.
func volume(string) (total, free uint64, err error) { return 0, 0, errors.ErrUnsupported }

// tryLock is not supported here: nothing keeps two processes apart.
func tryLock(*os.File) error { return nil }
