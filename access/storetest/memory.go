package storetest

import (
	"context"
	"strconv"
	"sync"

	"github.com/sluice-project/sluice/access"
)

// Memory is an access.Store in memory. The zero value is empty.
type Memory struct {
	mu       sync.Mutex
	document []byte
	writes   int
	err      error
}

var _ access.Store = (*Memory)(nil)

// Fail lets all calls fail with an error, until it is nil.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// Read implements access.Store.
func (m *Memory) Read(context.Context) (document []byte, version string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.document, m.version(), m.err
}

func (m *Memory) version() string {
	if m.writes == 0 {
		return ""
	}
	return strconv.Itoa(m.writes)
}

// Write implements access.Store.
func (m *Memory) Write(_ context.Context, document []byte, version string) (newVersion string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return "", m.err
	}
	if version != m.version() {
		return "", access.ErrChanged
	}
	m.document, m.writes = document, m.writes+1
	return m.version(), nil
}
