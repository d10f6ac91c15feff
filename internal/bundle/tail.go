package bundle

import (
	"bytes"
	"sync"
)

// tailBytes is how much of the log a Tail keeps: some 2,000 lines.
const tailBytes = 256 << 10

// Tail is an io.Writer that keeps the last 256 KiB. The zero Tail is empty. It is safe for concurrent
// use.
type Tail struct {
	mu   sync.Mutex
	kept []byte // at most twice tailBytes
}

// Write implements io.Writer. It never fails.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b[max(0, len(b)-tailBytes):]...)
	if len(t.kept) >= 2*tailBytes {
		t.kept = append(t.kept[:0], t.kept[len(t.kept)-tailBytes:]...)
	}
	return len(b), nil
}

// Lines returns a copy of the whole lines that are kept.
func (t *Tail) Lines() []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.kept) <= tailBytes {
		return bytes.Clone(t.kept)
	}
	_, lines, _ := bytes.Cut(t.kept[len(t.kept)-tailBytes:], []byte("\n"))
	return bytes.Clone(lines)
}
