//go:build !linux && !darwin && !freebsd

package natsstore

import (
	"errors"
	"os"
)

// freeSpace is not supported here: writes to a full disk fail after Options.Timeout.
func freeSpace(string) (uint64, error) { return 0, errors.ErrUnsupported }

// tryLock is not supported here: nothing keeps two processes apart.
func tryLock(*os.File) error { return nil }
