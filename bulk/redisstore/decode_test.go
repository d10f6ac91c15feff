package redisstore

import (
	"fmt"
	"testing"
)

// FuzzDecodeOutcome checks that any stored bytes are decoded without a panic, and that a
// prefix is refused or decoded as less.
func FuzzDecodeOutcome(f *testing.F) {
	f.Add("\x00\x00\x00\x07\x01\x00\x02\x40\x8f\x40\x00\x00\x00\x00\x00\x00\x00\x00\x03[1]why")
	f.Add("\x00\x00\x00\x07\x01\x00\x02\x7f\xf0\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff")
	f.Fuzz(func(t *testing.T, text string) {
		o, err := decodeOutcome(text)
		if err == nil && 19+len(o.Values)+len(o.Error) != len(text) {
			t.Errorf("%d bytes are read as %d of values and %d of an error", len(text), len(o.Values), len(o.Error))
		}
	})
}

func FuzzDecodeDead(f *testing.F) {
	f.Add("\x00\x02\x42\x79\x00\x00\x00\x00\x00\x00\x00\x00\x00\x03why{\"n\":1}")
	f.Add("\x00\x02\x7f\xf8\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := decodeDead(text)
		if err == nil && 14+len(d.Error)+len(d.Payload) != len(text) {
			t.Errorf("%d bytes are read as %d of an error and %d of a payload", len(text), len(d.Error), len(d.Payload))
		}
	})
}

func FuzzDecodeEvent(f *testing.F) {
	f.Add("1 1795294609000 job \x00\x00\x00\x07\x01\x00\x02\x00\x00\x00\x01\x00\x00\x00\x01at\x00\x00\x00\x03{}1")
	f.Add("1 1795294609000 job \x00\x00\x00\x07\x01\x00\x02\xff\xff\xff\xff\x00\x00\x00\x01at")
	f.Add(`2 1795294609000 io.sluice.bulk.action.created {"number":"1024","action":{"id":"a"},"spec":"{\"id\":\"a\",\"tenant\":\"t\",\"type\":\"echo\"}"}`)
	f.Add(`3 -1 io.sluice.bulk.action.completed {"action":{},"spec":"{}","result":"{\"count\":1}"}`)
	s := &Store{id: "store"}
	f.Fuzz(func(t *testing.T, text string) {
		n, event, err := s.decodeEvent(3, text)
		if err == nil && event.ID != fmt.Sprint("store-3-", n) {
			t.Errorf("event %d has the id %s", n, event.ID)
		}
	})
}

func FuzzDecodeStored(f *testing.F) {
	f.Add(`{"id":"a","tenant":"t","status":"RUNNING","received":5,"next":3}`, `{"id":"a","tenant":"t","type":"echo"}`, "partial", `{"count":1}`)
	f.Add(`{"received":-1,"next":9e99}`, "[]", "", "null")
	f.Fuzz(func(t *testing.T, record, spec, partial, result string) {
		st, err := decodeStored(1024, 1795294609000, [4]string{record, spec, partial, result})
		if err == nil && (st.number != 1024 || string(st.action.Partial) != partial || st.action.Received != st.record.Received) {
			t.Errorf("stored is %+v", st)
		}
	})
}
