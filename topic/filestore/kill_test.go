package filestore_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/filestore"
)

// childVariable names the directory of the store in which the process that
// TestKill starts appends until it is killed.
const childVariable = "SLUICE_FILESTORE_CHILD"

// crashEntry returns an entry whose size and data are functions of its sequence.
func crashEntry(sequence uint64) topic.Entry {
	data := make([]byte, sequence*sequence*37%6000)
	for i := range data {
		data[i] = byte(sequence + uint64(i))
	}
	return topic.Entry{Sequence: sequence, Mark: topic.Mark{Base: int64(sequence)}, Data: data}
}

// child appends to two logs with 16 entries in flight, writes each acknowledged sequence to
// the standard output, and at times trims and sets a key.
func child(dir string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	s, err := filestore.Open(dir, filestore.Options{Logger: quiet, SegmentBytes: 1 << 20})
	fail(err)
	ctx := context.Background()
	depth := make(chan struct{}, 16)
	var logs [2]topic.Log
	var next [2]uint64
	for i := range logs {
		logs[i], err = s.OpenLog(ctx, fmt.Sprint("log", i), []int32{1})
		fail(err)
		_, last, err := logs[i].Ends(ctx)
		fail(err)
		next[i] = last + 1
	}
	for turn := 0; ; turn++ {
		i, sequence := turn%2, next[turn%2]
		next[i]++
		depth <- struct{}{}
		logs[i].Append(crashEntry(sequence), func(err error) {
			fail(err)
			report(uint64(i), sequence)
			<-depth
		})
		if turn%50 == 49 {
			fail(logs[i].Trim(ctx, max(sequence, 200)-200))
			item, _ := s.Meta().Get(ctx, "key")
			revision, err := s.Meta().Put(ctx, "key", nil, item.Revision)
			fail(err)
			report(2, revision)
		}
	}
}

// report tells the parent that a write is durable. A short write to a pipe is atomic.
func report(what, number uint64) {
	var line [9]byte
	line[0] = byte(what)
	binary.BigEndian.PutUint64(line[1:], number)
	if _, err := os.Stdout.Write(line[:]); err != nil {
		os.Exit(1)
	}
}

// TestKill kills a process that appends, and checks that all acknowledged entries are there,
// without gaps.
func TestKill(t *testing.T) {
	t.Parallel()
	rounds := 4
	if os.Getenv("SLUICE_LONG") != "" {
		rounds = 40
	}
	dir := t.TempDir()
	var reported [3]uint64
	for round := range rounds {
		after := 50 + rand.IntN(1500)
		runChild(t, dir, after, &reported)
		check(t, dir, reported)
		t.Logf("round %d: killed after %d reports: %v", round, after, reported)
	}
}

// runChild starts the child, kills it after some reports, and keeps the last one
// of each kind.
func runChild(t *testing.T, dir string, after int, reported *[3]uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, os.Args[0])
	command.Env = append(os.Environ(), childVariable+"="+dir)
	command.Stderr = t.Output()
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	reports, count := bufio.NewReader(output), 0
	for {
		var line [9]byte
		if _, err := io.ReadFull(reports, line[:]); err != nil {
			break
		}
		number := binary.BigEndian.Uint64(line[1:])
		if number <= reported[line[0]] {
			t.Errorf("%d reported %d after %d", line[0], number, reported[line[0]])
		}
		reported[line[0]] = number
		if count == 0 {
			if _, err := filestore.Open(dir, filestore.Options{}); !errors.Is(err, filestore.ErrInUse) {
				t.Errorf("to open what another process has open: %v, want ErrInUse", err)
			}
		}
		if count++; count == after {
			if err := command.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := command.Wait(); count < after {
		t.Fatalf("the child ended after %d reports: %v", count, err)
	}
}

// check checks the data that the child left.
func check(t *testing.T, dir string, reported [3]uint64) {
	t.Helper()
	s := open(t, dir, filestore.Options{Logger: quiet, SegmentBytes: 1 << 20})
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i := range 2 {
		l, err := s.OpenLog(t.Context(), fmt.Sprint("log", i), []int32{1})
		if err != nil {
			t.Fatal(err)
		}
		first, last, err := l.Ends(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if last < reported[i] || last > reported[i]+16 {
			t.Fatalf("log %d ends at %d, %d was reported", i, last, reported[i])
		}
		for from := first; from <= last; {
			got, err := l.Read(t.Context(), from, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range got {
				want := crashEntry(from)
				if e.Sequence != from || e.Mark != want.Mark || string(e.Data) != string(want.Data) {
					t.Fatalf("log %d: entry %d is %d with %d bytes, want %d bytes", i, from, e.Sequence, len(e.Data), len(want.Data))
				}
				from++
			}
			if len(got) == 0 {
				t.Fatalf("log %d has no entry %d, its last is %d", i, from, last)
			}
		}
	}
	item, err := s.Meta().Get(t.Context(), "key")
	if err != nil || item.Revision < reported[2] {
		t.Fatalf("key is at %d: %v; %d was reported", item.Revision, err, reported[2])
	}
}
