package aggregate

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

func TestNumbersOfResults(t *testing.T) {
	for _, c := range []struct {
		field   string
		results []string
		// sum, min, max and avg of the results
		want [4]string
	}{
		{"x", []string{`{"x":40.922326}`, `{"x":"40.922326"}`}, [4]string{"81.844652", "40.922326", "40.922326", "40.922326"}},
		{"x", []string{`{"x":0.1}`, `{"x":0.2}`}, [4]string{"0.3", "0.1", "0.2", "0.15"}},
		{"x", []string{`{"x":"1.10"}`, `{"x":"1.1"}`}, [4]string{"2.20", "1.10", "1.10", "1.10"}},
		{"x", []string{`{"x":"1.1"}`, `{"x":"1.10"}`}, [4]string{"2.20", "1.10", "1.10", "1.10"}},
		{"x", []string{`{"x":1}`, `{"x":1}`, `{"x":0}`}, [4]string{"2", "0", "1", "0.6666666666666667"}},
		{"x", []string{`{"x":-1}`, `{"x":-1}`, `{"x":0}`}, [4]string{"-2", "-1", "0", "-0.6666666666666667"}},
		{"x", []string{`{"x":1e3}`, `{"x":"-.5E-1"}`}, [4]string{"999.95", "-0.05", "1000", "499.975"}},
		{"x", []string{`{"x":" +007. "}`, `{"x":"\u0031"}`}, [4]string{"8", "1", "7", "4"}},
		{"x", []string{`{"x":-0.0}`}, [4]string{"0.0", "0.0", "0.0", "0.0"}},
		{"x", []string{`{"x":9223372036854775807}`, `{"x":1}`, `{"x":-2}`, `{"x":-9223372036854775808}`},
			[4]string{"-2", "-9223372036854775808", "9223372036854775807", "-0.5"}},
		{"x", []string{`{"x":3}`, `{}`, `{"x":null}`, `{"x":""}`, `{"x":" "}`, ``, ` `, `null`, `7`, `"x"`, `[{"x":9}]`},
			[4]string{"3", "3", "3", "3"}},
		{"x", []string{`{"x":1,"x":2}`, `{"x":{},"\u0078":3}`}, [4]string{"5", "2", "3", "2.5"}},
		{"order.amount", []string{`{"order":{"amount":"2.5"}}`, `{"order":5}`, `{"order":{}}`, `{"order":[{"amount":1}]}`, `{"order":{"amount":8},"order":{}}`},
			[4]string{"2.5", "2.5", "2.5", "2.5"}},
		{"order.amount", []string{`{"order":{"amount":1},"order.amount":2}`}, [4]string{"2", "2", "2", "2"}},
		{"a:b*#|@", []string{`{"a:b*#|@":1}`}, [4]string{"1", "1", "1", "1"}},
	} {
		names := []string{"sum:" + c.field, "min:" + c.field, "max:" + c.field, "avg:" + c.field}
		a := mustParse(t, names...)
		var outcomes []bulk.Outcome
		for _, result := range c.results {
			outcomes = append(outcomes, succeeded(t, a, result))
		}
		got := reduceAll(t, a, outcomes)
		for i, name := range names {
			if got[name] != `"`+c.want[i]+`"` {
				t.Errorf("%s of %v: %s, want %q", name, c.results, got[name], c.want[i])
			}
		}
	}
}

func TestNotANumber(t *testing.T) {
	for _, c := range []struct {
		result, value string
		want          error
	}{
		{`{"x":"abc"}`, `"abc"`, errNotNumber},
		{`{"x":true}`, `true`, errNotNumber},
		{`{"x":false}`, `false`, errNotNumber},
		{`{"x":[1]}`, `[1]`, errNotNumber},
		{`{"x":{}}`, `{}`, errNotNumber},
		{`{"x":"NaN"}`, `"NaN"`, errNotNumber},
		{`{"x":"-Infinity"}`, `"-Infinity"`, errNotNumber},
		{`{"x":"1,5"}`, `"1,5"`, errNotNumber},
		{`{"x":"1.2.3"}`, `"1.2.3"`, errNotNumber},
		{`{"x":"."}`, `"."`, errNotNumber},
		{`{"x":"--1"}`, `"--1"`, errNotNumber},
		{`{"x":"-+1"}`, `"-+1"`, errNotNumber},
		{`{"x":"1e"}`, `"1e"`, errNotNumber},
		{`{"x":"1e+"}`, `"1e+"`, errNotNumber},
		{`{"x":"1e5x"}`, `"1e5x"`, errNotNumber},
		{`{"x":"0x10"}`, `"0x10"`, errNotNumber},
		{`{"x":"1_000"}`, `"1_000"`, errNotNumber},
		{`{"x":1e999999999}`, `1e999999999`, errNumberBound},
		{`{"x":1e101}`, `1e101`, errNumberBound},
		{`{"x":1e-101}`, `1e-101`, errNumberBound},
		{`{"x":` + strings.Repeat("1", 101) + `}`, strings.Repeat("1", 64) + "…", errNumberBound},
		{`{"x":1`, `{"x":1`, errNotJSON},
		{`{"x":1}}`, `{"x":1}}`, errNotJSON},
		{`x=1`, `x=1`, errNotJSON},
		{`{"x":NaN}`, `{"x":NaN}`, errNotJSON},
		{strings.Repeat("[", 1<<20), strings.Repeat("[", 64) + "…", errNotJSON},
	} {
		_, err := mustParse(t, "count", "max:y", "sum:x").Map([]byte(c.result))
		var failed *Error
		if !errors.As(err, &failed) || !errors.Is(err, c.want) || failed.Value != c.value {
			t.Errorf("%.40s: error %.300v, want %v of %.40s", c.result, err, c.want, c.value)
			continue
		}
		if failed.Name != "sum:x" && !errors.Is(c.want, errNotJSON) {
			t.Errorf("%s: blamed %s", c.result, failed.Name)
		}
	}
}

func TestBoundsOfNumbers(t *testing.T) {
	nines := strings.Repeat("9", 100)
	a := mustParse(t, "sum:x", "min:x", "max:x")
	got := reduceAll(t, a,
		[]bulk.Outcome{succeeded(t, a, `{"x":`+nines+`e100}`), succeeded(t, a, `{"x":"0.`+nines[1:]+`e-100"}`)},
		[]bulk.Outcome{succeeded(t, a, `{"x":"-`+nines+`E+100"}`)})
	want := map[string]string{
		"sum:x": `"0.` + strings.Repeat("0", 100) + nines[1:] + `"`,
		"min:x": `"-` + nines + strings.Repeat("0", 100) + `"`,
		"max:x": `"` + nines + strings.Repeat("0", 100) + `"`,
	}
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s: %s, want %s", name, got[name], want[name])
		}
	}
}

func TestNumbersAgainstRationals(t *testing.T) {
	a := mustParse(t, "sum:x", "min:x", "max:x", "avg:x")
	rapid.Check(t, func(t *rapid.T) {
		outcomes, numbers := drawOutcomes(t, a)
		got := reduceAll(t, a, cut(t, outcomes)...)
		sum := new(big.Rat)
		var least, most *big.Rat
		for _, number := range numbers {
			r := rational(t, number)
			sum.Add(sum, r)
			if least == nil || r.Cmp(least) < 0 {
				least = r
			}
			if most == nil || r.Cmp(most) > 0 {
				most = r
			}
		}
		expect(t, got["sum:x"], sum)
		if len(numbers) == 0 {
			return
		}
		expect(t, got["min:x"], least)
		expect(t, got["max:x"], most)

		average := new(big.Rat).Quo(sum, big.NewRat(int64(len(numbers)), 1))
		text := strings.Trim(got["avg:x"], `"`)
		off := new(big.Rat).Sub(rational(t, text), average)
		_, decimals, _ := strings.Cut(strings.Trim(got["sum:x"], `"`), ".")
		unit := new(big.Rat).SetFrac(big.NewInt(1), tenTo(len(decimals)+averageDigits))
		if off.Abs(off).Cmp(unit.Quo(unit, big.NewRat(2, 1))) > 0 {
			t.Fatalf("average %s, want %s", text, average.RatString())
		}
	})
}

func rational(t fataler, text string) *big.Rat {
	r, ok := new(big.Rat).SetString(text)
	if !ok {
		t.Fatal("not a rational: " + text)
	}
	return r
}

func expect(t *rapid.T, got string, want *big.Rat) {
	t.Helper()
	if r := rational(t, strings.Trim(got, `"`)); r.Cmp(want) != 0 {
		t.Fatalf("got %s, want %s", got, want.RatString())
	}
}

func TestDivideHalfEven(t *testing.T) {
	for _, c := range []struct{ n, d, want int64 }{
		{5, 2, 2}, {7, 2, 4}, {-5, 2, -2}, {-7, 2, -4}, {1, 2, 0}, {-1, 2, 0}, {3, 2, 2}, {8, 3, 3}, {7, 3, 2}, {-8, 3, -3}, {6, 3, 2}, {2, 3, 1}, {-2, 3, -1},
	} {
		if got := divideHalfEven(big.NewInt(c.n), big.NewInt(c.d)); got.Int64() != c.want {
			t.Errorf("%d / %d = %v, want %d", c.n, c.d, got, c.want)
		}
	}
}

// zipResults returns the rows of the example as JSON results, and the exact sum of their
// latitudes.
func zipResults(t testing.TB) (results [][]byte, sum *big.Rat) {
	t.Helper()
	file, err := os.Open("../../examples/zipcodes.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows := csv.NewReader(file)
	header, err := rows.Read()
	if err != nil {
		t.Fatal(err)
	}
	sum = new(big.Rat)
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return results, sum
		}
		if err != nil {
			t.Fatal(err)
		}
		object := map[string]string{}
		for i := range header {
			object[header[i]] = row[i]
		}
		result, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, result)
		sum.Add(sum, rational(t, object["latitude"]))
	}
}

func TestSumOfRealData(t *testing.T) {
	results, sum := zipResults(t)
	a := mustParse(t, "sum:latitude", "avg:latitude", "count")
	var batches [][]bulk.Outcome
	for i := 0; i < len(results); i += 100 {
		var batch []bulk.Outcome
		for _, result := range results[i:min(i+100, len(results))] {
			batch = append(batch, succeeded(t, a, string(result)))
		}
		batches = append(batches, batch)
	}
	got := reduceAll(t, a, batches...)
	if want := `"` + sum.FloatString(6) + `"`; got["sum:latitude"] != want || got["count"] != "42049" {
		t.Errorf("sum %s of %s, want %s of 42049", got["sum:latitude"], got["count"], want)
	}
}

// FuzzMap compares the values that Map and encoding/json read.
func FuzzMap(f *testing.F) {
	for _, seed := range []string{
		``, `{}`, `{"x":1}`, `{"x":"40.922326"}`, `{"x":1,"x":"2"}`, `{"\u0078":-0.5e-3}`, `{"x":[{"x":1}],"y":{"x":2}}`,
		`{"x":"\u0031"}`, `{"x":nul}`, ` { "x" : 1e2 } `, `{"x":"a\"}","x":3}`, "{\"x\":\"\x01\"}", `{"x":01}`, `{"x":1e}`, `{"x":"\ud800"}`,
		`[1,2]`, `"x"`, `{"x":1}{"x":2}`, `{"y":{"x":2}}`, "\ufeff{}", "\f", `{"y.x":3,"y":{"x":"4"}}`,
	} {
		f.Add([]byte(seed))
	}
	a := mustParse(f, "sum:x", "sum:y.x")
	f.Fuzz(func(t *testing.T, result []byte) {
		values, err := a.Map(result)
		if err != nil {
			var failed *Error
			if !errors.As(err, &failed) {
				t.Fatalf("error %#v", err)
			}
		}
		valid := json.Valid(result) || strings.Trim(string(result), " \t\r\n") == ""
		if valid == errors.Is(err, errNotJSON) {
			t.Fatalf("valid JSON is %v, but the error is %v", valid, err)
		}
		if !valid {
			return
		}
		x, xErr := reference(result, "x")
		yx, yxErr := reference(result, "y.x")
		if (err != nil) != (xErr != nil || yxErr != nil) {
			t.Fatalf("error %v, want %v or %v", err, xErr, yxErr)
		}
		if err != nil {
			return
		}
		got := reduceAll(t, a, []bulk.Outcome{{Succeeded: true, Values: values}})
		for name, want := range map[string]*big.Rat{"sum:x": x, "sum:y.x": yx} {
			if r := rational(t, strings.Trim(got[name], `"`)); r.Cmp(want) != 0 {
				t.Fatalf("%s is %s, want %s", name, got[name], want.RatString())
			}
		}
	})
}

// reference reads a field with encoding/json. A missing field is 0.
func reference(result []byte, field string) (*big.Rat, error) {
	raw := lookUp(result, field)
	if parent, child, dotted := strings.Cut(field, "."); raw == nil && dotted {
		raw = lookUp(lookUp(result, parent), child)
	}
	if raw == nil || string(raw) == "null" {
		return new(big.Rat), nil
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	} else if text = strings.Trim(text, " \t"); text == "" {
		return new(big.Rat), nil
	}
	if d, err := parseDecimal(text); err != nil || d.scale > maxScale {
		return nil, errNotNumber
	}
	if r, ok := new(big.Rat).SetString(text); ok {
		return r, nil
	}
	return nil, errors.New("parseDecimal reads what math/big does not: " + text)
}

func lookUp(object []byte, key string) json.RawMessage {
	var values map[string]json.RawMessage
	if json.Unmarshal(object, &values) != nil {
		return nil
	}
	return values[key]
}

func FuzzParseDecimal(f *testing.F) {
	for _, seed := range []string{"0", "-1.5", "+.5", "5.", "1e5", "1E-5", "", ".", "e", "1e1e1", "9999999999999999999", "-0", "00.00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := parseDecimal(text)
		if errors.Is(err, errNumberBound) || strings.ContainsAny(text, "/_xXoObBpP") {
			return // too large for a rational, or a notation of rationals only
		}
		want, isRational := new(big.Rat).SetString(text)
		if (err == nil) != isRational {
			t.Fatalf("%q: error %v, but a rational: %v", text, err, isRational)
		}
		if err != nil {
			return
		}
		scale := max(d.scale, 0)
		if got := rational(t, formatDecimal(d.at(scale), scale)); got.Cmp(want) != 0 {
			t.Fatalf("%q was read as %s", text, got.RatString())
		}
	})
}

func BenchmarkMap(b *testing.B) {
	results, _ := zipResults(b)
	for _, c := range []struct {
		name string
		a    *Set
	}{
		{"sum", mustParse(b, "sum:latitude")},
		{"four", mustParse(b, "sum:latitude", "max:longitude", "avg:latitude", "min:zip_code")},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := c.a.Map(results[i%len(results)]); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "values/s")
		})
	}
}

func BenchmarkMapReduceSum(b *testing.B) {
	results, _ := zipResults(b)
	a := mustParse(b, "sum:latitude")
	const batch = 1000
	outcomes := make([]bulk.Outcome, 0, batch)
	var partial []byte
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		outcomes = append(outcomes, succeeded(b, a, string(results[i%len(results)])))
		if len(outcomes) == batch {
			partial, _ = a.Reduce(partial, outcomes)
			outcomes = outcomes[:0]
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "values/s")
}

func BenchmarkReduce(b *testing.B) {
	results, _ := zipResults(b)
	long := []byte(`{"latitude":"1234567890123456789012345678.901234567890"}`)
	for _, c := range []struct {
		name   string
		result func(i int) []byte
	}{
		{"short", func(i int) []byte { return results[i] }},
		{"long", func(int) []byte { return long }},
	} {
		b.Run(c.name, func(b *testing.B) {
			a := mustParse(b, "sum:latitude", "min:latitude", "count", "latency")
			var outcomes []bulk.Outcome
			for i := range 1000 {
				outcomes = append(outcomes, succeeded(b, a, string(c.result(i))))
			}
			var partial []byte
			b.ReportAllocs()
			for b.Loop() {
				partial, _ = a.Reduce(partial, outcomes)
			}
			b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "values/s")
		})
	}
}
