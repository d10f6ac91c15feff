package engine

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
)

func drawTicket(t *rapid.T) Ticket {
	ticket := Ticket{Number: rapid.Int64().Draw(t, "number"), Proven: rapid.Bool().Draw(t, "proven")}
	copy(ticket.Nonce[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "nonce"))
	if rapid.Bool().Draw(t, "bound") {
		copy(ticket.Client[:], rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "client"))
	}
	return ticket
}

func TestTicketRoundTrip(t *testing.T) {
	r := testRoom("shop", "generation")
	old, both := testRing(t, testKey(1)), testRing(t, testKey(1), testKey(2))
	rapid.Check(t, func(t *rapid.T) {
		ticket := drawTicket(t)
		for _, ring := range []*Keyring{old, both} {
			text := ring.SignTicket(r, ticket)
			if got, err := both.ParseTicket(r, text); err != nil || got != ticket {
				t.Fatalf("%+v became %+v, %v", ticket, got, err)
			}
			if again := ring.SignTicket(r, ticket); again != text {
				t.Fatalf("signed twice it is %s and %s", text, again)
			}
			if len(text) > 55 {
				t.Fatalf("%s has %d bytes", text, len(text))
			}
		}
	})
}

// The format of tickets does not change: visitors hold them.
func TestTicketForm(t *testing.T) {
	ring, r := testRing(t, testKey(1)), testRoom("shop", "generation")
	ticket := Ticket{Number: 258, Nonce: [8]byte{1, 2, 3, 4, 5, 6, 7, 8}}
	text := ring.SignTicket(r, ticket)
	if want := "AavNAAEAAAAAAAABAgECAwQFBgcIyCaxHcdf2DOlvSfQXz2Lug"; text != want {
		t.Errorf("it is %s, want %s", text, want)
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != 37 || raw[0] != 1 || binary.BigEndian.Uint32(raw[1:]) != 0xabcd0001 ||
		binary.BigEndian.Uint64(raw[5:]) != 258 || [8]byte(raw[13:]) != ticket.Nonce {
		t.Errorf("it is %x, %v", raw, err)
	}
}

func TestTicketRefused(t *testing.T) {
	ring, r := testRing(t, testKey(1), testKey(2)), testRoom("shop", "generation")
	ticket := Ticket{Number: 5, Nonce: [8]byte{1}, Client: [4]byte{2}}
	text := ring.SignTicket(r, ticket)
	bare := ring.SignTicket(r, Ticket{Number: 5, Nonce: [8]byte{1}})
	raw, _ := base64.RawURLEncoding.DecodeString(text)
	newer := append([]byte{ticketProven + 1}, raw[1:ticketBody]...)
	newer = append(newer, ring.newest.macs.New().(*ticketMAC).over(r, newer)...)
	without := append(append([]byte(nil), raw[:ticketBody]...), raw[ticketBound:]...)
	for name, test := range map[string]struct {
		ring *Keyring
		room *Room
		text string
	}{
		"another room":               {ring, testRoom("shops", "generation"), text},
		"the room made again":        {ring, testRoom("shop", "generation2"), text},
		"name and generation moved":  {ring, testRoom("shopg", "eneration"), text},
		"an unknown key":             {testRing(t, testKey(1)), r, text},
		"a key of the same ID":       {testRing(t, testKey(1), room.SigningKey{ID: testKey(2).ID, Secret: testKey(3).Secret}), r, text},
		"empty":                      {ring, r, ""},
		"not base64":                 {ring, r, strings.Repeat("!", len(text))},
		"padded":                     {ring, r, bare + "=="},
		"with a line end":            {ring, r, bare + "\n"},
		"with line ends to the most": {ring, r, bare + "\n\r\n\r\n"},
		"longer":                     {ring, r, text + "A"},
		"much longer":                {ring, r, strings.Repeat(text, 1000)},
		"another version":            {ring, r, base64.RawURLEncoding.EncodeToString(newer)},
		"without the client":         {ring, r, base64.RawURLEncoding.EncodeToString(without)},
		"another letter at the end":  {ring, r, bare[:len(bare)-1] + string(bare[len(bare)-1]+1)},
	} {
		if got, err := test.ring.ParseTicket(test.room, test.text); !errors.Is(err, ErrBadTicket) || got != (Ticket{}) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := ring.ParseTicket(r, text); err != nil || got != ticket {
		t.Errorf("the ticket itself: %+v, %v", got, err)
	}
}

// A part of a ticket, or a ticket with one changed bit, is refused.
func TestTicketForged(t *testing.T) {
	ring, r := testRing(t, testKey(1)), testRoom("shop", "generation")
	for _, ticket := range []Ticket{{Number: 5, Nonce: [8]byte{1}}, {Number: 5, Nonce: [8]byte{1}, Client: [4]byte{2}}} {
		text := ring.SignTicket(r, ticket)
		refuse := func(forged string) {
			t.Helper()
			if _, err := ring.ParseTicket(r, forged); !errors.Is(err, ErrBadTicket) {
				t.Errorf("%q, made of %q: %v", forged, text, err)
			}
		}
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		for bit := range len(raw) * 8 {
			raw[bit/8] ^= 1 << (bit % 8)
			refuse(base64.RawURLEncoding.EncodeToString(raw))
			raw[bit/8] ^= 1 << (bit % 8)
		}
		for bit := range len(text) * 8 {
			forged := []byte(text)
			forged[bit/8] ^= 1 << (bit % 8)
			refuse(string(forged))
		}
		for length := range len(text) {
			refuse(text[:length])
			refuse(text[length+1:])
		}
		for length := range len(raw) {
			refuse(base64.RawURLEncoding.EncodeToString(raw[:length]))
		}
	}
}

// A ring is safe for concurrent use.
func TestTicketAtOnce(t *testing.T) {
	old := testRing(t, testKey(1))
	ring, r := testRing(t, testKey(1), testKey(2)), testRoom("shop", "generation")
	var group sync.WaitGroup
	for worker := range int64(8) {
		group.Go(func() {
			for n := range int64(500) {
				ticket := Ticket{Number: worker<<32 | n}
				for _, signer := range []*Keyring{old, ring} {
					if got, err := ring.ParseTicket(r, signer.SignTicket(r, ticket)); err != nil || got != ticket {
						t.Errorf("%+v became %+v, %v", ticket, got, err)
					}
				}
			}
		})
	}
	group.Wait()
}

func FuzzParseTicket(f *testing.F) {
	ring, r := testRing(f, testKey(1)), testRoom("shop", "generation")
	f.Add(ring.SignTicket(r, Ticket{Number: 1}))
	f.Add(ring.SignTicket(r, Ticket{Number: math.MaxInt64, Nonce: [8]byte{255}, Client: [4]byte{1}}))
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ring.ParseTicket(r, text)
		if err == nil && ring.SignTicket(r, got) != text {
			t.Fatalf("%q is %+v, which is %q", text, got, ring.SignTicket(r, got))
		}
		if err != nil && !errors.Is(err, ErrBadTicket) {
			t.Fatal(err)
		}
	})
}

func BenchmarkSignTicket(b *testing.B) {
	ring, r := testRing(b, testKey(1)), testRoom("black-friday", "0123456789abcdef0123456789abcdef")
	b.ReportAllocs()
	for b.Loop() {
		ring.SignTicket(r, Ticket{Number: 123456})
	}
}

func BenchmarkParseTicket(b *testing.B) {
	ring, r := testRing(b, testKey(1)), testRoom("black-friday", "0123456789abcdef0123456789abcdef")
	text := ring.SignTicket(r, Ticket{Number: 123456})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ring.ParseTicket(r, text); err != nil {
			b.Fatal(err)
		}
	}
}
