//go:build redis

package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/earlier"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// The files of a fixture of Redis: the commands that make its data, as an append-only file has them, and what was acknowledged.
// All versions of Redis and Valkey read them.
const redisData, redisKept = "redis.aof.gz", "redis.json"

// keptInRedis is keptData of a server on Redis, with what a data directory's fixture cannot have: its age would end the visits.
type keptInRedis struct {
	keptData
	// Settings are those of the tenant shop.
	Settings map[string]float64 `json:"settings"`
	// Inside are the tickets of the visitors inside the room busy, which is full, and Next waits for a place there.
	Inside []string `json:"inside"`
	Next   visitor  `json:"next"`
}

// This version opens what each earlier one left in Redis when it was killed. Everything acknowledged is there, unfinished work goes on,
// people keep their places, and a second start finds what the first one did.
func TestUpgradeRedis(t *testing.T) {
	t.Parallel()
	eachUpgrade(t, checkUpgradeRedis)
}

// As TestUpgradeFixture, of a server whose state is in Redis.
func TestUpgradeFixtureRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Options{Persist: redistest.Always, Args: []string{"--aof-use-rdb-preamble", "no"}})
	s, folder := onRedis(t, redis), t.TempDir()
	if *fixtureOf != "" {
		s.program, folder = earlier.Build(t, "..", *fixtureOf), filepath.Join(upgrades, *fixtureOf)
	}
	s.start()
	k := keptInRedis{Settings: map[string]float64{"weight": 3, "concurrency": 7}}
	s.call("PUT", "/v1/tenants/shop", `{"weight":3,"concurrency":7}`, http.StatusOK, nil)
	s.keepBulk(&k.keptData)
	s.await("half", 1, `,"lease_ms":1000`) // nobody settles it
	s.keepRooms(&k.keptData)
	s.keepInside(&k)
	s.keepToken(&k.keptData)
	writeKept(t, folder, redisKept, k)
	var packed bytes.Buffer
	to := gzip.NewWriter(&packed)
	_, err := to.Write(commandsOf(t, redis))
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil || packed.Len() > maxFixture {
		t.Fatalf("%s has %d bytes, want at most %d: %v", redisData, packed.Len(), maxFixture, err)
	}
	writeFile(t, filepath.Join(folder, redisData), packed.String())
	checkUpgradeRedis(t, folder)
}

// onRedis returns a server whose state is in Redis.
func onRedis(t *testing.T, redis *redistest.Server) *server {
	t.Helper()
	return newServer(t, append(slices.Clone(forEver), "--state", redis.URL(), "--kafka", "off")...)
}

// keepInside fills a room with two visitors, whose visits last for a week, and has a third one wait.
func (s *server) keepInside(k *keptInRedis) {
	s.t.Helper()
	s.call("PUT", "/v1/rooms/busy", keptRoom(7*24*time.Hour), http.StatusCreated, nil)
	for _, key := range []string{"erin", ""} {
		ticket := s.enter("busy", key, http.StatusCreated).Ticket
		until.True(s.t, "a visitor is inside", func() bool { return s.ask("busy", ticket).Status == "inside" })
		k.Inside = append(k.Inside, ticket)
	}
	k.Next = s.enter("busy", "", http.StatusCreated)
}

// commandsOf returns the commands that make the data of a Redis.
func commandsOf(t *testing.T, redis *redistest.Server) []byte {
	t.Helper()
	redis.Cli("BGREWRITEAOF")
	until.True(t, "the append-only file is written again", func() bool {
		return redis.Info("aof_rewrite_in_progress") == "0" && redis.Info("aof_rewrite_scheduled") == "0"
	})
	_, dir, _ := strings.Cut(redis.Cli("CONFIG", "GET", "dir"), "\n")
	files, err := filepath.Glob(filepath.Join(dir, "appendonlydir", "*.base.aof"))
	if err != nil || len(files) != 1 {
		t.Fatalf("append-only files %v: %v", files, err)
	}
	commands, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return commands
}

// load makes the data of a fixture in a Redis. The visits in the room busy are as old as the fixture, so they get an hour more.
func load(t *testing.T, redis *redistest.Server, path string) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	commands, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	connection, err := new(net.Dialer).DialContext(t.Context(), "tcp", redis.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(until.Limit)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(connection, io.MultiReader(commands, strings.NewReader("ECHO loaded\r\n"))); err != nil {
		t.Fatal(err)
	}
	for answers := bufio.NewScanner(connection); ; {
		if !answers.Scan() || strings.HasPrefix(answers.Text(), "-") {
			t.Fatalf("%s: %s %v", path, answers.Text(), answers.Err())
		}
		if answers.Text() == "loaded" {
			break
		}
	}
	inside := redis.Cli("KEYS", "sluice:{busy}:*:inside")
	seconds, _, _ := strings.Cut(redis.Cli("TIME"), "\n")
	now, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for member := range strings.FieldsSeq(redis.Cli("ZRANGE", inside, "0", "-1")) {
		redis.Cli("ZADD", inside, "XX", fmt.Sprint((now+3600)*1000), member)
	}
}

// checkUpgradeRedis opens a fixture with this version.
func checkUpgradeRedis(t *testing.T, folder string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, redisKept))
	if err != nil {
		t.Fatal(err)
	}
	var k keptInRedis
	if err := json.Unmarshal(text, &k); err != nil {
		t.Fatal(err)
	}
	redis := redistest.Start(t, redistest.Options{Persist: redistest.Always})
	load(t, redis, filepath.Join(folder, redisData))
	s := onRedis(t, redis)
	s.start()
	var settings map[string]any
	s.call("GET", "/v1/tenants/shop", "", http.StatusOK, &settings)
	for name, want := range k.Settings {
		if settings[name] != want {
			t.Errorf("%s of the tenant is %v, want %v", name, settings[name], want)
		}
	}
	s.checkKeptRooms(&k.keptData)
	s.checkKeptInside(&k)
	s.checkKeptBulk(&k.keptData)
	s.terminate()
	s.checkSecondStart(&k.keptData)
}

// checkKeptInside checks that those inside are, and that the next one enters when a visitor leaves, and not before.
func (s *server) checkKeptInside(k *keptInRedis) {
	s.t.Helper()
	for n, ticket := range k.Inside {
		if got := s.ask("busy", ticket); got.Status != "inside" {
			s.t.Errorf("visitor %d is %+v, want them inside", n, got)
		}
	}
	if got := s.ask("busy", k.Next.Ticket); got.ID != k.Next.ID || got.Status != "waiting" || got.position() != 1 {
		s.t.Errorf("the next is %+v, want visitor %d waiting at position 1", got, k.Next.ID)
	}
	if a := s.me("DELETE", "busy", k.Inside[0]); a.status != http.StatusNoContent {
		s.t.Fatal(fmt.Errorf("a visitor leaves: %d %s", a.status, a.body))
	}
	until.True(s.t, "the next is inside", func() bool { return s.ask("busy", k.Next.Ticket).Status == "inside" })
}
