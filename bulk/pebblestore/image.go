package pebblestore

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/pebblekv"
)

// Image is a store that is read for migration into another. It is locked, so that no
// process can open it, and not changed.
type Image struct {
	dir   string
	fs    vfs.FS
	store *Store // used only to read the database
	facts bulk.ImageFacts
}

var _ bulk.Image = (*Image)(nil)

// ErrNoStore is the error of OpenImage for a directory without a store.
var ErrNoStore = errors.New("there is no store of bulk in it")

// OpenImage opens the store in a directory for reading. It uses FS and Logger of options.
// It returns ErrInUse if a process has the store open, and ErrNoStore if there is none.
func OpenImage(dir string, options Options) (*Image, error) {
	image, err := openImage(dir, options)
	if err != nil {
		return nil, fmt.Errorf("open the store in %s: %w", dir, err)
	}
	return image, nil
}

func openImage(dir string, options Options) (*Image, error) {
	options.FS = cmp.Or(options.FS, vfs.Default)
	if found, err := pebble.Peek(dir, options.FS); err != nil || !found.Exists {
		// Opening it would create its lock file.
		return nil, errors.Join(ErrNoStore, err)
	}
	db, err := openDB(dir, options, true)
	if err != nil {
		return nil, err
	}
	image := &Image{dir: dir, fs: options.FS, store: &Store{db: db, pages: newPages(db)}}
	if err := image.readFacts(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return image, nil
}

// Close closes and unlocks the store.
func (i *Image) Close() error { return i.store.db.Close() }

func (i *Image) readFacts() error {
	value := func(key []byte) (uint64, bool, error) {
		value, err := pebblekv.Get(i.store.db, key)
		if len(value) != 8 {
			return 0, value != nil, err
		}
		return binary.BigEndian.Uint64(value), true, err
	}
	version, err := pebblekv.Get(i.store.db, metaVersion)
	if err != nil {
		return err
	}
	if version == nil {
		return ErrNoStore
	}
	if found, _ := binary.Uvarint(version); found < 1 || found > FormatVersion {
		return &VersionError{Found: found, Known: FormatVersion}
	}
	if i.facts.Secret, err = pebblekv.Get(i.store.db, metaSecret); err != nil {
		return err
	}
	var windowed bool
	var window uint64
	var errs [3]error
	i.facts.Highest, _, errs[0] = value(metaNumber)
	window, windowed, errs[1] = value(metaWindow)
	_, i.facts.KeepsEvents, errs[2] = value(metaEvents)
	if windowed {
		i.facts.WindowEnds = time.Unix(0, int64(window))
	}
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	automatic := map[string]bool{}
	err = i.store.eachSetting(func(change bulk.SettingsChange) {
		i.facts.Settings = append(i.facts.Settings, change)
		automatic[change.Name] = automatic[change.Name] || change.Target != nil && change.Target.Auto
	})
	if err != nil {
		return err
	}
	i.facts.Rates = map[string]bulk.AutoRate{}
	return pebblekv.Scan(i.store.db, []byte{keyAuto}, []byte{keyAuto + 1}, func(key, value []byte) (bool, error) {
		var rate bulk.AutoRate
		err := pebblekv.Unmarshal(key, value, &rate)
		if name := string(key[1:]); automatic[name] {
			i.facts.Rates[name] = rate
		}
		return true, err
	})
}

// Facts implements bulk.Image.
func (i *Image) Facts() bulk.ImageFacts { return i.facts }

// stream returns a scan of a range as a stream.
func stream[T any](db *pebble.DB, from, to []byte, read func(key, value []byte) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		ended := false
		err := pebblekv.Scan(db, from, to, func(key, value []byte) (bool, error) {
			item, err := read(key, value)
			if err != nil {
				return false, err
			}
			ended = !yield(item, nil)
			return !ended, nil
		})
		if err != nil && !ended {
			var none T
			yield(none, err)
		}
	}
}

// Schedules implements bulk.Image.
func (i *Image) Schedules() iter.Seq2[bulk.Schedule, error] {
	return stream(i.store.db, []byte{keySchedule}, []byte{keySchedule + 1}, decodeSchedule)
}

// Events implements bulk.Image.
func (i *Image) Events() iter.Seq2[[]bulk.Event, error] {
	return stream(i.store.db, []byte{keyEvent}, []byte{keyEvent + 1}, func(key, value []byte) ([]bulk.Event, error) {
		e, err := decodeEntry(key, value)
		return e.events, err
	})
}

// Outcomes implements bulk.Image.
func (i *Image) Outcomes(a *bulk.ActionImage) iter.Seq2[[]bulk.Outcome, error] {
	_, to := numberRange(keyOutcomes, a.Number)
	return stream(i.store.db, outcomesKey(a.Number, a.Reduced), to, func(key, value []byte) ([]bulk.Outcome, error) {
		outcomes, ok := decodeOutcomes(nil, value)
		if !ok {
			return nil, pebblekv.Corrupt(key, "not a batch of outcomes")
		}
		return outcomes, nil
	})
}

// Results implements bulk.Image.
func (i *Image) Results(a *bulk.ActionImage) iter.Seq2[bulk.ResultImage, error] {
	from, to := numberRange(keyResult, a.Number)
	return stream(i.store.db, from, to, func(key, value []byte) (r bulk.ResultImage, err error) {
		var ok bool
		r.Index = int64(binary.BigEndian.Uint32(key[9:]))
		if r.Result, r.Truncated, ok = decodeResult(value); !ok {
			return r, pebblekv.Corrupt(key, "not a result")
		}
		return r, nil
	})
}

// DeadLetters implements bulk.Image: one by one.
func (i *Image) DeadLetters(a *bulk.ActionImage) iter.Seq2[[]bulk.DeadLetter, error] {
	from, to := numberRange(keyDead, a.Number)
	return stream(i.store.db, from, to, func(key, value []byte) ([]bulk.DeadLetter, error) {
		letter, ok := decodeDeadLetter(value)
		if !ok {
			return nil, pebblekv.Corrupt(key, "not a dead letter")
		}
		letter.Index = int64(binary.BigEndian.Uint32(key[9:]))
		return []bulk.DeadLetter{letter}, nil
	})
}

// Payloads implements bulk.Image: page by page.
func (i *Image) Payloads(a *bulk.ActionImage, first, count int64) iter.Seq2[[][]byte, error] {
	return func(yield func([][]byte, error) bool) {
		for count > 0 {
			p, err := i.store.pages.read(a.Number, uint32(first))
			if err != nil {
				yield(nil, fmt.Errorf("job %s: %w", bulk.JobID(a.ID, first), err))
				return
			}
			n := min(count, int64(p.first)+int64(len(p.offsets)-1)-first)
			payloads := make([][]byte, n)
			for at := range payloads {
				payloads[at] = p.payload(uint32(first) + uint32(at))
			}
			if !yield(payloads, nil) {
				return
			}
			first, count = first+n, count-n
		}
	}
}
