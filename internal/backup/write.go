package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Write writes the backup of a snapshot, which belongs into it up to the sizes by path below dir,
// other files as they are. With a base it leaves out what the base has: of each file that begins as
// that of the base, which it finds out by reading it.
func Write(ctx context.Context, to io.Writer, dir string, sizes map[string]int64, base *Inventory, d Description) error {
	files, err := list(dir, sizes)
	if err != nil {
		return err
	}
	w := writer{tar: tar.NewWriter(to), at: d.TakenAt}
	d.Format, d.Files, d.Bytes = Format, len(files), 0
	if base != nil {
		d.Format, d.Base, w.base = IncrementalFormat, &base.Reference, base.Files
	}
	for _, f := range files {
		d.Bytes += f.size
	}
	description, err := json.Marshal(&d)
	if err != nil {
		return err
	}
	if err := w.add(descriptionName, int64(len(description)), sha256.New(), bytes.NewReader(description)); err != nil {
		return err
	}
	for _, f := range files {
		if err := w.addFile(ctx, dir, f); err != nil {
			return err
		}
	}
	sums := strings.NewReader(w.sums.String())
	return errors.Join(w.add(sumsName, sums.Size(), sha256.New(), sums), w.tar.Close())
}

// file is a file of a snapshot, and how much of it belongs to the backup.
type file struct {
	name string
	size int64
}

func list(dir string, sizes map[string]int64) (files []file, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		f := file{name, info.Size()}
		if size, grows := sizes[name]; grows {
			f.size = min(f.size, size)
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

// writer writes files and collects their checksums.
type writer struct {
	tar  *tar.Writer
	at   time.Time
	base map[string]FileSum
	sums strings.Builder
}

func (w *writer) addFile(ctx context.Context, dir string, f file) error {
	from, err := os.Open(filepath.Join(dir, filepath.FromSlash(f.name)))
	if err != nil {
		return err
	}
	content := cancelable{ctx, io.LimitReader(from, f.size)}
	sum, err := began(content, f.size, w.base[f.name])
	if err == nil && sum == nil {
		sum = sha256.New()
		_, err = from.Seek(0, io.SeekStart)
		content = cancelable{ctx, io.LimitReader(from, f.size)}
	}
	if err == nil {
		err = w.add(f.name, f.size, sum, content)
	}
	return errors.Join(err, from.Close())
}

// began reads what a base has of a file, and returns the checksum of that; nil if the file does not
// begin with it, or the base has nothing. Nothing but its bytes tells a file from another: a database
// that was restored gives the numbers of its files again, and so does a topic that was made again.
func began(content io.Reader, size int64, base FileSum) (hash.Hash, error) {
	if base.Size <= 0 || base.Size > size {
		return nil, nil
	}
	sum := sha256.New()
	if _, err := io.CopyN(sum, content, base.Size); err != nil {
		return nil, err
	}
	if hex.EncodeToString(sum.Sum(nil)) != base.SHA256 {
		return nil, nil
	}
	return sum, nil
}

// add adds a file of a size, without the bytes that its checksum has seen.
func (w *writer) add(name string, size int64, sum hash.Hash, from io.Reader) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, ModTime: w.at.Truncate(time.Second)}
	state, err := sum.(encoding.BinaryMarshaler).MarshalBinary()
	if err != nil {
		return err
	}
	seen := seenBytes(state)
	if header.Size = size - seen; seen > 0 {
		header.PAXRecords = map[string]string{beganRecord: hex.EncodeToString(state)}
	}
	if err := w.tar.WriteHeader(header); err != nil {
		return err
	}
	if _, err := io.Copy(io.MultiWriter(w.tar, sum), from); err != nil {
		return fmt.Errorf("back up %s: %w", name, err)
	}
	fmt.Fprintf(&w.sums, "%x  %s\n", sum.Sum(nil), name)
	return w.tar.Flush() // fails if the file was shorter
}

// cancelable is a reader that fails when its context has ended.
type cancelable struct {
	ctx context.Context
	io.Reader
}

func (c cancelable) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.Reader.Read(b)
}
