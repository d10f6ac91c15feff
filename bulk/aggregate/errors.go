package aggregate

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/sluice-project/sluice/bulk"
)

const (
	// maxErrorMessages is the maximum of distinct messages that are counted exactly.
	maxErrorMessages = 1000
	defaultTopErrors = 10
)

// errorsState counts error messages in bounded memory. For up to 1,000 distinct messages,
// every count is exact. Beyond that it is the summary of J. Misra and D. Gries, "Finding
// repeated elements", Science of Computer Programming 2 (1982): a message that finds no free
// counter lowers all counters by one. A count is then too low by at most `lowered`, which is
// at most 1/1,001 of the messages seen, so every message more frequent than that has a
// counter.
type errorsState struct {
	counts  map[string]uint64
	lowered uint64
}

func (s *errorsState) add(message string) {
	message = cutMessage(message)
	if s.counts == nil {
		s.counts = map[string]uint64{}
	}
	if _, counted := s.counts[message]; counted || len(s.counts) < maxErrorMessages {
		s.counts[message]++
		return
	}
	s.lowered++
	for m, count := range s.counts {
		if count == 1 {
			delete(s.counts, m)
		} else {
			s.counts[m] = count - 1
		}
	}
}

// cutMessage cuts a message to MaxErrorBytes, at the boundary of a character.
func cutMessage(message string) string {
	if len(message) <= bulk.MaxErrorBytes {
		return message
	}
	end := bulk.MaxErrorBytes
	for end > bulk.MaxErrorBytes-utf8.UTFMax && !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end]
}

// append writes the messages in sorted order, so that equal states have equal bytes.
func (s *errorsState) append(b []byte) []byte {
	b = binary.AppendUvarint(b, s.lowered)
	b = binary.AppendUvarint(b, uint64(len(s.counts)))
	for _, message := range slices.Sorted(maps.Keys(s.counts)) {
		b = binary.AppendUvarint(b, uint64(len(message)))
		b = append(b, message...)
		b = binary.AppendUvarint(b, s.counts[message])
	}
	return b
}

func (s *errorsState) decode(r *reader) {
	s.lowered = r.count()
	n := r.atMost(maxErrorMessages)
	s.counts = make(map[string]uint64, min(n, uint64(len(r.rest))))
	last := ""
	for i := range n {
		message := string(r.take(r.atMost(bulk.MaxErrorBytes)))
		count := r.count()
		if count == 0 || (i > 0 && message <= last) {
			r.fail()
			return
		}
		s.counts[message], last = count, message
	}
}

// topErrorsResult is the JSON form of top-errors.
type topErrorsResult struct {
	// Errors has the most frequent message first; ties are in alphabetical order.
	Errors []topError `json:"errors"`
	// Exact is false if there were more distinct messages than counters: then each count may
	// be too low, by at most CountTooLowBy.
	Exact         bool   `json:"exact"`
	CountTooLowBy uint64 `json:"count_too_low_by,omitempty"`
}

type topError struct {
	Error string `json:"error"`
	Count uint64 `json:"count"`
}

func (a *Set) parseTopErrors(_, argument string) (renderFunc, error) {
	k := defaultTopErrors
	if argument != "" {
		var err error
		if k, err = strconv.Atoi(argument); err != nil || k < 1 || k > maxErrorMessages {
			return nil, fmt.Errorf("want top-errors, or top-errors:K with K from 1 to %d", maxErrorMessages)
		}
	}
	a.errors = true
	return func(s *totals) (json.RawMessage, error) { return s.errors.render(k) }, nil
}

func (s *errorsState) render(k int) (json.RawMessage, error) {
	result := topErrorsResult{Errors: []topError{}, Exact: s.lowered == 0, CountTooLowBy: s.lowered}
	for message, count := range s.counts {
		result.Errors = append(result.Errors, topError{message, count})
	}
	slices.SortFunc(result.Errors, func(x, y topError) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Error, y.Error))
	})
	result.Errors = result.Errors[:min(k, len(result.Errors))]
	return json.Marshal(result)
}
