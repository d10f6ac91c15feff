package engine

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash"

	"github.com/sluice-project/sluice/room"
)

// Ticket is a place in line. As text it is base64url without padding of
//
//	version, 1 byte │ key ID, 4 │ number, 8 │ nonce, 8 │ client, 0 or 4 │ MAC, 16
//
// with numbers big-endian, and version 1, or 2 if the visitor is Proven. The MAC is HMAC-SHA256 by the key of that ID,
// cut to 16 bytes, over all before it, the length of the room's name in a byte, the name
// and the room's generation: so a ticket holds in its room only.
type Ticket struct {
	// Number is the visitor's in the room.
	Number int64
	// Nonce decides the visitor's place in a lottery, and is different in each ticket.
	Nonce [8]byte
	// Client is the ClientHash of the address that the ticket is bound to; zero: it is
	// bound to none.
	Client [4]byte
	// Proven reports whether the visitor has passed a challenge.
	Proven bool

	// generation is that of the room for which Engine.Parse accepted the ticket; empty if
	// Engine.Parse did not. It is not part of the text.
	generation string
}

// of reports whether a ticket that was parsed earlier is one of the room as it is now,
// and not of an earlier one of its name.
func (t *Ticket) of(r *Room) bool { return t.generation == "" || t.generation == r.Generation }

// fingerprint returns the fingerprint of a ticket, which its nonce alone decides.
func (t *Ticket) fingerprint() room.Fingerprint {
	return max(1, room.Fingerprint(binary.BigEndian.Uint16(t.Nonce[:])))
}

// pass returns what the passes of a ticket's visitor have of it.
func (t *Ticket) pass() Pass { return Pass{Client: t.Client, Fingerprint: t.fingerprint()} }

func (t *Ticket) bearer() room.Bearer {
	return room.Bearer{Number: t.Number, Fingerprint: t.fingerprint()}
}

// ErrBadTicket: the ticket is not one of this room, or no key of the ring signed it.
var ErrBadTicket = errors.New("the ticket is not valid in this room")

const (
	ticketVersion  = 1
	ticketProven   = 2
	ticketMACSize  = 16
	ticketBody     = 1 + 4 + 8 + 8
	ticketBound    = ticketBody + 4
	maxTicketBytes = ticketBound + ticketMACSize
	maxTicketText  = (maxTicketBytes*8 + 5) / 6
)

// ticketText is strict about the unused bits of the last letter: a ticket has one form.
var ticketText = base64.RawURLEncoding.Strict()

// ticketMAC is a reusable HMAC with its buffers.
type ticketMAC struct {
	hash hash.Hash
	body [maxTicketBytes]byte
	text [maxTicketText]byte
	room []byte
	sum  []byte
}

// over returns the MAC of a body in a room.
func (m *ticketMAC) over(r *Room, body []byte) []byte {
	m.room = append(append(append(m.room[:0], byte(len(r.Name))), r.Name...), r.Generation...)
	m.hash.Reset()
	m.hash.Write(body)
	m.hash.Write(m.room)
	m.sum = m.hash.Sum(m.sum[:0])
	return m.sum[:ticketMACSize]
}

// SignTicket signs a ticket of a room and returns it as text, of at most 55 bytes.
func (k *Keyring) SignTicket(r *Room, t Ticket) string {
	mac := k.newest.macs.Get().(*ticketMAC)
	defer k.newest.macs.Put(mac)
	body := append(mac.body[:0], ticketVersion)
	if t.Proven {
		body[0] = ticketProven
	}
	body = binary.BigEndian.AppendUint32(body, k.newest.id)
	body = binary.BigEndian.AppendUint64(body, uint64(t.Number))
	body = append(body, t.Nonce[:]...)
	if t.Client != [4]byte{} {
		body = append(body, t.Client[:]...)
	}
	body = append(body, mac.over(r, body)...)
	text := mac.text[:ticketText.EncodedLen(len(body))]
	ticketText.Encode(text, body)
	return string(text)
}

// ParseTicket returns the ticket of a text, if it is of the room and a key of the ring
// signed it; otherwise ErrBadTicket. It does not check the client.
func (k *Keyring) ParseTicket(r *Room, text string) (Ticket, error) {
	if len(text) > maxTicketText {
		return Ticket{}, ErrBadTicket
	}
	// The buffers of the newest key: the ticket's own key is known only later.
	space := k.newest.macs.Get().(*ticketMAC)
	defer k.newest.macs.Put(space)
	n, err := ticketText.Decode(space.body[:], append(space.text[:0], text...))
	body := space.body[:max(n-ticketMACSize, 0)]
	// The decoder skips line ends.
	if err != nil || len(text) != ticketText.EncodedLen(n) || len(body) != ticketBody && len(body) != ticketBound ||
		body[0] != ticketVersion && body[0] != ticketProven {
		return Ticket{}, ErrBadTicket
	}
	key := k.keys[binary.BigEndian.Uint32(body[1:])]
	if key == nil {
		return Ticket{}, ErrBadTicket
	}
	mac := space
	if key != k.newest {
		mac = key.macs.Get().(*ticketMAC)
		defer key.macs.Put(mac)
	}
	if !hmac.Equal(mac.over(r, body), space.body[len(body):n]) {
		return Ticket{}, ErrBadTicket
	}
	t := Ticket{Number: int64(binary.BigEndian.Uint64(body[5:])), Nonce: [8]byte(body[13:ticketBody])}
	copy(t.Client[:], body[ticketBody:])
	t.Proven = body[0] == ticketProven
	return t, nil
}

// newestSigned reports whether the newest key signed a ticket, which ParseTicket accepts.
func (k *Keyring) newestSigned(text string) bool {
	const letters = 8 // of the version, the key's ID and a byte of the number
	var head [letters * 6 / 8]byte
	if len(text) < letters {
		return false
	}
	_, err := ticketText.Decode(head[:], []byte(text[:letters]))
	return err == nil && binary.BigEndian.Uint32(head[1:]) == k.newest.id
}
