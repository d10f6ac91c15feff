package backup_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/internal/backup"
	"github.com/sluice-project/sluice/internal/edge"
)

// taken returns the backup of files, which continues a base unless that is nil, and what it has.
func taken(t fataler, in string, files map[string]string, base *backup.Inventory) ([]byte, *backup.Inventory) {
	dir, err := os.MkdirTemp(in, "snapshot")
	if err != nil {
		t.Fatal(err)
	}
	fill(t, dir, files)
	var to bytes.Buffer
	if err := backup.Write(context.Background(), &to, dir, nil, base, backup.Description{TakenAt: time.Now(), Parts: []string{"topic"}}); err != nil {
		t.Fatal(err)
	}
	has, err := backup.Read(bytes.NewReader(to.Bytes()), described, nil)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := backup.Read(bytes.NewReader(to.Bytes()), described, func(_ backup.Entry, content io.Reader) error {
		_, err := io.Copy(io.Discard, content)
		return err
	})
	if err != nil || !reflect.DeepEqual(checked, has) {
		t.Fatal(fmt.Sprintf("with its content read it has %+v, %v; want %+v", checked, err, has))
	}
	return to.Bytes(), has
}

// chain returns backups of snapshots: the first is a full one, each other continues the one before.
func chain(t fataler, in string, snapshots ...map[string]string) []backup.Archive {
	var all []backup.Archive
	var base *backup.Inventory
	for n, files := range snapshots {
		archive, has := taken(t, in, files, base)
		all, base = append(all, backup.Archive{Name: fmt.Sprint(n), From: bytes.NewReader(archive)}), has
	}
	return all
}

// tree returns the files below a folder.
func tree(t fataler, dir string) map[string]string {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// Whatever becomes of the files, a full backup and those that continue it restore to the last snapshot.
func TestChainRestoresTheLastSnapshot(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		in := t.TempDir()
		snapshots := []map[string]string{{"CURRENT": "1"}}
		for range rapid.IntRange(1, 5).Draw(rt, "backups") {
			files := maps.Clone(snapshots[len(snapshots)-1])
			for range rapid.IntRange(0, 4).Draw(rt, "changes") {
				name := rapid.SampledFrom([]string{"CURRENT", "000001.sst", "topic/a/1.log", "topic/a/2.log", "topic/b/1.log"}).Draw(rt, "file")
				text := strings.Repeat(rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "byte"), rapid.IntRange(0, 200).Draw(rt, "length"))
				switch rapid.IntRange(0, 3).Draw(rt, "change") {
				case 0:
					delete(files, name)
				case 1:
					files[name] = files[name][:len(files[name])/2]
				case 2:
					files[name] = text
				default:
					files[name] += text
				}
			}
			snapshots = append(snapshots, files)
		}
		dir := filepath.Join(in, "data")
		if err := backup.Restore(context.Background(), dir, described, chain(rt, in, snapshots...)...); err != nil {
			rt.Fatal(err)
		}
		if got, want := tree(rt, dir), snapshots[len(snapshots)-1]; !maps.Equal(got, want) {
			rt.Fatalf("restored %q, want %q", got, want)
		}
	})
}

// An increment leaves out the bytes that the base has, and its description counts them.
func TestIncrementLeavesOutWhatTheBaseHas(t *testing.T) {
	t.Parallel()
	same, grows := strings.Repeat("same ", 20_000), strings.Repeat("grows ", 20_000)
	_, has := taken(t, t.TempDir(), map[string]string{"same": same, "grows": grows, "other": same, "gone": "x"}, nil)
	archive, after := taken(t, t.TempDir(), map[string]string{"same": same, "grows": grows + "more", "other": "O" + same[1:], "new": "y"}, has)
	stored := map[string]int64{}
	var d backup.Description
	if _, err := backup.Read(bytes.NewReader(archive), func(of backup.Description) error { d = of; return nil }, func(of backup.Entry, content io.Reader) error {
		stored[of.Name] = of.Size
		_, err := io.Copy(io.Discard, content)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if want := map[string]int64{"same": 0, "grows": 4, "other": int64(len(same)), "new": 1}; !maps.Equal(stored, want) {
		t.Errorf("it has %v, want %v", stored, want)
	}
	if d.Format != 2 || d.Files != 4 || d.Bytes != int64(2*len(same)+len(grows)+5) || d.Base == nil || d.Base.ID != has.ID {
		t.Errorf("it is described as %+v", d)
	}
	if after.ID == has.ID || after.Files["grows"].Size != int64(len(grows)+4) {
		t.Errorf("the next has to continue %+v", after)
	}
}

// Backups that do not continue each other are refused, with their names, and nothing is left.
func TestRefusedChains(t *testing.T) {
	t.Parallel()
	one, two, three := map[string]string{"a": "1"}, map[string]string{"a": "12"}, map[string]string{"a": "123"}
	of := chain(t, t.TempDir(), one, two, three)
	foreign := chain(t, t.TempDir(), one)[0]
	foreign.Name = "foreign"
	for want, backups := range map[string][]backup.Archive{
		"1 is incremental: name its base before it": {of[1]},
		"2 continues the backup of":                 {of[0], of[2]},
		"1 continues the backup of":                 {foreign, of[1]},
		"foreign is a full backup":                  {of[0], of[1], foreign},
		"1 is incremental: name its base":           {of[1], of[0]},
	} {
		for _, a := range backups {
			_, _ = a.From.(io.Seeker).Seek(0, io.SeekStart)
		}
		dir := filepath.Join(t.TempDir(), "data")
		err := backup.Restore(t.Context(), dir, described, backups...)
		if _, is := errors.AsType[*backup.BaseError](err); !is || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: want a *BaseError that begins with %q", err, want)
		}
		if left, _ := filepath.Glob(dir + "*"); len(left) > 0 {
			t.Errorf("%v is left", left)
		}
	}
}

// A byte of an incremental backup that has changed is found, unless it had no meaning.
func TestDamagedIncrement(t *testing.T) {
	t.Parallel()
	first := map[string]string{"same": strings.Repeat("same", 30), "grows": strings.Repeat("grows", 30), "other": "old"}
	second := map[string]string{"same": first["same"], "grows": first["grows"] + " more and more", "other": "new", "b/c": "c"}
	full, has := taken(t, t.TempDir(), first, nil)
	whole, _ := taken(t, t.TempDir(), second, has)
	end := bytes.LastIndex(whole, []byte("  same\n")) + len("  same\n")
	rapid.Check(t, func(rt *rapid.T) {
		broken := bytes.Clone(whole)
		broken[rapid.IntRange(0, end-1).Draw(rt, "byte")] ^= rapid.ByteRange(1, 255).Draw(rt, "flip")
		dir := filepath.Join(t.TempDir(), "data")
		err := backup.Restore(context.Background(), dir, described, one(full), one(broken))
		if err == nil {
			if got := tree(rt, dir); !maps.Equal(got, second) {
				rt.Fatalf("restored %q, want %q, or an error", got, second)
			}
		} else if left, _ := filepath.Glob(dir + "*"); len(left) > 0 {
			rt.Fatalf("%v is left after %v", left, err)
		}
	})
	broken := bytes.Replace(whole, []byte(" more and more"), []byte(" more and less"), 1)
	err := backup.Restore(t.Context(), filepath.Join(t.TempDir(), "data"), described, one(full), backup.Archive{Name: "tuesday", From: bytes.NewReader(broken)})
	if damage, is := errors.AsType[*backup.DamageError](err); !is || damage.Path != "grows" || !strings.HasPrefix(err.Error(), "tuesday: ") {
		t.Errorf("error is %v, want a *DamageError of grows in tuesday", err)
	}
}

// A server that is told of a base leaves out what it has, and refuses a body that names none.
func TestBackupOverHTTP(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a": strings.Repeat("a", 1<<20)}
	api := edge.New()
	if err := backup.Register(api, backup.Source{
		Data: t.TempDir(), Parts: []string{"bulk"}, Logger: slog.New(slog.DiscardHandler),
		Snapshot: func(_ context.Context, dir string) (map[string]int64, error) { fill(t, dir, files); return nil, nil },
	}); err != nil {
		t.Fatal(err)
	}
	post := func(body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest(http.MethodPost, backup.Path, strings.NewReader(body)))
		return w
	}
	full := post("").Body.Bytes()
	has, err := backup.Read(bytes.NewReader(full), described, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(backup.Continuation{Base: has})
	if err != nil {
		t.Fatal(err)
	}
	files["a"] += "more"
	files["b"] = "new"
	increment := post(string(body)).Body.Bytes()
	dir := filepath.Join(t.TempDir(), "data")
	if err := backup.Restore(t.Context(), dir, described, one(full), one(increment)); err != nil || len(increment) > len(full)/20 {
		t.Fatalf("an increment of %d bytes to %d: %v", len(increment), len(full), err)
	}
	if got := tree(t, dir); !maps.Equal(got, files) {
		t.Errorf("restored files %v, want %v", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(files)))
	}
	for _, body := range []string{`{`, `{"base":{"id":"12"}}`, `{"base":{"files":{}}}`, `{"base":7}`, `{}`, `{"file":{}}`, `{"base":{"id":"` + strings.Repeat("0", 64) + `"}}`} {
		if w := post(body); w.Code != http.StatusUnprocessableEntity && w.Code != http.StatusBadRequest {
			t.Errorf("%s: status %d %s", body, w.Code, w.Body)
		}
	}
}
