package natsstore

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
	"github.com/sluice-project/sluice/topic"
)

// TestChanges checks that an entry's changes are read as written, and that no prefix of it is
// read as other changes.
func TestChanges(t *testing.T) {
	defer rapidtest.Checks(100, 1000)()
	rapid.Check(t, func(t *rapid.T) {
		head := changesHead{From: rapid.Uint64().Draw(t, "from"), Bytes: rapid.Uint64().Draw(t, "bytes")}
		changes := rapid.SliceOfN(rapid.Custom(drawChange), 0, 8).Draw(t, "changes")
		data := appendHead(nil, head)
		ends := map[int]int{len(data): 0}
		for i, change := range changes {
			data = appendChange(data, change)
			ends[len(data)] = i + 1
		}
		for cut := range len(data) + 1 {
			n := 0
			got, err := readChanges(data[:cut], func(change stored) {
				if want := changes[n]; !same(change, want) {
					t.Fatalf("change %d is %+v, want %+v", n, change, want)
				}
				n++
			})
			if want, whole := ends[cut]; whole != (err == nil) || whole && (n != want || got != head) {
				t.Fatalf("%d of %d bytes: %d changes, head %+v, %v", cut, len(data), n, got, err)
			}
		}
	})
}

func drawChange(t *rapid.T) stored {
	key := string(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "key"))
	if rapid.Bool().Draw(t, "delete") {
		return stored{Key: key, Delete: true}
	}
	return stored{Key: key, Value: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "value"), Revision: rapid.Uint64().Draw(t, "revision")}
}

func same(a, b stored) bool {
	return a.Key == b.Key && a.Delete == b.Delete && a.Revision == b.Revision && string(a.Value) == string(b.Value)
}

func FuzzReadChanges(f *testing.F) {
	f.Add(appendChange(appendHead(nil, changesHead{From: 3, Bytes: 400}), stored{Key: "a/b", Value: []byte("value")}))
	f.Add(appendChange(appendHead(nil, changesHead{From: 1}), stored{Key: "a", Delete: true}))
	f.Add([]byte{metaFormat, 1, 0, changePut, 0xff, 0xff, 0xff, 0xff, 0x7f})
	f.Add([]byte{2, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var changes []stored
		head, err := readChanges(data, func(change stored) { changes = append(changes, change) })
		if err != nil {
			if !errors.Is(err, errChanges) {
				t.Fatal(err)
			}
			return
		}
		again := appendHead(nil, head)
		for _, change := range changes {
			again = appendChange(again, change)
		}
		n := 0
		if back, err := readChanges(again, func(change stored) {
			if !same(change, changes[n]) {
				t.Fatalf("change %d is %+v, want %+v", n, change, changes[n])
			}
			n++
		}); err != nil || back != head || n != len(changes) {
			t.Fatalf("%x is %+v with %d changes, and that is %+v with %d: %v", data, head, len(changes), back, n, err)
		}
	})
}

func TestMarks(t *testing.T) {
	defer rapidtest.Checks(100, 1000)()
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
	defer rapidtest.Checks(100, 1000)()
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
				if number := q.push(pendingAppend{}); number != next {
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
