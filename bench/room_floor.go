package bench

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/redis/rueidis"
)

// floorVariable is set, to an address, a store and how many wait, for the process that startFloor starts.
const floorVariable = "SLUICE_BENCH_FLOOR"

// floorProcess is BareProcess for floors.
func floorProcess() {
	var address, state string
	var waiting int64
	if n, _ := fmt.Sscan(os.Getenv(floorVariable), &address, &state, &waiting); n < 3 {
		return
	}
	store, err := openFloorStore(state)
	if err == nil {
		err = serveFloor(address, store, waiting)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// A floorStore keeps the queue of a floor.
type floorStore interface {
	// enter stores a visitor, and returns once that is as durable as the store makes it.
	enter(ctx context.Context, number int64) error
	// ahead returns how many visitors are before one who waits.
	ahead(ctx context.Context, number int64) (int64, error)
}

// openFloorStore opens a store in Redis by its URL, or an embedded one in a folder.
func openFloorStore(state string) (floorStore, error) {
	if filepath.IsAbs(state) {
		pause := func() time.Duration { return 500 * time.Microsecond } // so that more share an fsync
		db, err := pebble.Open(state, &pebble.Options{MemTableSize: 64 << 20, WALMinSyncInterval: pause})
		return pebbleFloor{db}, err
	}
	client, err := rueidis.NewClient(rueidis.MustParseURL(state))
	return redisFloor{client}, err
}

// pebbleFloor stores a row for each visitor, and knows positions without it. Visitors who enter at the same time share
// an fsync.
type pebbleFloor struct{ db *pebble.DB }

// floorRow is the size of a row.
const floorRow = 100

func (s pebbleFloor) enter(_ context.Context, number int64) error {
	row := binary.BigEndian.AppendUint64(make([]byte, 0, floorRow), uint64(number))
	return s.db.Set(row, row[:floorRow-len(row)], pebble.Sync)
}

func (s pebbleFloor) ahead(_ context.Context, number int64) (int64, error) { return number - 1, nil }

// redisFloor has a sorted set of the visitors. Commands of the same time share a round trip.
type redisFloor struct{ client rueidis.Client }

// floorLine is the key of the sorted set.
const floorLine = "line"

func (s redisFloor) enter(ctx context.Context, number int64) error {
	add := s.client.B().Zadd().Key(floorLine).ScoreMember().ScoreMember(float64(number), strconv.FormatInt(number, 10)).Build()
	return s.client.Do(ctx, add).Error()
}

func (s redisFloor) ahead(ctx context.Context, number int64) (int64, error) {
	return s.client.Do(ctx, s.client.B().Zrank().Key(floorLine).Member(strconv.FormatInt(number, 10)).Build()).AsInt64()
}

// serveFloor serves the paths of a room with what any waiting room adds to the bare handler, and with nothing else:
// routes, a ticket that is verified or signed, a store, and bounds for clients that are slow.
func serveFloor(address string, store floorStore, waiting int64) error {
	var visitors atomic.Int64
	visitors.Store(waiting)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/rooms/{room}/visitors", func(w http.ResponseWriter, r *http.Request) {
		number := visitors.Add(1)
		answerFloor(w, number, number, store.enter(r.Context(), number))
	})
	mux.HandleFunc("GET /v1/rooms/{room}/visitors/me", func(w http.ResponseWriter, r *http.Request) {
		number, err := readTicket(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		ahead, err := store.ahead(r.Context(), number)
		answerFloor(w, number, ahead+1, err)
	})
	server := http.Server{
		Addr: address, Handler: mux,
		ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	return server.ListenAndServe()
}

// floorRest makes an answer about as long as that of a room.
const floorRest = `,"estimated_wait_ms":null,"next_poll_ms":10000,"pass":null,"pass_expires_at":null}`

func answerFloor(w http.ResponseWriter, number, position int64, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	b := append(append(make([]byte, 0, 256), ticketBegin...), signTicket(number)...)
	b = strconv.AppendInt(append(b, `","id":`...), number, 10)
	b = append(append(append(b, ','), waitingMark...), `,"position":`...)
	b = append(strconv.AppendInt(b, position, 10), floorRest...)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(b)
}

// floorMACs are hashes with the key of tickets, the same in all processes.
var floorMACs = sync.Pool{New: func() any { return hmac.New(sha256.New, []byte("the key of the tickets of floors")) }}

// ticketMAC is the size of a ticket's MAC, after its number.
const ticketMAC = 16

// signTicket returns the ticket of a visitor.
func signTicket(number int64) string {
	mac := floorMACs.Get().(hash.Hash)
	defer floorMACs.Put(mac)
	mac.Reset()
	ticket := binary.BigEndian.AppendUint64(make([]byte, 0, 8+sha256.Size), uint64(number))
	mac.Write(ticket)
	return base64.RawURLEncoding.EncodeToString(mac.Sum(ticket)[:8+ticketMAC])
}

// readTicket returns the visitor of a ticket.
func readTicket(ticket string) (int64, error) {
	text, err := base64.RawURLEncoding.DecodeString(ticket)
	if err == nil && len(text) == 8+ticketMAC {
		if number := int64(binary.BigEndian.Uint64(text)); hmac.Equal([]byte(signTicket(number)), []byte(ticket)) {
			return number, nil
		}
	}
	return 0, errors.New("the ticket is not valid")
}

// startFloor starts a floor on the embedded store or on a Redis of its own, in which so many visitors wait.
func (e *Environment) startFloor(ctx context.Context, onRedis bool, waiting int) (r *hallRoom, err error) {
	s := &webServer{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	r = &hallRoom{name: FloorName, server: s}
	self := account{os.Geteuid(), os.Getegid()}
	if s.folder, err = folderFor(e.folder, "floor-", self); err != nil {
		return nil, err
	}
	state := s.folder
	if onRedis {
		r.name = RedisFloorName
		if s.redis, err = startRedis(ctx, e.folder, "everysec"); err != nil {
			return nil, err
		}
		state = "unix://" + s.redis.socket
		if err := fillFloor(ctx, state, waiting); err != nil {
			return nil, err
		}
	}
	for number := range int64(waiting) {
		r.crowd.text = append(r.crowd.text, signTicket(number+1)...)
		r.crowd.ends = append(r.crowd.ends, len(r.crowd.text))
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if s.address, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	variable := fmt.Sprintf("%s=%s %s %d", floorVariable, s.address, state, waiting)
	s.process, err = start(ctx, self, s.folder, listens(s.address), "/usr/bin/env", variable, program)
	return r, err
}

// fillFloor adds the visitors up to a number to a floor's Redis.
func fillFloor(ctx context.Context, url string, last int) error {
	const script = "for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do redis.call('ZADD', KEYS[1], i, i) end"
	client, err := rueidis.NewClient(rueidis.MustParseURL(url))
	if err != nil {
		return err
	}
	defer client.Close()
	for from := 1; from <= last; from += 10_000 {
		to := strconv.Itoa(min(from+9_999, last))
		eval := client.B().Eval().Script(script).Numkeys(1).Key(floorLine).Arg(strconv.Itoa(from), to).Build()
		if err := client.Do(ctx, eval).Error(); err != nil && !rueidis.IsRedisNil(err) {
			return err
		}
	}
	return nil
}
