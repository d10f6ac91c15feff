package broker_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// faultyStore is a store in which single calls can be made to fail.
type faultyStore struct {
	topic.Store

	mu sync.Mutex
	// failRead and the like return the error of a call, or nil; write replaces the
	// log's Append.
	failRead, failOpen, failDelete, failPut func(name string) error
	write                                   func(log topic.Log, entry topic.Entry, done func(error))
	// alter changes an entry of a log of records that was read.
	alter func(*topic.Entry)
	// read counts the bytes that were read of the logs of records.
	read atomic.Int64
}

// set changes the failures.
func (s *faultyStore) set(change func(*faultyStore)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// failure calls one of the functions, if it is set.
func (s *faultyStore) failure(which func(*faultyStore) func(string) error, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fail := which(s); fail != nil {
		return fail(name)
	}
	return nil
}

func (s *faultyStore) OpenLog(ctx context.Context, name string, nodes []int32) (topic.Log, error) {
	if err := s.failure(func(s *faultyStore) func(string) error { return s.failOpen }, name); err != nil {
		return nil, err
	}
	log, err := s.Store.OpenLog(ctx, name, nodes)
	return faultyStoreLog{log, s, name}, err
}

func (s *faultyStore) DeleteLog(ctx context.Context, name string) error {
	if err := s.failure(func(s *faultyStore) func(string) error { return s.failDelete }, name); err != nil {
		return err
	}
	return s.Store.DeleteLog(ctx, name)
}

func (s *faultyStore) Meta() topic.Meta { return faultyStoreMeta{s.Store.Meta(), s} }

type faultyStoreLog struct {
	topic.Log
	store *faultyStore
	name  string
}

func (l faultyStoreLog) Read(ctx context.Context, from uint64, maxBytes int) ([]topic.Entry, error) {
	if err := l.store.failure(func(s *faultyStore) func(string) error { return s.failRead }, l.name); err != nil {
		return nil, err
	}
	entries, err := l.Log.Read(ctx, from, maxBytes)
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	for i := range entries {
		if strings.HasPrefix(l.name, catalog.RecordsPrefix) {
			l.store.read.Add(int64(len(entries[i].Data)))
			if l.store.alter != nil {
				l.store.alter(&entries[i])
			}
		}
	}
	return entries, err
}

func (l faultyStoreLog) Append(entry topic.Entry, done func(error)) {
	l.store.mu.Lock()
	write := l.store.write
	l.store.mu.Unlock()
	if write == nil || !strings.HasPrefix(l.name, "records-") {
		write = func(log topic.Log, entry topic.Entry, done func(error)) { log.Append(entry, done) }
	}
	write(l.Log, entry, done)
}

type faultyStoreMeta struct {
	topic.Meta
	store *faultyStore
}

func (m faultyStoreMeta) Put(ctx context.Context, key string, value []byte, revision uint64, guards ...topic.Guard) (uint64, error) {
	if err := m.store.failure(func(s *faultyStore) func(string) error { return s.failPut }, key); err != nil {
		return 0, err
	}
	return m.Meta.Put(ctx, key, value, revision, guards...)
}
