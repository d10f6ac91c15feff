package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sluice-project/sluice/internal/cli/exit"
)

// maxFile bounds the file of profiles.
const maxFile = 1 << 20

// path returns the file of the user's profiles.
func path() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("profiles are in the folder of the user's settings: %w", err)
	}
	return filepath.Join(dir, "sluice", "profiles.json"), nil
}

// Load returns the user's profiles by their names.
func Load() (map[string]Connection, error) {
	path, err := path()
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]Connection{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it is only read
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	all, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: mend it, or remove it", path, err)
	}
	return all, nil
}

func parse(text []byte) (map[string]Connection, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("has more than %d bytes", maxFile)
	}
	var all map[string]Connection
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("is not JSON with profiles (%w)", err)
	}
	if all == nil {
		return nil, errors.New("has no object with profiles")
	}
	for name, of := range all {
		if of == nil {
			return nil, fmt.Errorf("profile %q is no object", name)
		}
		for flag := range of {
			if _, known := variables[flag]; !known {
				return nil, fmt.Errorf("profile %q: %q: want one of %s", name, flag, strings.Join(slices.Sorted(maps.Keys(variables)), ", "))
			}
		}
	}
	return all, nil
}

// save replaces the user's profiles.
func save(all map[string]Connection) (err error) {
	path, err := path()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if len(text) > maxFile {
		return fmt.Errorf("%s would have %d bytes, of at most %d: remove profiles", path, len(text), maxFile)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), "profiles-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(next.Name()))
		}
	}()
	_, err = next.Write(append(text, '\n'))
	if err = errors.Join(err, next.Close()); err != nil {
		return err
	}
	return os.Rename(next.Name(), path)
}

// find returns one of the profiles.
func find(name string, all map[string]Connection) (Connection, error) {
	of, found := all[name]
	switch {
	case found:
		return of, nil
	case len(all) == 0:
		return nil, exit.Usage(`there is no profile %q, and no other; "sluice profile set" makes one`, name)
	}
	return nil, exit.Usage("there is no profile %q: there is %s", name, strings.Join(slices.Sorted(maps.Keys(all)), ", "))
}
