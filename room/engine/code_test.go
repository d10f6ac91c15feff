package engine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
)

var codeLives = rapid.Int64Range(1, int64(MaxCodeLife/time.Hour))

// A code is read as it was made, in any way that people type it, and until the end of its hour; another with one
// letter changed is not, nor in another room.
func TestCodesAreRead(t *testing.T) {
	now := time.Date(2026, 11, 27, 10, 30, 0, 0, time.UTC)
	shop := &Room{Generation: "11", CodeKey: []byte(strings.Repeat("k", codeKeySize)), Settings: room.Settings{Codes: true}}
	others := []*Room{
		{Generation: "12", CodeKey: shop.CodeKey, Settings: shop.Settings},
		{Generation: "11", CodeKey: []byte(strings.Repeat("K", codeKeySize)), Settings: shop.Settings},
		{Generation: "11", CodeKey: shop.CodeKey},
		{Generation: "11", Settings: shop.Settings},
	}
	rapid.Check(t, func(t *rapid.T) {
		until := now.Truncate(time.Hour).Add(time.Duration(codeLives.Draw(t, "hours")) * time.Hour)
		made := code{rapid.IntRange(0, room.MaxLanes-1).Draw(t, "lane"), until, rapid.Uint64Range(0, 1<<serialBits-1).Draw(t, "serial")}
		text := shop.signCode(made)
		typed := rapid.SampledFrom([]func(string) string{
			func(s string) string { return s },
			strings.ToLower,
			func(s string) string { return " " + strings.ReplaceAll(s, "-", " ") },
			strings.NewReplacer("-", "", "0", "o", "1", "l").Replace,
			strings.NewReplacer("1", "I", "0", "O").Replace,
		}).Draw(t, "typed")(text)
		for _, at := range []time.Time{now, until.Add(-time.Nanosecond)} {
			if got, err := shop.readCode(typed, at); err != nil || got.lane != made.lane || got.serial != made.serial || !got.until.Equal(until) {
				t.Fatalf("%q is %+v %v, want %+v", typed, got, err, made)
			}
		}
		if _, err := shop.readCode(text, until); !errors.Is(err, ErrBadCode) || !strings.Contains(err.Error(), "until") {
			t.Fatalf("after its end: %v", err)
		}
		for _, other := range others {
			if _, err := other.readCode(text, now); !errors.Is(err, ErrBadCode) {
				t.Fatalf("in another room: %v", err)
			}
		}
		changed := []byte(strings.ReplaceAll(text, "-", ""))
		at := rapid.IntRange(0, len(changed)-1).Draw(t, "changed")
		changed[at] = codeLetters[(strings.IndexByte(codeLetters, changed[at])+rapid.IntRange(1, 31).Draw(t, "by"))%32]
		if _, err := shop.readCode(string(changed), now); !errors.Is(err, ErrBadCode) {
			t.Fatalf("%q is made of %q, and its error is %v", changed, text, err)
		}
	})
}

func FuzzCode(f *testing.F) {
	shop := &Room{Generation: "11", CodeKey: []byte(strings.Repeat("k", codeKeySize)), Settings: room.Settings{Codes: true}}
	now := codeEpoch
	f.Add(shop.signCode(code{1, now.Add(time.Hour), 7}))
	f.Add("")
	f.Add(strings.Repeat("-", maxCodeText+1))
	f.Fuzz(func(t *testing.T, text string) {
		c, err := shop.readCode(text, now)
		if err != nil {
			return
		}
		if again, err := shop.readCode(shop.signCode(c), now); err != nil || again != c {
			t.Errorf("%q is %+v, and that is %+v %v", text, c, again, err)
		}
	})
}
