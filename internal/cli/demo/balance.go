package demo

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
	"github.com/sluice-project/sluice/internal/cli/input"
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

// Equal reports whether two sums are the same number.
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
		return nil, 0, input.NoColumn("column", column, header)
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

// balance has the counts and sums that match if no job was lost or counted twice.
type balance struct {
	// Input is the sum over the file, Rows its rows.
	Input exactSum
	Rows  int64
	// Received, Succeeded and Failed count jobs; Letters counts the dead letters.
	Received, Succeeded, Failed, Letters int64
	// TargetDone counts the jobs that the target executed.
	TargetDone int64
	// SucceededSum is the aggregate of the engine; FailedSum is over the dead letters.
	SucceededSum, FailedSum exactSum
}

// Wrong returns the errors of all checks; nil if everything matches.
func (b *balance) Wrong() error { return errors.Join(b.Counts(), b.Target(), b.Sums()) }

// Counts checks that every row has an outcome.
func (b *balance) Counts() error {
	var wrong faults
	if b.Received != b.Rows {
		wrong.blame("the file has %d rows, %d jobs were received", b.Rows, b.Received)
	}
	if b.Succeeded+b.Failed != b.Received {
		wrong.blame("of %d jobs received, %d succeeded and %d failed", b.Received, b.Succeeded, b.Failed)
	}
	if b.Letters != b.Failed {
		wrong.blame("%d jobs failed, %d dead letters are kept", b.Failed, b.Letters)
	}
	return wrong.Wrong()
}

// Target checks that the target executed the jobs that succeeded.
func (b *balance) Target() error {
	if b.TargetDone != b.Succeeded {
		return fmt.Errorf("the target did %d jobs, %d succeeded", b.TargetDone, b.Succeeded)
	}
	return nil
}

// Sums checks that the sums over succeeded and failed jobs make that of the file.
func (b *balance) Sums() error {
	both := exactSum{}
	both.AddSum(&b.SucceededSum)
	both.AddSum(&b.FailedSum)
	if !both.Equal(&b.Input) {
		return fmt.Errorf("the sums of succeeded and failed jobs make %s, the file has %s", &both, &b.Input)
	}
	return nil
}
