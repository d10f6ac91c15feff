package renew

import "os"

// Files are some files whose changes are noticed. It is not safe for concurrent use.
type Files struct {
	paths []string
	seen  []os.FileInfo // the files as they were; nil: missing
}

// NewFiles returns the files of these paths, as they are now.
func NewFiles(paths ...string) *Files {
	f := &Files{paths: paths}
	f.seen = f.look()
	return f
}

// Changed reports whether a file is another than when Changed was called last. Renewals
// write a file again, replace it, or change where a link leads.
func (f *Files) Changed() bool {
	found, changed := f.look(), false
	for i := range found {
		changed = changed || !same(found[i], f.seen[i])
	}
	f.seen = found
	return changed
}

func (f *Files) look() []os.FileInfo {
	found := make([]os.FileInfo, len(f.paths))
	for i, path := range f.paths {
		if info, err := os.Stat(path); err == nil {
			found[i] = info
		}
	}
	return found
}

func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}
