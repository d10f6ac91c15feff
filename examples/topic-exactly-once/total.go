package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// total is the state of the consumer, stored in one file.
type total struct {
	// Sum is the sum of the payments 1 to Last.
	Sum  int `json:"sum"`
	Last int `json:"last"`
	// Offset is the offset of the next record.
	Offset int64 `json:"offset"`
}

// add adds a payment, unless it is a repeat.
func (t *total) add(payment *kgo.Record) error {
	number, err := strconv.Atoi(string(payment.Value))
	switch {
	case err != nil:
		return err
	case number > t.Last+1:
		return fmt.Errorf("payment %d after %d", number, t.Last)
	case number == t.Last+1: // the amount of a payment is its number
		t.Sum, t.Last = t.Sum+number, number
	}
	t.Offset = payment.Offset + 1
	return nil
}

// load reads the file; without a file the total is zero.
func load(file string) (t total, err error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	return t, err
}

// store replaces the file atomically.
func (t *total) store(file string) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	next, err := os.Create(file + ".new")
	if err != nil {
		return err
	}
	_, err = next.Write(data)
	if err = errors.Join(err, next.Sync(), next.Close()); err != nil {
		return err
	}
	if err := os.Rename(next.Name(), file); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close()) // the new name is durable too
}
