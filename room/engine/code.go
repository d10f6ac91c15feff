package engine

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-project/sluice/room"
)

// A code is a place that a shop gives away on paper: twenty letters and digits that whoever types them
// enters with, in the code's lane. Nothing is stored for it: it carries its lane and its end, and is
// signed with the room's CodeKey. Its serial number is the visitor's key, so that a code has one
// place at a time.
//
//	 12 characters                          8 characters
//	┌─────────┬──────────────┬───────────┐ ┌───────────────────────────┐
//	│ lane: 3 │ hours: 19    │ serial: 38│ │ HMAC-SHA256, cut: 40 bits │
//	└─────────┴──────────────┴───────────┘ └───────────────────────────┘
//
// Hours count from 2000. One guess in 2^40 is right: at 600 joins a minute from each of 1,000 addresses, that
// is one in 3.5 years.
type code struct {
	lane   int
	until  time.Time
	serial uint64
}

const (
	// MaxCodes is how many codes one call makes.
	MaxCodes = 10_000
	// MaxCodeLife is how far ahead the end of a code may be.
	MaxCodeLife = 366 * 24 * time.Hour

	codeKeySize                = 32
	codeHourBits, serialBits   = 19, 38
	codeMACBits                = 40
	payloadLetters, macLetters = 12, 8
	// maxCodeText bounds what is read as a code, with dashes and spaces.
	maxCodeText = 64
)

// codeEpoch is where the hours of codes begin.
var codeEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// codeLetters are Crockford's: without I, L, O and U.
const codeLetters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// ErrBadCode: the code is not valid in this room.
var ErrBadCode = errors.New("the code is not valid here")

// MakeCodes returns so many new codes of a room, 1 to MaxCodes, for a lane ("": the last), which are valid until
// the end of the hour that has that time, at most MaxCodeLife ahead. A wrong order is a *SettingsError. The codes
// are not stored.
func (e *Engine) MakeCodes(ctx context.Context, name, lane string, count int, until time.Time) ([]string, error) {
	op, err := e.begin(ctx, name)
	if err != nil {
		return nil, err
	}
	s := &op.room.Settings
	number := s.LaneNumber(lane)
	switch {
	case !s.Codes:
		return nil, &room.SettingsError{Field: "codes", Why: "is false in this room: put its settings with codes=true"}
	case count < 1 || count > MaxCodes:
		return nil, &room.SettingsError{Field: "count", Why: fmt.Sprintf("is %d; give 1 to 10,000", count)}
	case lane != "" && s.LaneName(number) != lane:
		return nil, &room.SettingsError{Field: "lane", Why: fmt.Sprintf("%.64q is none of this room; its lanes are %s", lane, s.Lanes)}
	case !until.After(op.now) || until.After(op.now.Add(MaxCodeLife)):
		return nil, &room.SettingsError{Field: "until", Why: "is not within the next 366 days"}
	}
	codes := make([]string, count)
	for i := range codes {
		var serial [8]byte
		if _, err := rand.Read(serial[3:]); err != nil {
			return nil, err
		}
		codes[i] = op.room.signCode(code{number, until, binary.BigEndian.Uint64(serial[:]) & (1<<serialBits - 1)})
	}
	return codes, nil
}

// RevokeCodes makes all codes of a room void that were made before. Places that visitors have by
// them stay.
func (e *Engine) RevokeCodes(ctx context.Context, name string) error {
	_, err := e.changeExisting(ctx, name, func(r *Room) { r.CodeKey = room.NewSeed() })
	return err
}

// signCode returns the text of a code, in groups of four.
func (r *Room) signCode(c code) string {
	letters := appendLetters(nil, c.payload(), payloadLetters)
	letters = appendLetters(letters, r.codeMAC(c.payload()), macLetters)
	var text strings.Builder
	for i, letter := range letters {
		if i > 0 && i%4 == 0 {
			text.WriteByte('-')
		}
		text.WriteByte(letter)
	}
	return text.String()
}

// readCode returns a code of this room that is valid at now; else an ErrBadCode that says why.
func (r *Room) readCode(text string, now time.Time) (code, error) {
	if !r.Settings.Codes || len(r.CodeKey) == 0 {
		return code{}, fmt.Errorf("%w: the room has no codes", ErrBadCode)
	}
	payload, mac, ok := parseLetters(text)
	if !ok || !hmac.Equal(binary.BigEndian.AppendUint64(nil, mac), binary.BigEndian.AppendUint64(nil, r.codeMAC(payload))) {
		return code{}, fmt.Errorf("%w: it is mistyped, or of another room", ErrBadCode)
	}
	hours := payload >> serialBits & (1<<codeHourBits - 1)
	c := code{int(payload >> (codeHourBits + serialBits)), codeEpoch.Add(time.Duration(hours) * time.Hour), payload & (1<<serialBits - 1)}
	if !now.Before(c.until) {
		return code{}, fmt.Errorf("%w: it was valid until %s", ErrBadCode, c.until.Format(time.RFC3339))
	}
	return c, nil
}

func (c code) payload() uint64 {
	hours := uint64((c.until.Sub(codeEpoch) + time.Hour - 1) / time.Hour)
	return uint64(c.lane)<<(codeHourBits+serialBits) | hours<<serialBits | c.serial
}

// visitorKey is the key of whoever has the code: its first three groups.
func (c code) visitorKey() string {
	return "code:" + string(appendLetters(nil, c.payload(), payloadLetters))
}

func (r *Room) codeMAC(payload uint64) uint64 {
	mac := hmac.New(sha256.New, r.CodeKey)
	mac.Write(append([]byte("sluice room code 1\x00"), r.Generation...))
	mac.Write(binary.BigEndian.AppendUint64(nil, payload))
	return binary.BigEndian.Uint64(mac.Sum(nil)) >> (64 - codeMACBits)
}

func appendLetters(to []byte, value uint64, letters int) []byte {
	for i := letters - 1; i >= 0; i-- {
		to = append(to, codeLetters[value>>(5*i)&31])
	}
	return to
}

// parseLetters reads a code as people type it: in any case, with dashes and spaces, and with O for 0,
// and I or L for 1.
func parseLetters(text string) (payload, mac uint64, ok bool) {
	if len(text) > maxCodeText {
		return 0, 0, false
	}
	text = strings.NewReplacer("-", "", " ", "", "O", "0", "I", "1", "L", "1").Replace(strings.ToUpper(text))
	if len(text) != payloadLetters+macLetters {
		return 0, 0, false
	}
	for i := range len(text) {
		digit := strings.IndexByte(codeLetters, text[i])
		if digit < 0 {
			return 0, 0, false
		}
		if i < payloadLetters {
			payload = payload<<5 | uint64(digit)
		} else {
			mac = mac<<5 | uint64(digit)
		}
	}
	return payload, mac, true
}
