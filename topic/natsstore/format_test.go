package natsstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
)

func drawKey(t *rapid.T, label string) string {
	return rapid.OneOf(
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 600), func(b []byte) string { return string(b) }),
		rapid.StringOfN(rapid.SampledFrom([]rune("ab/=2F.*>")), 0, 12, -1),
	).Draw(t, label)
}

// TestKeys checks that a subject is legal, stands for its key alone, and passes
// the filter of each prefix of its key.
func TestKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := drawKey(t, "key")
		subject, err := subjectOf(key)
		if err != nil {
			t.Fatal(err)
		}
		tokens := strings.Split(subject, ".")
		for _, token := range tokens {
			if token == "" || strings.ContainsAny(token, " \t\r\n*>") {
				t.Fatalf("%q has the token %q", subject, token)
			}
		}
		if back, err := keyOf(subject); err != nil || back != key {
			t.Fatalf("%q is %q: %v", subject, back, err)
		}
		prefix := key[:rapid.IntRange(0, len(key)).Draw(t, "prefix")]
		start, found := strings.CutSuffix(filterOf(prefix), ">")
		if !found || !strings.HasPrefix(subject, start) || len(subject) == len(start) {
			t.Fatalf("%q does not pass the filter %q of %q", subject, filterOf(prefix), prefix)
		}
		if other := drawKey(t, "other"); other != key {
			if same, _ := subjectOf(other); same == subject {
				t.Fatalf("%q and %q have the subject %q", key, other, subject)
			}
		}
	})
}

func FuzzKeyOf(f *testing.F) {
	for _, seed := range []string{"meta.a", "meta.=", "meta.a=2Fb.=C3=A4", "meta.=2", "meta.", "log.a", "meta.=2f"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, subject string) {
		key, err := keyOf(subject)
		if err != nil || len(key) > maxKeyBytes {
			return
		}
		again, err := subjectOf(key)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := keyOf(again); err != nil || back != key {
			t.Fatalf("%q is %q, and that is %q: %v", subject, key, back, err)
		}
	})
}

func TestMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mark := topic.Mark{
			Base: rapid.Int64().Draw(t, "base"), Next: rapid.Int64().Draw(t, "next"), Epoch: rapid.Int32().Draw(t, "epoch"),
			MaxTimestamp: rapid.Int64().Draw(t, "timestamp"), Bytes: rapid.Int64().Draw(t, "bytes"), Released: rapid.Int64().Draw(t, "released"),
		}
		if back, err := decodeMark(encodeMark(mark)); err != nil || back != mark {
			t.Fatalf("%+v is %q, and that is %+v: %v", mark, encodeMark(mark), back, err)
		}
	})
	for _, wrong := range []string{"", "1", "1,2,3,4,5", "1,2,3,4,5,6,7", "1,2,3,4,5,", "1,2,3,4,5,x", "1,2,3000000000,4,5,6", "1 ,2,3,4,5,6"} {
		if mark, err := decodeMark(wrong); err == nil {
			t.Errorf("%q is %+v", wrong, mark)
		}
	}
}

func FuzzDecodeMark(f *testing.F) {
	f.Add("0,1,2,-1,4,5")
	f.Add("1,2,3,4,5")
	f.Fuzz(func(t *testing.T, value string) {
		mark, err := decodeMark(value)
		if err != nil {
			return
		}
		if back, err := decodeMark(encodeMark(mark)); err != nil || back != mark {
			t.Fatalf("%q is %+v, and that is %+v: %v", value, mark, back, err)
		}
	})
}

func TestAnswers(t *testing.T) {
	for data, want := range map[string]struct {
		sequence uint64
		err      error
	}{
		`{"stream":"log-a","seq":17}`:                                  {17, nil},
		`{"stream":"log-a", "seq": 17, "domain":"x"}`:                  {17, nil},
		`{"stream":"log-seq","seq":18446744073709551615}`:              {1<<64 - 1, nil},
		`{"error":{"err_code":10071,"description":"x"},"seq":0}`:       {0, topic.ErrFenced},
		`{"error":{"err_code":10023},"stream":"a","seq":0}`:            {0, topic.ErrFull},
		`{"error":{"err_code":10077,"description":"no room"}}`:         {0, topic.ErrFull},
		`{"error":{"err_code":10077,"description":"store is closed"}}`: {0, topic.ErrUncertain},
		`{"error":{"err_code":10059}}`:                                 {0, topic.ErrNoLog},
		`{"error":{"err_code":1}}`:                                     {0, topic.ErrUncertain},
		`{"stream":"a","seq":0}`:                                       {0, topic.ErrUncertain},
		`{"stream":"a","seq":-1}`:                                      {0, topic.ErrUncertain},
		`{"seq":`:                                                      {0, topic.ErrUncertain},
		``:                                                             {0, topic.ErrUncertain},
	} {
		sequence, err := parseAnswer(&nats.Msg{Data: []byte(data)})
		if sequence != want.sequence || !errors.Is(err, want.err) {
			t.Errorf("%s is %d, %v; want %d, %v", data, sequence, err, want.sequence, want.err)
		}
	}
	if _, err := parseAnswer(&nats.Msg{Header: nats.Header{"Status": []string{"503"}}}); !errors.Is(err, topic.ErrNoLog) {
		t.Errorf("no responders: %v", err)
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`{"stream":"log-a","seq":17}`))
	f.Add([]byte(`{"error":{"err_code":10071,"description":"x"},"seq":0}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		sequence, err := parseAnswer(&nats.Msg{Data: data})
		if (sequence == 0) == (err == nil) {
			t.Fatalf("%q is sequence %d, %v", data, sequence, err)
		}
	})
}

// TestQueue compares the queue with a slice.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		type item struct {
			number   uint64
			answered bool
			err      error
		}
		var model []item
		next := uint64(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				if number := q.push(underway{}); number != next {
					t.Fatalf("push returns %d, want %d", number, next)
				}
				model = append(model, item{number: next})
				next++
			},
			"answer": func(t *rapid.T) {
				number, err := rapid.Uint64Range(0, next+1).Draw(t, "number"), errors.New("x")
				q.answer(number, err)
				for i := range model {
					if model[i].number == number && !model[i].answered {
						model[i].answered, model[i].err = true, err
					}
				}
			},
			"pop": func(t *rapid.T) {
				got, number, ok := q.pop()
				if want := len(model) > 0 && model[0].answered; ok != want {
					t.Fatalf("pop returns %v, want %v", ok, want)
				}
				if ok {
					if number != model[0].number || !errors.Is(got.err, model[0].err) {
						t.Fatalf("pop returns %d, %v; want %+v", number, got.err, model[0])
					}
					model = model[1:]
				}
			},
			"": func(t *rapid.T) {
				if q.empty() != (len(model) == 0) || q.next() != next {
					t.Fatalf("empty is %v, next is %d; want %d items, %d", q.empty(), q.next(), len(model), next)
				}
			},
		})
	})
}
