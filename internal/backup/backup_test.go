package backup_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/internal/backup"
)

var content = map[string]string{"a": "one", "b/c": "two and more", "b/d/empty": "", "b/grows": "12345"}

// written returns a backup of content, of which the file b/grows belongs up to three bytes.
func written(t testing.TB) []byte {
	t.Helper()
	dir := t.TempDir()
	fill(t, dir, content)
	var to bytes.Buffer
	if err := backup.Write(t.Context(), &to, dir, map[string]int64{"b/grows": 3}, nil, backup.Description{TakenAt: time.Now(), Parts: []string{"topic"}}); err != nil {
		t.Fatal(err)
	}
	return to.Bytes()
}

func fill(t fataler, dir string, files map[string]string) {
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

type fataler interface{ Fatal(args ...any) }

func described(backup.Description) error { return nil }

func one(archive []byte) backup.Archive {
	return backup.Archive{Name: "tar", From: bytes.NewReader(archive)}
}

func restore(t testing.TB, from io.Reader) (dir string, err error) {
	dir = filepath.Join(t.TempDir(), "data")
	return dir, backup.Restore(t.Context(), dir, described, backup.Archive{Name: "tar", From: from})
}

func TestRestoredAsItWas(t *testing.T) {
	t.Parallel()
	var d backup.Description
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil { // an empty one is taken
		t.Fatal(err)
	}
	if err := backup.Restore(t.Context(), dir, func(of backup.Description) error { d = of; return nil }, one(written(t))); err != nil {
		t.Fatal(err)
	}
	for name, want := range content {
		if name == "b/grows" {
			want = want[:3]
		}
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v: want %q", name, got, err, want)
		}
	}
	if d.Files != 4 || d.Bytes != 18 || len(d.Parts) != 1 {
		t.Errorf("it is described as %+v", d)
	}
	if err := backup.Restore(t.Context(), dir, described, one(written(t))); !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("into the same folder: %v", err)
	}
}

// A backup that is not as it was written is an error, and leaves no folder.
func TestDamagedBackup(t *testing.T) {
	t.Parallel()
	whole := written(t)
	end := bytes.LastIndex(whole, []byte("  b/grows\n")) + len("  b/grows\n")
	rapid.Check(t, func(rt *rapid.T) {
		broken := bytes.Clone(whole)
		if at := rapid.IntRange(0, end-1).Draw(rt, "byte"); rapid.Bool().Draw(rt, "cut") {
			broken = broken[:at]
		} else {
			broken[at] ^= rapid.ByteRange(1, 255).Draw(rt, "flip")
		}
		dir := filepath.Join(t.TempDir(), "data")
		err := backup.Restore(context.Background(), dir, described, one(broken))
		if err == nil {
			restoredAll(rt, dir)
			return
		}
		for _, path := range []string{dir, dir + ".restoring"} {
			if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
				rt.Fatalf("%s is there: %v", path, err)
			}
		}
	})
}

// restoredAll checks that a byte that has changed had no meaning, such as the time of a file.
func restoredAll(t *rapid.T, dir string) {
	for name, want := range content {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.HasPrefix(want, string(got)) || len(got) < min(len(want), 3) {
			t.Fatalf("%s is %q, %v: want %q, or an error", name, got, err, want)
		}
	}
}

// The error names the file whose content has changed.
func TestDamagedFileIsNamed(t *testing.T) {
	t.Parallel()
	broken := bytes.Replace(written(t), []byte("two and more"), []byte("two and less"), 1)
	_, err := restore(t, bytes.NewReader(broken))
	if damage, ok := errors.AsType[*backup.DamageError](err); !ok || damage.Path != "b/c" {
		t.Errorf("error is %v, want a *DamageError of b/c", err)
	}
}

// Archives that are made to do harm, or by a later release, are refused.
func TestRefusedBackups(t *testing.T) {
	t.Parallel()
	const own = `{"format":1}`
	for name, files := range map[string][][2]string{
		"no backup":     {{"some.txt", "text"}},
		"later release": {{"sluice-backup.json", `{"format":3}`}},
		"no base":       {{"sluice-backup.json", `{"format":2}`}},
		"base in full":  {{"sluice-backup.json", `{"format":1,"base":{"id":"a"}}`}},
		"above":         {{"sluice-backup.json", own}, {"../above", "text"}},
		"absolute":      {{"sluice-backup.json", own}, {"/tmp/absolute", "text"}},
		"twice":         {{"sluice-backup.json", own}, {"a", "1"}, {"a", "2"}},
		"no checksum":   {{"sluice-backup.json", own}, {"a", "1"}, {"sluice-backup.sha256", ""}},
	} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		for _, file := range files {
			_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file[0], Size: int64(len(file[1])), Mode: 0o600})
			_, _ = w.Write([]byte(file[1]))
		}
		_ = w.Close()
		if dir, err := restore(t, &archive); err == nil {
			t.Errorf("%s: restored into %s", name, dir)
		}
	}
}

// An error of the disk or the network is told as it is.
func TestErrorsOfReadersAreTold(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken pipe")
	whole := written(t)
	for _, at := range []int{10, 600, 2000, len(whole) - 1500} {
		_, err := restore(t, io.MultiReader(bytes.NewReader(whole[:at]), iotest.ErrReader(broken)))
		if !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v, want the reader's error", at, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := backup.Restore(ctx, filepath.Join(t.TempDir(), "data"), described, one(whole)); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}
