package redisstore

import "testing"

func FuzzEntry(f *testing.F) {
	f.Add("12 3 {}")
	f.Add("12 3")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parseEntry(text)
		if err == nil && e.revision+" "+e.birth+" "+e.data != text {
			t.Errorf("%q is read as %+v", text, e)
		}
	})
}
