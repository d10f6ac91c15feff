package upload

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// all returns a copy of every payload, and the error that ended the stream; nil stands for
// io.EOF.
func all(p Parser) (payloads []string, err error) {
	for {
		payload, err := p.Next()
		if errors.Is(err, io.EOF) {
			return payloads, nil
		}
		if err != nil {
			return payloads, err
		}
		payloads = append(payloads, string(payload))
	}
}

var formats = map[string]func(io.Reader) Parser{
	"ndjson": func(r io.Reader) Parser { return NewNDJSON(r) },
	"csv":    func(r io.Reader) Parser { return NewCSV(r) },
}

func TestAccepted(t *testing.T) {
	big := strings.Repeat("x", MaxPayload-2)
	tests := []struct {
		name, format, input string
		want                []string
	}{
		{"nothing", "ndjson", "", nil},
		{"any value", "ndjson", "1\n\"a\"\nnull\n[1, 2]\n{\"a\": 1}", []string{"1", `"a"`, "null", "[1, 2]", `{"a": 1}`}},
		{"blank lines and CR LF", "ndjson", "\n  \r\n{\"a\":1}\r\n\t\r\n 2 \n\n", []string{`{"a":1}`, "2"}},
		{"a byte order mark", "ndjson", "\ufeff1\n2", []string{"1", "2"}},
		{"the longest payload", "ndjson", `"` + big + "\"\r\n1\n", []string{`"` + big + `"`, "1"}},
		{"big numbers stay as they are", "ndjson", "12345678901234567890.10", []string{"12345678901234567890.10"}},

		{"only a header", "csv", "a,b\n", nil},
		{"values stay strings", "csv", "zip,n\n00501,1e3\n", []string{`{"zip":"00501","n":"1e3"}`}},
		{"header order", "csv", "b,a\n1,2", []string{`{"b":"1","a":"2"}`}},
		{"a byte order mark", "csv", "\ufeffa\n1\n", []string{`{"a":"1"}`}},
		{"a byte order mark before a quote", "csv", "\ufeff\"a\"\n1\n", []string{`{"a":"1"}`}},
		{"CR LF and blank lines", "csv", "\r\na,b\r\n\r\n1,2\r\n\n", []string{`{"a":"1","b":"2"}`}},
		{"CR at the end of the stream", "csv", "a,b\r\n1,2\r", []string{`{"a":"1","b":"2"}`}},
		{"quotes, commas and line breaks", "csv", "a,b\n\"x, \"\"y\"\"\",\"1\r\n2\n\n3\"\n", []string{`{"a":"x, \"y\"","b":"1\r\n2\n\n3"}`}},
		{"empty values", "csv", "a,b,c\n,,\n\"\",\"\",\n", []string{`{"a":"","b":"","c":""}`, `{"a":"","b":"","c":""}`}},
		{"an empty value alone", "csv", "a\n\"\"\n\n1\n", []string{`{"a":""}`, `{"a":"1"}`}},
		{"quoted names", "csv", "\"a \"\"b\"\"\",c\n1,2\n", []string{`{"a \"b\"":"1","c":"2"}`}},
		{"control characters", "csv", "a\n\t\x00\\\x1f\n", []string{`{"a":"\t\u0000\\\u001f"}`}},
		{"other scripts", "csv", "名\n東京😀\n", []string{`{"名":"東京😀"}`}},
		{"spaces are kept", "csv", "a, b\n 1 ,2\n", []string{`{"a":" 1 "," b":"2"}`}},
	}
	for _, test := range tests {
		t.Run(test.format+"/"+test.name, func(t *testing.T) {
			for _, reader := range []io.Reader{strings.NewReader(test.input), iotest.DataErrReader(iotest.HalfReader(strings.NewReader(test.input)))} {
				got, err := all(formats[test.format](reader))
				if err != nil || !slices.Equal(got, test.want) {
					t.Fatalf("got %.200q, %v; want %.200q", got, err, test.want)
				}
			}
		})
	}
}

func TestRefused(t *testing.T) {
	long := strings.Repeat("x", MaxPayload)
	tests := []struct {
		name, format, input string
		line                int64
		why                 string
	}{
		{"broken JSON", "ndjson", "1\n\n{\"a\":\n3\n", 3, "want one JSON value: unexpected end"},
		{"two values", "ndjson", "1 2\n", 1, "want one JSON value: invalid character '2'"},
		{"a CR between values", "ndjson", "1\r2\n", 1, "want one JSON value"},
		{"no UTF-8", "ndjson", "1\n\"\xff\"\n", 2, "UTF-8"},
		{"a payload too long", "ndjson", "1\n\"" + long + "\"\n", 2, "at most 1048576 bytes"},
		{"an endless line", "ndjson", strings.Repeat(long, 3), 1, "at most 1048576 bytes"},

		{"nothing", "csv", "", 1, "want a header line"},
		{"blank lines only", "csv", "\n\r\n", 1, "want a header line"},
		{"a name empty", "csv", "a,,c\n", 1, "column 2 of the header has no name"},
		{"a name twice", "csv", "\na,b,a\n", 2, `has column "a" twice`},
		{"too few values", "csv", "a,b\n1,2\n1\n", 3, "want 2 values, as the header has; got 1"},
		{"too many values", "csv", "a,b\n\n1,2,3\n", 3, "want 2 values, as the header has; got 3"},
		{"too few quoted values", "csv", "a,b\n\"1\n\n\"\n", 2, "want 2 values, as the header has; got 1"},
		{"a bare quote", "csv", "a,b\n1,2\n1\"2,3\n", 3, "a quote in an unquoted value"},
		{"a bare quote after a space", "csv", "a,b\n1, \"2\"\n", 2, "a quote in an unquoted value"},
		{"text after a quoted value", "csv", "a,b\n\"1\n\"x,2\n", 3, "text after a quoted value"},
		{"an open quote", "csv", "a,b\n1,2\n\"1,2\n3,4\n", 3, "does not end"},
		{"an open quote in the header", "csv", "a,\"b\n1,2\n", 1, "does not end"},
		{"a stray CR", "csv", "a\r1\r2\r", 1, "a carriage return that ends no line"},
		{"a stray CR beside quotes", "csv", "a,b\n\"1\",2\r3\n", 2, "a carriage return that ends no line"},
		{"no UTF-8", "csv", "a\n1\n\"2\n\xff\"\n", 4, "UTF-8"},
		{"a row too long", "csv", "a\n" + long + "\n", 2, "more than 1048576 bytes long as a JSON object"},
		{"a row that grows too long", "csv", "a\n" + strings.Repeat("\x01", MaxPayload/4) + "\n", 2, "more than 1048576 bytes long as a JSON object"},
		{"a quoted value too long", "csv", "a\n\"" + strings.Repeat("0123456\n", MaxPayload/8) + "\"\n", 2 + MaxPayload/8, "at most 1048576 bytes"},
	}
	for _, test := range tests {
		t.Run(test.format+"/"+test.name, func(t *testing.T) {
			parser := formats[test.format](strings.NewReader(test.input))
			_, err := all(parser)
			var refusal *Error
			if !errors.As(err, &refusal) || refusal.Line != test.line || !strings.Contains(refusal.Why, test.why) {
				t.Fatalf("got %v; want line %d: …%s…", err, test.line, test.why)
			}
			if _, again := parser.Next(); !errors.Is(again, err) {
				t.Fatalf("after the error, Next returned %v", again)
			}
		})
	}
}

func TestErrorOfTheStream(t *testing.T) {
	broken := errors.New("the cable is cut")
	for name, format := range formats {
		t.Run(name, func(t *testing.T) {
			parser := format(io.MultiReader(strings.NewReader("1\n2\n3"), iotest.ErrReader(broken)))
			got, err := all(parser)
			if !errors.Is(err, broken) || slices.Contains(got, "3") {
				t.Fatalf("got %q, %v", got, err)
			}
			if _, err := format(idle{}).Next(); !errors.Is(err, io.ErrNoProgress) {
				t.Fatalf("a reader that returns nothing: %v", err)
			}
		})
	}
}

// idle is a reader that never returns anything.
type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

func TestColumnsAndValues(t *testing.T) {
	parser := NewCSV(strings.NewReader("\"a\",b\n\n\"x\"\"y\n\",2\n3,4\n"))
	column, err := parser.Column("a")
	if err != nil || column != 0 {
		t.Fatal(column, err)
	}
	if _, err := parser.Column("state"); err == nil || !strings.Contains(err.Error(), `no column "state"; the header begins ["a" "b"]`) {
		t.Fatal(err)
	}
	for _, want := range []struct {
		line int64
		a, b string
	}{{3, "x\"y\n", "2"}, {5, "3", "4"}} {
		if _, err := parser.Next(); err != nil {
			t.Fatal(err)
		}
		if string(parser.Value(0)) != want.a || string(parser.Value(1)) != want.b || parser.Line() != want.line {
			t.Fatalf("line %d: %q %q; want %+v", parser.Line(), parser.Value(0), parser.Value(1), want)
		}
	}
	if _, err := NewCSV(strings.NewReader("")).Column("a"); err == nil {
		t.Fatal("a column of a stream without a header")
	}
}

func TestRealInput(t *testing.T) {
	file, err := os.Open("../../examples/zipcodes.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	parser := NewCSV(file)
	first, err := parser.Next()
	want := `{"zip_code":"00501","latitude":"40.922326","longitude":"-72.637078","city":"Holtsville","state":"NY","county":"Suffolk"}`
	if err != nil || string(first) != want {
		t.Fatalf("got %s, %v; want %s", first, err, want)
	}
	rest, err := all(parser)
	if err != nil || len(rest) != 42_048 {
		t.Fatalf("%d rows after the first, %v", len(rest), err)
	}
}

// TestCSVRoundTrip writes rows with encoding/csv and reads the payloads with
// encoding/json: they must be the same rows.
func TestCSVRoundTrip(t *testing.T) {
	text := rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune("\",\n\r\t\\ \ufeff\u2028"))))
	rapid.Check(t, func(t *rapid.T) {
		header := rapid.SliceOfNDistinct(text.Filter(func(s string) bool { return s != "" }), 2, 5, rapid.ID[string]).Draw(t, "header")
		rows := rapid.SliceOf(rapid.SliceOfN(text, len(header), len(header))).Draw(t, "rows")
		if strings.HasPrefix(header[0], "\ufeff") {
			header[0] = "x" + header[0]
		}
		var file bytes.Buffer
		writer := csv.NewWriter(&file)
		if err := writer.WriteAll(append([][]string{header}, rows...)); err != nil {
			t.Fatal(err)
		}
		parser := NewCSV(iotest.HalfReader(&file))
		for _, row := range rows {
			payload, err := parser.Next()
			if err != nil {
				t.Fatal(err)
			}
			if keys, values := object(t, payload); !slices.Equal(keys, header) || !slices.Equal(values, row) {
				t.Fatalf("%q: got %q %q; want %q %q", payload, keys, values, header, row)
			}
		}
		if _, err := parser.Next(); !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	})
}

// object reads a JSON object of strings, in order.
func object(t interface{ Fatal(...any) }, payload []byte) (keys, values []string) {
	decoder := json.NewDecoder(bytes.NewReader(payload))
	for depth := 0; ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return keys, values
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case json.Delim:
			depth++
		case string:
			if len(keys) == len(values) {
				keys = append(keys, token)
			} else {
				values = append(values, token)
			}
		default:
			t.Fatal("not a string:", token)
		}
	}
}

func TestNDJSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOf(rapid.MapOf(rapid.String(), rapid.OneOf(rapid.String().AsAny(), rapid.Float64().AsAny()))).Draw(t, "values")
		var file bytes.Buffer
		var want []string
		for _, value := range values {
			line, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, string(line))
			file.Write(line)
			file.WriteString(rapid.SampledFrom([]string{"\n", "\r\n", "\n\n", " \n"}).Draw(t, "ending"))
		}
		if got, err := all(NewNDJSON(iotest.HalfReader(&file))); err != nil || !slices.Equal(got, want) {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	})
}

func FuzzNDJSON(f *testing.F) {
	f.Add("1\n{\"a\":[1,2,{}]}\r\n\n\"x\"")
	f.Add("\ufeffnull\n{\n")
	f.Add("\"\xff\"\n")
	f.Fuzz(func(t *testing.T, input string) {
		got, err := all(NewNDJSON(strings.NewReader(input)))
		for _, payload := range got {
			if !json.Valid([]byte(payload)) || strings.Contains(payload, "\n") {
				t.Fatalf("payload %q", payload)
			}
		}
		slowly, slowErr := all(NewNDJSON(iotest.OneByteReader(strings.NewReader(input))))
		if !slices.Equal(got, slowly) || (err == nil) != (slowErr == nil) {
			t.Fatalf("%q, %v read at once; %q, %v byte by byte", got, err, slowly, slowErr)
		}
		if again, checkedErr := all(NewCheckedNDJSON(strings.NewReader(input))); err == nil && (checkedErr != nil || !slices.Equal(got, again)) {
			t.Fatalf("%q; once checked %q, %v", got, again, checkedErr)
		}
	})
}

// FuzzCSV checks that encoding/csv reads the accepted records in the same way.
func FuzzCSV(f *testing.F) {
	f.Add("a,b\n1,2\n")
	f.Add("\ufeff\"a\",b\r\n\"1\r\n\"\"2\",\r\n\n")
	f.Add("a\n\"\"\n\"x\n")
	f.Add("a,a\n\xff,\r\n")
	f.Fuzz(func(t *testing.T, input string) {
		got, err := all(NewCSV(strings.NewReader(input)))
		slowly, slowErr := all(NewCSV(iotest.OneByteReader(strings.NewReader(input))))
		if !slices.Equal(got, slowly) || (err == nil) != (slowErr == nil) {
			t.Fatalf("%q, %v read at once; %q, %v byte by byte", got, err, slowly, slowErr)
		}
		if err != nil {
			return
		}
		reader := csv.NewReader(strings.NewReader(strings.TrimPrefix(input, "\ufeff")))
		rows, err := reader.ReadAll()
		if err != nil || len(rows) != len(got)+1 {
			t.Fatalf("%d rows; encoding/csv: %d, %v", len(got), len(rows)-1, err)
		}
		for i, payload := range got {
			keys, values := object(t, []byte(payload))
			for j := range values {
				keys[j] = strings.ReplaceAll(keys[j], "\r\n", "\n")
				values[j] = strings.ReplaceAll(values[j], "\r\n", "\n")
			}
			if !slices.Equal(keys, rows[0]) || !slices.Equal(values, rows[i+1]) {
				t.Fatalf("%q; encoding/csv: %q %q", payload, rows[0], rows[i+1])
			}
		}
	})
}

func BenchmarkCSV(b *testing.B) {
	input, err := os.ReadFile("../../examples/zipcodes.csv")
	if err != nil {
		b.Fatal(err)
	}
	benchmark(b, input, formats["csv"])
}

func BenchmarkNDJSON(b *testing.B) {
	input := bytes.Repeat([]byte(`{"zip_code":"00501","latitude":"40.922326","city":"Holtsville","state":"NY"}`+"\n"), 42_000)
	benchmark(b, input, formats["ndjson"])
}

func benchmark(b *testing.B, input []byte, format func(io.Reader) Parser) {
	b.SetBytes(int64(len(input)))
	b.ReportAllocs()
	rows := 0
	for b.Loop() {
		parser := format(bytes.NewReader(input))
		for {
			if _, err := parser.Next(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				b.Fatal(err)
			}
			rows++
		}
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
}
