package bulk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// aggregateField is a field of results whose values are numbers. Aggregates of
// the same field share it.
type aggregateField struct {
	// aggregate is the first aggregate that asked for the field.
	aggregate string
	name      string
	// path is the name, split at its dots.
	path []string
}

// addField returns the place of the field that an aggregate asks for.
func (a *Aggregates) addField(aggregate, name string) (int, error) {
	switch {
	case name == "":
		return 0, fmt.Errorf("name the field: want %s:FIELD", aggregate)
	case len(name) > maxFieldBytes || !utf8.ValidString(name):
		return 0, fmt.Errorf("the field is not one of at most %d bytes of UTF-8", maxFieldBytes)
	}
	for i := range a.fields {
		if a.fields[i].name == name {
			return i, nil
		}
	}
	a.fields = append(a.fields, aggregateField{aggregate, name, strings.Split(name, ".")})
	return len(a.fields) - 1, nil
}

var errNotJSON = errors.New("the result is not valid JSON")

// mapFields appends the number of each field, or 0 where it is left out. If all
// are, it appends nothing.
func (a *Aggregates) mapFields(values, result []byte) ([]byte, error) {
	if len(bytes.Trim(result, " \t\r\n")) == 0 {
		return a.appendNoFields(values), nil
	}
	if !validJSON(result) {
		return nil, newAggregateError(a.fields[0].aggregate, result, errNotJSON)
	}
	object, some := gjson.ParseBytes(result), false
	for i := range a.fields {
		number, ok, err := a.fields[i].read(object)
		switch {
		case err != nil:
			return nil, err
		case ok:
			values, some = number.append(values), true
		default:
			values = append(values, 0)
		}
	}
	if !some {
		return a.appendNoFields(values[:1]), nil
	}
	return values, nil
}

// appendNoFields appends that all fields are left out: nothing at all, unless
// the values of custom aggregates follow.
func (a *Aggregates) appendNoFields(values []byte) []byte {
	if len(a.customs) == 0 {
		return values
	}
	return append(values, make([]byte, len(a.fields))...)
}

// read returns the field's number; ok is false if it is left out.
func (f *aggregateField) read(object gjson.Result) (number decimal, ok bool, err error) {
	value := f.find(object)
	text := value.Raw
	switch value.Type {
	case gjson.Null: // missing, too
		return decimal{}, false, nil
	case gjson.Number:
	case gjson.String:
		if text = strings.Trim(value.Str, " \t"); text == "" {
			return decimal{}, false, nil
		}
	default:
		return decimal{}, false, newAggregateError(f.aggregate, value.Raw, errNotNumber)
	}
	if number, err = parseDecimal(text); err != nil {
		return decimal{}, false, newAggregateError(f.aggregate, value.Raw, err)
	}
	return number, true, nil
}

// find returns the value of the key that is spelt like the whole name, else the
// one at the path. The zero Result says that there is none.
func (f *aggregateField) find(object gjson.Result) gjson.Result {
	if whole := lastValue(object, f.name); whole.Exists() || len(f.path) == 1 {
		return whole
	}
	for _, key := range f.path {
		object = lastValue(object, key)
	}
	return object
}

// lastValue returns the last value of that key in an object. What is not an
// object has no keys.
func lastValue(object gjson.Result, key string) (found gjson.Result) {
	if !object.IsObject() {
		return found
	}
	object.ForEach(func(k, value gjson.Result) bool {
		if k.Str == key {
			found = value
		}
		return true
	})
	return found
}

// validJSON tells whether data is one JSON value, nested at most 10,000 deep.
// The faster validator recurses without a bound, so it is only trusted with
// data that cannot nest deeper than the standard library's own bound.
func validJSON(data []byte) bool {
	const depth = 10_000
	if bytes.Count(data, []byte{'['})+bytes.Count(data, []byte{'{'}) > depth {
		return json.Valid(data)
	}
	return gjson.ValidBytes(data)
}
