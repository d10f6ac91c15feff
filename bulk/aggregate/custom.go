package aggregate

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Limits of the stored data of custom aggregates.
const (
	maxCustomValue = 64 << 10
	maxCustomState = 1 << 20
)

// MapReduce is a MapReduce that the program defines; [New] makes one of two
// functions. Its methods must be pure, and safe for concurrent use. Reduce must be
// associative and commutative: outcomes arrive in the order in which jobs end, in batches of
// any size. A panic is treated as an error, and an error fails the aggregation.
type MapReduce interface {
	// Map returns what Reduce needs of the result of a job that succeeded, at most 64 KiB.
	// The result may be empty or, from a remote worker, any bytes.
	Map(result []byte) (value []byte, err error)
	// Reduce adds one or more values to a partial state, nil at first, and returns the new
	// state, at most 1 MiB. It must not retain the slices.
	Reduce(partial []byte, values [][]byte) ([]byte, error)
	// Result returns the final value as JSON. The partial state is nil if no job succeeded.
	Result(partial []byte) (json.RawMessage, error)
}

// New returns an aggregate that takes a T from each result with mapper, and
// combines these with reduce, which must be associative and commutative. T is stored as JSON,
// so it must survive that encoding. The result is the T of all jobs that succeeded, as JSON,
// or null if none did.
func New[T any](mapper func(result []byte) (T, error), reduce func(a, b T) T) MapReduce {
	return mapReduce[T]{mapper, reduce}
}

type mapReduce[T any] struct {
	mapper  func(result []byte) (T, error)
	combine func(a, b T) T
}

func (m mapReduce[T]) Map(result []byte) ([]byte, error) {
	value, err := m.mapper(result)
	if err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

func (m mapReduce[T]) Reduce(partial []byte, values [][]byte) ([]byte, error) {
	if partial == nil {
		partial, values = values[0], values[1:]
	}
	var total T
	if err := json.Unmarshal(partial, &total); err != nil {
		return nil, err
	}
	for _, encoded := range values {
		var value T
		if err := json.Unmarshal(encoded, &value); err != nil {
			return nil, err
		}
		total = m.combine(total, value)
	}
	return json.Marshal(total)
}

func (m mapReduce[T]) Result(partial []byte) (json.RawMessage, error) {
	if partial == nil {
		return json.RawMessage("null"), nil
	}
	return partial, nil
}

// customAggregate checks the limits of an MapReduce and recovers from its panics.
type customAggregate struct {
	name       string
	aggregator MapReduce
}

func (a *Set) addCustom(name string, aggregator MapReduce) renderFunc {
	at := len(a.customs)
	a.customs = append(a.customs, customAggregate{name, aggregator})
	return func(s *totals) (json.RawMessage, error) { return a.customs[at].result(s.customs[at]) }
}

func (c *customAggregate) appendMapped(values, result []byte) ([]byte, error) {
	mapped, err := guard(func() ([]byte, error) { return c.aggregator.Map(result) })
	if err == nil && len(mapped) > maxCustomValue {
		err = fmt.Errorf("Map returned %d bytes: want at most %d", len(mapped), maxCustomValue)
	}
	if err != nil {
		return nil, newError(c.name, result, err)
	}
	return appendOptionalBytes(values, mapped), nil
}

func (c *customAggregate) reduce(partial []byte, values [][]byte) ([]byte, error) {
	state, err := guard(func() ([]byte, error) { return c.aggregator.Reduce(partial, values) })
	if err == nil && len(state) > maxCustomState {
		err = fmt.Errorf("Reduce returned %d bytes: want at most %d", len(state), maxCustomState)
	}
	if err != nil {
		return nil, newError(c.name, "", err)
	}
	return state, nil
}

func (c *customAggregate) result(partial []byte) (json.RawMessage, error) {
	result, err := guard(func() ([]byte, error) { return c.aggregator.Result(partial) })
	if err == nil && !json.Valid(result) {
		err = errors.New("Result returned what is not JSON")
	}
	if err != nil {
		return nil, newError(c.name, "", err)
	}
	return result, nil
}

// guard turns a panic of the program's code into an error, so that it fails one action and
// not the process.
func guard(f func() ([]byte, error)) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			b, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}
