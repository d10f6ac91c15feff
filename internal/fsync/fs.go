package fsync

import "github.com/cockroachdb/pebble/v2/vfs"

// FS returns the operating system's file system, as Over does.
func (w *Watch) FS(name string) vfs.FS { return w.Over(name, vfs.Default) }

// Over returns a file system whose fsyncs are those of a store, and which is otherwise as the one below.
// SyncTo is not measured: nobody waits for it, as it begins to write what a later fsync makes durable.
func (w *Watch) Over(name string, below vfs.FS) vfs.FS {
	return watchedFS{below, &store{Watch: w, name: name, took: w.took.WithLabelValues(name), slow: w.slow.WithLabelValues(name)}}
}

type watchedFS struct {
	vfs.FS
	store *store
}

// Unwrap implements vfs.FS.
func (w watchedFS) Unwrap() vfs.FS { return w.FS }

// Create implements vfs.FS.
func (w watchedFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.Create(name, category)
	return w.watch(name, f, err)
}

// OpenReadWrite implements vfs.FS.
func (w watchedFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, options ...vfs.OpenOption) (vfs.File, error) {
	f, err := w.FS.OpenReadWrite(name, category, options...)
	return w.watch(name, f, err)
}

// OpenDir implements vfs.FS.
func (w watchedFS) OpenDir(name string) (vfs.File, error) {
	f, err := w.FS.OpenDir(name)
	return w.watch(name, f, err)
}

// ReuseForWrite implements vfs.FS.
func (w watchedFS) ReuseForWrite(from, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.ReuseForWrite(from, name, category)
	return w.watch(name, f, err)
}

func (w watchedFS) watch(path string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &watchedFile{f, path, w.store}, nil
}

// watchedFile has the descriptor of the file: stores write with it.
type watchedFile struct {
	vfs.File
	path  string
	store *store
}

// Sync implements vfs.File.
func (f *watchedFile) Sync() error { return f.store.timed(f.path, f.File.Sync) }

// SyncData implements vfs.File.
func (f *watchedFile) SyncData() error { return f.store.timed(f.path, f.File.SyncData) }
