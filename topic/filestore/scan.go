package filestore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
)

const (
	// walkBytes is how much is read at a time when only headers are wanted, and scanBytes
	// when the data is.
	walkBytes = 16 << 10
	scanBytes = 1 << 20
)

// scanner reads frames of a file. It holds a part of the file.
type scanner struct {
	file io.ReaderAt
	salt uint64
	size int64 // what follows is not read
	step int   // the least that is read at a time

	held []byte
	at   int64 // the place of held
}

// bytes returns n bytes at a position, fewer where the file ends. They are valid until the
// next call.
func (s *scanner) bytes(at int64, n int) ([]byte, error) {
	if n = int(min(int64(n), s.size-at)); n <= 0 {
		return nil, nil
	}
	if at < s.at || at+int64(n) > s.at+int64(len(s.held)) {
		want := int(min(int64(max(n, s.step)), s.size-at))
		if cap(s.held) < want {
			s.held = make([]byte, want)
		}
		read, err := s.file.ReadAt(s.held[:want], at)
		if err != nil && !errors.Is(err, io.EOF) {
			s.held = s.held[:0]
			return nil, err
		}
		s.held, s.at = s.held[:read], at
	}
	held := s.held[min(at-s.at, int64(len(s.held))):] // the file may be shorter than its size was
	return held[:min(n, len(held))], nil
}

// header returns the frame at a position, if there is one.
func (s *scanner) header(at int64) (f frame, ok bool, err error) {
	b, err := s.bytes(at, headerBytes)
	if err != nil {
		return frame{}, false, err
	}
	f, ok = parseHeader(b, s.salt)
	return f, ok, nil
}

// whole is header for a frame whose data is there too.
func (s *scanner) whole(at int64) (f frame, ok bool, err error) {
	f, ok, err = s.header(at)
	if !ok || err != nil {
		return f, false, err
	}
	b, err := s.bytes(at, headerBytes+f.length)
	if err != nil || len(b) < headerBytes+f.length {
		return f, false, err
	}
	return f, sumOf(b[headerBytes:]) == f.sum, nil
}

// rest describes what follows the last whole frame of a segment.
type rest struct {
	// used is the place after the last byte that is not zero.
	used int64
	// durable is how much was durable, by the headers of frames that are there.
	durable int64
}

// rest examines the file from a position on.
func (s *scanner) rest(from int64) (rest, error) {
	var salt [saltBytes]byte
	binary.BigEndian.PutUint64(salt[:], s.salt)
	found := rest{used: from}
	// The windows overlap, so that a header is whole in one of them.
	for at := from; at < s.size; at += scanBytes - headerBytes {
		b, err := s.bytes(at, scanBytes)
		if err != nil {
			return found, err
		}
		for i := len(b); i > 0; i-- {
			if b[i-1] != 0 {
				found.used = max(found.used, at+int64(i))
				break
			}
		}
		for i := bytes.Index(b, salt[:]); i >= 0; i = bytes.Index(b, salt[:]) {
			if f, ok := parseHeader(b[i:], s.salt); ok {
				found.durable = max(found.durable, f.durable)
			}
			b = b[i+1:]
		}
	}
	return found, nil
}
