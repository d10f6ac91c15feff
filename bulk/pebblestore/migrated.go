package pebblestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// MigrationFile is the file in a store's directory that records where the store was
// migrated to.
const MigrationFile = "bulk-moved.json"

// Migration records where a store is migrated to.
type Migration struct {
	// ID identifies this migration of this store.
	ID string `json:"id"`
	// To is the store that takes over, for people to read, without its password.
	To string `json:"to"`
	// BegunAt is when the migration began. EndedAt is when everything was copied: from
	// then on Open refuses the store. Zero until then.
	BegunAt time.Time `json:"begun_at"`
	EndedAt time.Time `json:"ended_at,omitzero"`
}

// MigratedError is the error of Open for a store that was migrated to another.
type MigratedError struct {
	Dir, File string
	Migration Migration
}

func (e *MigratedError) Error() string {
	return fmt.Sprintf("the store in %s was migrated to %s at %s; use that one. "+
		"To use this one again, as it was then, remove the file %s: jobs that have run since then run again",
		e.Dir, e.Migration.To, e.Migration.EndedAt.UTC().Format(time.RFC3339), e.File)
}

// Migration returns where the store is migrated to; the zero value if it is not.
func (i *Image) Migration() (Migration, error) { return readMigration(i.fs, i.dir) }

// SetMigration records in the directory where the store is migrated to. The store itself
// does not change. Once Migration.EndedAt is set, Open refuses the directory with a
// *MigratedError.
func (i *Image) SetMigration(m Migration) error {
	if err := i.writeMigration(m); err != nil {
		return fmt.Errorf("record in %s where it is migrated to: %w", i.dir, err)
	}
	return nil
}

func (i *Image) writeMigration(m Migration) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	name := i.fs.PathJoin(i.dir, MigrationFile)
	file, err := i.fs.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := i.fs.Rename(name+".new", name); err != nil {
		return err
	}
	dir, err := i.fs.OpenDir(i.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// maxMigrationBytes bounds the file, which people may edit.
const maxMigrationBytes = 64 << 10

func readMigration(files vfs.FS, dir string) (m Migration, err error) {
	name := files.PathJoin(dir, MigrationFile)
	file, err := files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxMigrationBytes))
	if err := errors.Join(err, file.Close()); err != nil {
		return m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("%s records where the store was migrated to, and cannot be read: %w", name, err)
	}
	return m, nil
}

// refuseMigrated refuses a directory whose store was migrated.
func refuseMigrated(files vfs.FS, dir string) error {
	m, err := readMigration(files, dir)
	if err == nil && !m.EndedAt.IsZero() {
		err = &MigratedError{Dir: dir, File: files.PathJoin(dir, MigrationFile), Migration: m}
	}
	return err
}
