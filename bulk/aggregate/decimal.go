package aggregate

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"sync"
)

// Limits of a number, so that it takes at most a few hundred bytes.
const (
	maxDigits   = 100 // as written, including leading zeros
	maxExponent = 100 // as written, with either sign

	minScale = -maxExponent
	maxScale = maxDigits + maxExponent
	// maxCoefficientBytes holds 10^100, and maxSumBytes holds 2^53 times the greatest number
	// at the finest scale.
	maxCoefficientBytes = 42
	maxSumBytes         = 192
)

var (
	errNotNumber   = errors.New(`want a number, or a string that holds one, such as "40.92"`)
	errNumberBound = fmt.Errorf("want a number of at most %d digits, with an exponent from -%d to %d",
		maxDigits, maxExponent, maxExponent)
)

// decimal is an exact number: coefficient / 10^scale. The zero value is 0. It is immutable,
// so copies may share the big coefficient.
type decimal struct {
	small int64    // the coefficient, if big is nil
	big   *big.Int // the coefficient, if not nil
	scale int      // from minScale to maxScale
}

// parseDecimal parses an optional sign, digits with at most one point, and an optional
// exponent.
func parseDecimal(text string) (decimal, error) {
	unsigned := strings.TrimPrefix(text, "-")
	negative := len(unsigned) < len(text)
	if !negative {
		unsigned = strings.TrimPrefix(text, "+")
	}
	var small int64
	end, digits, point := 0, 0, -1
	for ; end < len(unsigned); end++ {
		if c := unsigned[end]; c >= '0' && c <= '9' {
			if digits++; digits <= maxSmallDigits {
				small = small*10 + int64(c-'0')
			}
		} else if c == '.' && point < 0 {
			point = digits
		} else {
			break
		}
	}
	exponent, err := parseExponent(unsigned[end:])
	switch {
	case digits == 0 || errors.Is(err, errNotNumber):
		return decimal{}, errNotNumber
	case err != nil || digits > maxDigits:
		return decimal{}, errNumberBound
	}
	d := decimal{small: small, scale: -exponent}
	if point >= 0 {
		d.scale += digits - point
	}
	if digits > maxSmallDigits {
		all, _ := new(big.Int).SetString(strings.Replace(unsigned[:end], ".", "", 1), 10)
		d = newDecimal(all, d.scale)
	}
	if negative {
		d = d.negated()
	}
	return d, nil
}

// parseExponent parses the text after the digits: empty, or e and an integer.
func parseExponent(text string) (int, error) {
	if text == "" {
		return 0, nil
	}
	if text[0] != 'e' && text[0] != 'E' {
		return 0, errNotNumber
	}
	digits, sign := text[1:], 1
	if digits != "" && (digits[0] == '-' || digits[0] == '+') {
		if digits[0] == '-' {
			sign = -1
		}
		digits = digits[1:]
	}
	exponent := 0
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, errNotNumber
		}
		exponent = min(exponent*10+int(digits[i]-'0'), maxExponent+1)
	}
	switch {
	case digits == "":
		return 0, errNotNumber
	case exponent > maxExponent:
		return 0, errNumberBound
	}
	return sign * exponent, nil
}

// newDecimal returns a decimal with a small coefficient if the coefficient fits.
func newDecimal(coefficient *big.Int, scale int) decimal {
	if coefficient.IsInt64() {
		return decimal{small: coefficient.Int64(), scale: scale}
	}
	return decimal{big: coefficient, scale: scale}
}

func (d decimal) negated() decimal {
	if d.big != nil {
		return decimal{big: new(big.Int).Neg(d.big), scale: d.scale}
	}
	return decimal{small: -d.small, scale: d.scale}
}

// at returns the coefficient at a scale of at least d.scale.
func (d decimal) at(scale int) *big.Int {
	coefficient := d.big
	if coefficient == nil {
		coefficient = big.NewInt(d.small)
	}
	return new(big.Int).Mul(coefficient, tenTo(scale-d.scale))
}

// smallAt is like at, for coefficients that fit in an int64.
func (d decimal) smallAt(scale int) (coefficient int64, ok bool) {
	if d.big != nil {
		return 0, false
	}
	more := scale - d.scale
	if more == 0 || d.small == 0 {
		return d.small, true
	}
	if more > maxSmallDigits {
		return 0, false
	}
	limit := math.MaxInt64 / smallTenTo[more]
	return d.small * smallTenTo[more], d.small <= limit && d.small >= -limit
}

func (d decimal) compare(e decimal) int {
	scale := max(d.scale, e.scale)
	x, xOK := d.smallAt(scale)
	y, yOK := e.smallAt(scale)
	if xOK && yOK {
		return cmp.Compare(x, y)
	}
	return d.at(scale).Cmp(e.at(scale))
}

// append writes a head that is never 0, then the coefficient. The head holds the scale, as
// zigzag, and whether the coefficient is big.
func (d decimal) append(b []byte) []byte {
	head := uint64(d.scale) << 1
	if d.scale < 0 {
		head = ^head
	}
	if d.big == nil {
		return binary.AppendVarint(binary.AppendUvarint(b, head<<1+1), d.small)
	}
	return appendBig(binary.AppendUvarint(b, head<<1+2), d.big)
}

// decimal reads what decimal.append wrote; ok is false if it reads a 0.
func (r *reader) decimal() (d decimal, ok bool) {
	head := r.uvarint()
	if head == 0 {
		return decimal{}, false
	}
	head--
	isBig := head&1 == 1
	zigzag := head >> 1
	scale := int64(zigzag>>1) ^ -int64(zigzag&1)
	if scale < minScale || scale > maxScale {
		r.fail()
		return decimal{}, false
	}
	if isBig {
		return newDecimal(r.big(maxCoefficientBytes), int(scale)), true
	}
	return decimal{small: r.varint(), scale: int(scale)}, true
}

// appendBig writes the length and the sign as one integer, then the absolute value in
// big-endian order.
func appendBig(b []byte, v *big.Int) []byte {
	head := uint64(v.BitLen()+7) / 8 << 1
	if v.Sign() < 0 {
		head++
	}
	return append(binary.AppendUvarint(b, head), v.Bytes()...)
}

// big reads what appendBig wrote, with at most limit bytes.
func (r *reader) big(limit uint64) *big.Int {
	head := r.atMost(limit<<1 + 1)
	v := new(big.Int).SetBytes(r.take(head >> 1))
	if head&1 == 1 {
		v.Neg(v)
	}
	return v
}

// decimalSum adds numbers exactly: (total + pending) / 10^scale, where scale is the greatest
// scale so far. Most numbers are added to pending, an int64, which is added to total before
// it would overflow.
type decimalSum struct {
	total   big.Int
	pending int64
	scale   int
}

func (s *decimalSum) add(d decimal) {
	if d.scale > s.scale {
		s.flush()
		s.total.Mul(&s.total, tenTo(d.scale-s.scale))
		s.scale = d.scale
	}
	v, ok := d.smallAt(s.scale)
	if !ok {
		s.total.Add(&s.total, d.at(s.scale))
		return
	}
	if sum := s.pending + v; (sum > s.pending) == (v > 0) {
		s.pending = sum
		return
	}
	s.flush()
	s.pending = v
}

func (s *decimalSum) flush() {
	if s.pending != 0 {
		s.total.Add(&s.total, big.NewInt(s.pending))
		s.pending = 0
	}
}

func (s *decimalSum) append(b []byte) []byte {
	s.flush()
	return appendBig(binary.AppendUvarint(b, uint64(s.scale)), &s.total)
}

func (s *decimalSum) decode(r *reader) {
	s.scale = int(r.atMost(maxScale))
	s.total.Set(r.big(maxSumBytes))
}

// formatDecimal writes coefficient / 10^scale with scale decimals, and without an exponent.
// Scale is not negative.
func formatDecimal(coefficient *big.Int, scale int) string {
	digits := new(big.Int).Abs(coefficient).String()
	if missing := scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	if scale > 0 {
		point := len(digits) - scale
		digits = digits[:point] + "." + digits[point:]
	}
	if coefficient.Sign() < 0 {
		return "-" + digits
	}
	return digits
}

// maxSmallDigits is the number of digits that always fit in an int64.
const maxSmallDigits = 18

var smallTenTo = func() (powers [maxSmallDigits + 1]int64) {
	powers[0] = 1
	for i := range maxSmallDigits {
		powers[i+1] = powers[i] * 10
	}
	return powers
}()

var bigTenTo = sync.OnceValue(func() []*big.Int {
	powers := make([]*big.Int, maxScale-minScale+1)
	powers[0] = big.NewInt(1)
	for i := range len(powers) - 1 {
		powers[i+1] = new(big.Int).Mul(powers[i], big.NewInt(10))
	}
	return powers
})

// tenTo returns 10^n, which the caller must not change.
func tenTo(n int) *big.Int { return bigTenTo()[n] }
