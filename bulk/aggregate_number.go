package bulk

import (
	"encoding/binary"
	"encoding/json"
	"math/big"
)

// averageDigits is how many digits an average may have beyond those of the sum.
const averageDigits = 16

// numberState is what is known of the numbers of one field: enough for its sum,
// its least and greatest, and its average.
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

// pick returns the lesser (sign -1) or the greater (+1) of two numbers. Of
// equal numbers it is the one with more decimals, so that the order in which
// they come cannot be seen.
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

func (s *numberState) decode(r *aggregateReader) {
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

// numberKind makes an aggregate of one way to render a field's numbers.
func numberKind(render func(*numberState) string) func(*Aggregates, string, string) (aggregateRender, error) {
	return func(a *Aggregates, name, field string) (aggregateRender, error) {
		at, err := a.addField(name, field)
		if err != nil {
			return nil, err
		}
		return func(s *aggregateState) (json.RawMessage, error) {
			if text := render(&s.numbers[at]); text != "" {
				return json.RawMessage(`"` + text + `"`), nil
			}
			return json.RawMessage("null"), nil
		}, nil
	}
}

// renderSum writes the sum with the decimals of the value that has most.
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

// renderAverage writes the sum divided by the count. It is exact if it has at
// most 16 decimals more than the sum; else it is rounded there, half to even.
// Zeros at the end, beyond the decimals of the sum, are cut.
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
