package engine

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-project/sluice/room"
)

// Puzzle is work that a visitor's browser does before the visitor may join: a search for
// [PuzzleParts] numbers. Number i, from 0, is found when
//
//	SHA-256(SHA-256(the puzzle's text) │ i, 4 bytes │ the number, 4 bytes)
//
// begins with Bits - 4 zero bits, with numbers big-endian. So all of them take about 2^Bits hashes,
// and many small searches take more even times than a large one. As text it is base64url without
// padding of
//
//	80, 1 byte │ key ID, 4 │ bits, 1 │ made, in seconds since the epoch, 4 │ nonce, 8 │ client, 4 │ MAC, 16
//
// with the MAC of tickets, whose first byte is another: so a puzzle holds in its room only.
type Puzzle struct {
	Bits   int
	Made   time.Time
	Nonce  [8]byte
	Client [4]byte // the ClientHash of the address that it was given to
}

const (
	// PuzzleParts is how many numbers solve a puzzle.
	PuzzleParts = 16
	// PuzzleTime is how long a puzzle may be solved.
	PuzzleTime = 2 * time.Minute
	// MinPuzzleBits is how easy a puzzle may be.
	MinPuzzleBits = 8
	// MaxPuzzleBits is how hard a puzzle may be: a quarter of a billion hashes.
	MaxPuzzleBits = 28
	// DefaultMinPuzzleBits is where no more visitors join than the room lets in. The script of
	// the waiting page makes about a million hashes a second on a desktop, and a tenth of that
	// on a slow phone.
	DefaultMinPuzzleBits = 14
	// DefaultMaxPuzzleBits is the most that puzzles become, however many join.
	DefaultMaxPuzzleBits = 19
	// maxProof is the most bytes of a proof.
	maxProof = PuzzleParts * len("4294967295.")

	puzzleParts   = 4 // PuzzleParts in bits
	puzzleVersion = 80
	puzzleBody    = 1 + 4 + 1 + 4 + 8 + 4
)

// SignPuzzle signs a puzzle of a room and returns it as text, of 51 bytes.
func (k *Keyring) SignPuzzle(r *Room, p Puzzle) string {
	mac := k.newest.macs.Get().(*ticketMAC)
	defer k.newest.macs.Put(mac)
	body := binary.BigEndian.AppendUint32(append(mac.body[:0], puzzleVersion), k.newest.id)
	body = binary.BigEndian.AppendUint32(append(body, byte(p.Bits)), uint32(p.Made.Unix()))
	body = append(append(body, p.Nonce[:]...), p.Client[:]...)
	return ticketText.EncodeToString(append(body, mac.over(r, body)...))
}

// ParsePuzzle returns the puzzle of a text, if it is of the room and a key of the ring signed it;
// otherwise ok is false. It checks neither the client nor the time.
func (k *Keyring) ParsePuzzle(r *Room, text string) (p Puzzle, ok bool) {
	raw, err := ticketText.DecodeString(text)
	if err != nil || len(raw) != puzzleBody+ticketMACSize || len(text) != base64.RawURLEncoding.EncodedLen(len(raw)) || raw[0] != puzzleVersion {
		return Puzzle{}, false
	}
	key := k.keys[binary.BigEndian.Uint32(raw[1:])]
	if key == nil {
		return Puzzle{}, false
	}
	mac := key.macs.Get().(*ticketMAC)
	defer key.macs.Put(mac)
	if !hmac.Equal(mac.over(r, raw[:puzzleBody]), raw[puzzleBody:]) {
		return Puzzle{}, false
	}
	return Puzzle{
		Bits: int(raw[5]), Made: time.Unix(int64(binary.BigEndian.Uint32(raw[6:])), 0),
		Nonce: [8]byte(raw[10:]), Client: [4]byte(raw[18:]),
	}, true
}

// proves reports whether a proof solves a puzzle of so many bits: the numbers in decimal, with "."
// between them.
func proves(puzzle string, bits int, proof string) bool {
	if len(proof) >= maxProof || strings.Count(proof, ".") != PuzzleParts-1 {
		return false
	}
	seed, part := sha256.Sum256([]byte(puzzle)), uint32(0)
	for number := range strings.SplitSeq(proof, ".") {
		n, err := strconv.ParseUint(number, 10, 32)
		if err != nil || puzzleZeros(seed[:], part, uint32(n)) < bits-puzzleParts {
			return false
		}
		part++
	}
	return true
}

// puzzleZeros returns with how many zero bits the hash of a number begins, of the first 64.
func puzzleZeros(seed []byte, part, number uint32) int {
	hash := sha256.Sum256(binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(slices.Clip(seed), part), number))
	return bits.LeadingZeros64(binary.BigEndian.Uint64(hash[:]))
}

// puzzleBits returns how hard a puzzle is: least where the room lets in as many as join, and a bit
// more, which is twice the work, each time that twice as many join; at most most. Both are visitors
// a second.
func puzzleBits(join, letIn float64, least, most int) int {
	if join <= letIn {
		return least
	}
	return int(math.Round(math.Min(float64(least)+math.Log2(join/letIn), float64(most))))
}

// pressure returns how many visitors a second have joined lately, and how many the room lets in: as
// many as slots became free, and at least what it would with visits of the whole length.
func pressure(r *Room, f Flow) (join, letIn float64) {
	over := max(f.Over, outflowAtLeast).Seconds()
	every := r.Settings.PassTTL
	if r.Settings.Mode == room.Park {
		every = r.Settings.Interval
	}
	return float64(f.Entered) / over, max(float64(f.freed())/over, float64(r.Limit())/every.Seconds())
}

// Puzzle returns a puzzle for a visitor who wants to join, with least to most bits by how many join
// a room.
func (e *Engine) Puzzle(ctx context.Context, name string, client netip.Addr, least, most int) (text string, bits int, err error) {
	op, err := e.begin(ctx, name)
	if err != nil {
		return "", 0, err
	}
	var flow Flow
	if m := op.cached.measured.Load(); m != nil && op.now.Sub(m.status.Now) < outflowSpan { // an empty room is not counted
		flow = m.flow
	}
	join, letIn := pressure(op.room, flow)
	puzzle := Puzzle{Bits: puzzleBits(join, letIn, least, most), Made: op.now, Client: ClientHash(client)}
	_, _ = rand.Read(puzzle.Nonce[:]) // as in NewSeed
	return op.ring.SignPuzzle(op.room, puzzle), puzzle.Bits, nil
}

// Solved reports whether a proof solves a puzzle that an engine on this store has given to the
// client in that room within the last [PuzzleTime]. It does so once for each puzzle, at this engine.
func (e *Engine) Solved(ctx context.Context, name string, client netip.Addr, puzzle, proof string) (bool, error) {
	op, err := e.begin(ctx, name)
	if err != nil {
		return false, err
	}
	p, ok := op.ring.ParsePuzzle(op.room, puzzle)
	if !ok || p.Client != ClientHash(client) || op.now.Sub(p.Made) > PuzzleTime || !proves(puzzle, p.Bits, proof) {
		return false, nil
	}
	return e.solved.add(p.Nonce), nil
}

// maxSolved is how many solved puzzles an engine remembers, of some 150 bytes each. With more than
// these within PuzzleTime, the oldest may be shown again.
const maxSolved = 100_000

// solvedPuzzles are those that were solved lately. It is safe for concurrent use.
type solvedPuzzles struct {
	mu   sync.Mutex
	seen lru[[8]byte, struct{}]
}

func newSolvedPuzzles(limit int) *solvedPuzzles {
	return &solvedPuzzles{seen: newLRU[[8]byte, struct{}](limit)}
}

// add reports whether a puzzle was not solved before.
func (s *solvedPuzzles) add(nonce [8]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen.get(nonce) != nil {
		return false
	}
	s.seen.getOrAdd(nonce)
	return true
}
