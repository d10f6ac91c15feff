package aggregate

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// field is a field of results whose values are numbers. Set of the same field
// share it.
type field struct {
	// aggregate is the first aggregate that uses the field.
	aggregate string
	name      string
	// path is the name, split at its dots.
	path []string
}

// addField returns the index of a field, and adds it if it is new.
func (a *Set) addField(aggregate, name string) (int, error) {
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
	a.fields = append(a.fields, field{aggregate, name, strings.Split(name, ".")})
	return len(a.fields) - 1, nil
}

var errNotJSON = errors.New("the result is not valid JSON")

// mapFields appends the number of each field, or 0 if the field is skipped. If all fields are
// skipped, it appends nothing.
func (a *Set) mapFields(values, result []byte) ([]byte, error) {
	if len(bytes.Trim(result, " \t\r\n")) == 0 {
		return a.appendNoFields(values), nil
	}
	if !validJSON(result) {
		return nil, newError(a.fields[0].aggregate, result, errNotJSON)
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

// appendNoFields records that all fields are skipped: it appends nothing, unless values of
// custom aggregates follow.
func (a *Set) appendNoFields(values []byte) []byte {
	if len(a.customs) == 0 {
		return values
	}
	return append(values, make([]byte, len(a.fields))...)
}

// read returns the field's number; ok is false if the field is skipped.
func (f *field) read(object gjson.Result) (number decimal, ok bool, err error) {
	value := f.find(object)
	text := value.Raw
	switch value.Type {
	case gjson.Null: // The key may also be missing.
		return decimal{}, false, nil
	case gjson.Number:
	case gjson.String:
		if text = strings.Trim(value.Str, " \t"); text == "" {
			return decimal{}, false, nil
		}
	default:
		return decimal{}, false, newError(f.aggregate, value.Raw, errNotNumber)
	}
	if number, err = parseDecimal(text); err != nil {
		return decimal{}, false, newError(f.aggregate, value.Raw, err)
	}
	return number, true, nil
}

// find returns the value of the key that is spelled like the whole name, else the value at
// the path. It returns the zero Result if there is neither.
func (f *field) find(object gjson.Result) gjson.Result {
	if whole := lastValue(object, f.name); whole.Exists() || len(f.path) == 1 {
		return whole
	}
	for _, key := range f.path {
		object = lastValue(object, key)
	}
	return object
}

// lastValue returns the last value of the key in an object. Values other than objects have no
// keys.
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

// validJSON reports whether data is one JSON value, nested at most 10,000 deep. The faster
// validator recurses without a bound, so validJSON uses it only for data that cannot nest
// deeper than the standard library allows.
func validJSON(data []byte) bool {
	const depth = 10_000
	if bytes.Count(data, []byte{'['})+bytes.Count(data, []byte{'{'}) > depth {
		return json.Valid(data)
	}
	return gjson.ValidBytes(data)
}

// averageDigits is the maximum of decimals that an average has beyond those of the sum.
const averageDigits = 16

// numberState is the state of one field: enough for its sum, minimum, maximum and average.
type numberState struct {
	count    uint64
	sum      decimalSum
	min, max decimal
}

func (s *numberState) add(d decimal) {
	s.sum.add(d)
	if s.count == 0 {
		s.min, s.max = d, d
	}
	s.count++
	s.min = pick(s.min, d, -1)
	s.max = pick(s.max, d, +1)
}

// pick returns the lesser (sign -1) or the greater (+1) of two numbers. Of equal numbers it
// returns the one with more decimals, so that the result does not depend on their order.
func pick(a, b decimal, sign int) decimal {
	c := b.compare(a) * sign
	if c > 0 || (c == 0 && b.scale > a.scale) {
		return b
	}
	return a
}

func (s *numberState) append(b []byte) []byte {
	b = binary.AppendUvarint(b, s.count)
	b = s.sum.append(b)
	if s.count == 0 {
		return b
	}
	return s.max.append(s.min.append(b))
}

func (s *numberState) decode(r *reader) {
	s.count = r.count()
	s.sum.decode(r)
	if s.count == 0 {
		return
	}
	var hasMin, hasMax bool
	s.min, hasMin = r.decimal()
	s.max, hasMax = r.decimal()
	if !hasMin || !hasMax {
		r.fail()
	}
}

// numberKind returns an aggregate that renders a field's numbers with render.
func numberKind(render func(*numberState) string) func(*Set, string, string) (renderFunc, error) {
	return func(a *Set, name, field string) (renderFunc, error) {
		at, err := a.addField(name, field)
		if err != nil {
			return nil, err
		}
		return func(s *totals) (json.RawMessage, error) {
			if text := render(&s.numbers[at]); text != "" {
				return json.RawMessage(`"` + text + `"`), nil
			}
			return json.RawMessage("null"), nil
		}, nil
	}
}

// renderSum writes the sum with as many decimals as the most precise value.
func (s *numberState) renderSum() string {
	s.sum.flush()
	return formatDecimal(&s.sum.total, s.sum.scale)
}

func (s *numberState) renderMin() string { return s.renderOne(s.min) }

func (s *numberState) renderMax() string { return s.renderOne(s.max) }

func (s *numberState) renderOne(d decimal) string {
	if s.count == 0 {
		return ""
	}
	scale := max(d.scale, 0)
	return formatDecimal(d.at(scale), scale)
}

// renderAverage writes the sum divided by the count. It has at most 16 decimals more than the
// sum; further ones are rounded half to even. Trailing zeros beyond the decimals of the sum
// are cut.
func (s *numberState) renderAverage() string {
	if s.count == 0 {
		return ""
	}
	s.sum.flush()
	count := new(big.Int).SetUint64(s.count)
	numerator := new(big.Int).Mul(&s.sum.total, tenTo(averageDigits))
	average, scale := divideHalfEven(numerator, count), s.sum.scale+averageDigits
	ten, digit := big.NewInt(10), new(big.Int)
	for scale > s.sum.scale {
		shorter := new(big.Int)
		if shorter.QuoRem(average, ten, digit); digit.Sign() != 0 {
			break
		}
		average, scale = shorter, scale-1
	}
	return formatDecimal(average, scale)
}

// divideHalfEven divides by a positive number, rounding half to even.
func divideHalfEven(numerator, denominator *big.Int) *big.Int {
	quotient, rest := new(big.Int).QuoRem(numerator, denominator, new(big.Int))
	twice := new(big.Int).Lsh(rest, 1)
	c := twice.CmpAbs(denominator)
	if c > 0 || (c == 0 && quotient.Bit(0) == 1) {
		quotient.Add(quotient, big.NewInt(int64(numerator.Sign())))
	}
	return quotient
}
