package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"

	"github.com/sluice-project/sluice/bulk"
)

// exactSum adds decimals without rounding. It shares no code with the engine's
// aggregates, which it checks.
type exactSum struct {
	total big.Rat
	// places is the most decimal places of a value that was added.
	places int
}

// Add adds a decimal such as "-72.637078".
func (s *exactSum) Add(decimal string) error {
	value, ok := new(big.Rat).SetString(decimal)
	if !ok {
		return fmt.Errorf("%q is not a decimal", decimal)
	}
	if _, fraction, found := strings.Cut(decimal, "."); found {
		s.places = max(s.places, len(fraction))
	}
	s.total.Add(&s.total, value)
	return nil
}

// AddSum adds another sum.
func (s *exactSum) AddSum(other *exactSum) {
	s.total.Add(&s.total, &other.total)
	s.places = max(s.places, other.places)
}

// Equal tells whether two sums are the same number.
func (s *exactSum) Equal(other *exactSum) bool { return s.total.Cmp(&other.total) == 0 }

// String writes the sum with as many decimals as its values have.
func (s *exactSum) String() string { return s.total.FloatString(s.places) }

// sumColumn adds up a column of a CSV file with a header, and counts its rows.
func sumColumn(file []byte, column string) (sum *exactSum, rows int64, err error) {
	reader := csv.NewReader(bytes.NewReader(file))
	header, err := reader.Read()
	if err != nil {
		return nil, 0, err
	}
	at := slices.Index(header, column)
	if at < 0 {
		return nil, 0, noColumn("column", column, header)
	}
	sum = &exactSum{}
	for {
		row, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return sum, rows, nil
		}
		if err != nil {
			return nil, 0, err
		}
		if err := sum.Add(row[at]); err != nil {
			return nil, 0, err
		}
		rows++
	}
}

// failedSum adds up a field of the jobs that failed.
type failedSum struct {
	field string
	sum   exactSum
	rows  int64
	err   error
}

// Add takes one dead letter.
func (f *failedSum) Add(letter *bulk.DeadLetter) {
	var row map[string]json.RawMessage
	var value string
	err := json.Unmarshal(letter.Payload, &row)
	if err == nil {
		err = json.Unmarshal(row[f.field], &value)
	}
	if err == nil {
		err = f.sum.Add(value)
	}
	if err != nil {
		f.err = errors.Join(f.err, fmt.Errorf("failed job %s: %w", bulk.JobID(letter.Action, letter.Index), err))
	}
	f.rows++
}

// balance is what must be equal when nothing was lost and nothing counted twice.
type balance struct {
	// Input is the sum over the file, Rows its rows.
	Input exactSum
	Rows  int64
	// Received, Succeeded and Failed count jobs; Letters counts the dead letters.
	Received, Succeeded, Failed, Letters int64
	// TargetDone counts the jobs that the target did.
	TargetDone int64
	// SucceededSum is the aggregate of the engine; FailedSum is over the dead letters.
	SucceededSum, FailedSum exactSum
}

// Wrong says what is not equal; nil if all is.
func (b *balance) Wrong() error {
	var errs []error
	if b.Received != b.Rows {
		errs = append(errs, fmt.Errorf("the file has %d rows, %d jobs were received", b.Rows, b.Received))
	}
	if b.Succeeded+b.Failed != b.Received {
		errs = append(errs, fmt.Errorf("of %d jobs received, %d succeeded and %d failed", b.Received, b.Succeeded, b.Failed))
	}
	if b.Letters != b.Failed {
		errs = append(errs, fmt.Errorf("%d jobs failed, %d dead letters are kept", b.Failed, b.Letters))
	}
	if b.TargetDone != b.Succeeded {
		errs = append(errs, fmt.Errorf("the target did %d jobs, %d succeeded", b.TargetDone, b.Succeeded))
	}
	if both := b.Both(); !both.Equal(&b.Input) {
		errs = append(errs, fmt.Errorf("the sums of succeeded and failed jobs make %s, the file has %s", both, &b.Input))
	}
	return errors.Join(errs...)
}

// Both is the sum over succeeded and failed jobs.
func (b *balance) Both() *exactSum {
	both := &exactSum{}
	both.AddSum(&b.SucceededSum)
	both.AddSum(&b.FailedSum)
	return both
}
