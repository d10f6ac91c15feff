package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// read returns the files of a bundle by their names.
func read(t *testing.T, whole io.Reader) map[string]string {
	t.Helper()
	unzipped, err := gzip.NewReader(whole)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}

// A bundle has what a process knows, and what another bundle had; what could not be had has a reason in errors.txt.
func TestBundle(t *testing.T) {
	log := &Tail{}
	_, _ = fmt.Fprintln(log, "the last line") // it never fails
	p := &process{Source: Source{
		Settings: func() (string, error) { return "", errors.New("no settings today") },
		Failing:  func(context.Context) map[string]string { return map[string]string{"bulk": "its disk is full"} },
		Log:      log,
	}}
	var inner, outer bytes.Buffer
	if err := p.write(t.Context(), NewArchive(&inner, time.Now()), time.Millisecond); err != nil {
		t.Fatal(err)
	}
	a := NewArchive(&outer, time.Now())
	err := errors.Join(a.Merge(&inner), a.Add("rooms.json", func() ([]byte, error) { return nil, errors.New("off") }))
	if err := errors.Join(err, a.Close()); err != nil {
		t.Fatal(err)
	}
	files := read(t, &outer)
	for name, has := range map[string]string{
		"process/log.txt": "the last line", "process/facts.json": "its disk is full", "process/goroutines.txt": "TestBundle",
		"process/build.txt": "go1.", "process/heap.pb.gz": "", "process/cpu.pb.gz": "",
		"errors.txt": "process/settings.yaml: no settings today\nrooms.json: off\n",
	} {
		if content, found := files[name]; !found || !strings.Contains(content, has) {
			t.Errorf("%s is %.300q, want %q in it", name, content, has)
		}
	}
	if len(files) != a.Files {
		t.Errorf("there are %d files, and %d were counted", len(files), a.Files)
	}
}

// A tail keeps whole lines of the end, whatever the sizes of what is written.
func TestTail(t *testing.T) {
	tail, line := &Tail{}, strings.Repeat("x", 999)+"\n"
	for i := range 2000 {
		if kept := len(tail.kept); kept > 2*tailBytes {
			t.Fatalf("%d bytes are kept", kept)
		}
		_, _ = fmt.Fprintf(tail, "%06d %s", i, line)
	}
	lines := strings.SplitAfter(string(tail.Lines()), "\n")
	if len(lines) < 250 || !strings.HasPrefix(lines[0], "00") || !strings.HasPrefix(lines[len(lines)-2], "001999") {
		t.Errorf("%d lines from %.10s to %.10s", len(lines), lines[0], lines[len(lines)-2])
	}
	if _, err := tail.Write(bytes.Repeat([]byte("y"), 3*tailBytes)); err != nil || len(tail.kept) > 2*tailBytes {
		t.Errorf("a long line: %v, %d bytes kept", err, len(tail.kept))
	}
}
