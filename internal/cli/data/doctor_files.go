package data

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/dustin/go-humanize"

	"github.com/sluice-project/sluice/access"
	tokens "github.com/sluice-project/sluice/access/filestore"
	bulk "github.com/sluice-project/sluice/bulk/pebblestore"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/internal/connlimit"
	room "github.com/sluice-project/sluice/room/pebblestore"
	"github.com/sluice-project/sluice/topic/filestore"
)

const (
	// littleSpace is the default of the setting disk_reserve: below it a server takes no more.
	littleSpace = 256 << 20
	// slowSync is how long an fsync may take: each lone producer and each change waits for one.
	slowSync = 20 * time.Millisecond
	syncs    = 9
	// fewConnections is fewer than the default of the setting connections would be.
	fewConnections = 1000
)

// examineFiles examines the data directory of a stopped server.
func (e *examination) examineFiles(ctx context.Context, data string) {
	if _, err := os.ReadDir(data); err != nil {
		e.find("data directory", err, "name the directory that the server has as data_dir", "")
		return
	}
	exists, problems := bulk.Verify(ctx, data)
	e.examined("bulk", exists, problems, "all tables and logs are sound")
	exists, problems = room.Verify(ctx, filepath.Join(data, "room"))
	e.examined("room", exists, problems, "all tables and logs are sound")
	e.examineTopics(ctx, filepath.Join(data, "topic"))
	e.examineAccounts(ctx, data)
	e.examineDisk(data)
	e.examineSync(data)
	connections := connlimit.Descriptors()
	e.warnIf(connections < fewConnections, "open files", "raise the limit of open files of the server's user, such as LimitNOFILE=65536 of systemd",
		"the limit of this user leaves %s connections", humanize.Comma(int64(connections)))
	e.examineClock(data)
}

func (e *examination) examineTopics(ctx context.Context, dir string) {
	if _, err := os.Stat(dir); err != nil {
		e.examined("topic", false, nil, "")
		return
	}
	var read atomic.Int64
	var problems []error
	_ = term.WhileShown(e.Err, func() error {
		problems = filestore.Verify(ctx, dir, filestore.Options{}, func(n int64) { read.Add(n) })
		return nil
	}, func(rate func(int64) float64) string {
		return fmt.Sprintf("reading topics · %s · %s/s", humanize.IBytes(uint64(read.Load())), humanize.IBytes(uint64(max(rate(read.Load()), 0))))
	})
	if format, ok := errors.AsType[*filestore.FormatError](errors.Join(problems...)); ok && format.Clustered() {
		e.warnIf(true, "topic", "start the node: it checks its files, and takes what is damaged from the other nodes",
			"the topics of a node of a cluster are not examined")
		return
	}
	e.examined("topic", true, problems, humanize.IBytes(uint64(read.Load()))+" of entries, all as they were written")
}

// examineAccounts reads the tokens, if they are kept here.
func (e *examination) examineAccounts(ctx context.Context, data string) {
	document, _, err := tokens.New(data).Read(ctx)
	if err == nil && document == nil {
		e.examined("accounts", false, nil, "")
		return
	}
	var has access.Summary
	if err == nil {
		has, err = access.Summarize(document, time.Now())
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", filepath.Join(data, tokens.Name), err)
		e.find("accounts", err, "the server does not start with it: use the release of sluice that has written it, or restore the file from a backup (docs/backup.md)", "")
		return
	}
	e.warnIf(has.Expired > 0, "accounts", "revoke what has expired, which frees its names: `sluice token list`, `sluice token revoke`",
		"%s, %d of them expired; those that were revoked are gone", term.Counted(int64(has.Tokens), "token"), has.Expired)
}

// examined adds what is wrong with a part.
func (e *examination) examined(part string, exists bool, problems []error, good string) {
	if !exists {
		e.find(part, nil, "", "it has nothing here")
		return
	}
	if len(problems) == 0 {
		e.find(part, nil, "", "%s", good)
	}
	for _, err := range problems {
		var torn *filestore.NoticeError
		switch {
		case errors.As(err, &torn):
			e.warnIf(true, part, "nothing is to be done, unless this disk has lost data before", "%v", err)
		case errors.Is(err, filestore.ErrInUse):
			e.find(part, err, "stop the server first; `sluice doctor` without --data asks the running one", "")
		case errors.As(err, new(*filestore.FormatError)), errors.As(err, new(*bulk.VersionError)):
			e.find(part, err, "use the release of sluice that has written it, or a later one", "")
		default:
			e.find(part, err, "copy the directory before anything else, then restore a backup (docs/backup.md); look at the disk's own errors", "")
		}
	}
}

func (e *examination) examineDisk(data string) {
	usage, err := vfs.Default.GetDiskUsage(data)
	if err == nil && usage.AvailBytes < littleSpace {
		err = fmt.Errorf("%s are free: a server takes no new work below disk_reserve, 256 MiB by default", humanize.IBytes(usage.AvailBytes))
	}
	e.find("disk space", err, "free some space", "%s of %s are free", humanize.IBytes(usage.AvailBytes), humanize.IBytes(usage.TotalBytes))
}

// examineSync times fsyncs of a file of its own.
func (e *examination) examineSync(data string) {
	took, err := timeSyncs(data)
	if err != nil {
		e.find("fsync", err, "the server's user must be able to write there: run this as that user", "")
		return
	}
	e.warnIf(took > slowSync, "fsync", "each lone producer and each change waits for an fsync: use a disk with a power-safe cache, or topic.sync=1s",
		"%v, the median of %d", took.Round(10*time.Microsecond), syncs)
}

func timeSyncs(data string) (median time.Duration, err error) {
	file, err := os.CreateTemp(data, "doctor-*.tmp")
	if err != nil {
		return 0, err
	}
	var took []time.Duration
	for range syncs {
		if _, err = file.WriteAt(make([]byte, 4096), 0); err != nil {
			break
		}
		began := time.Now()
		if err = file.Sync(); err != nil {
			break
		}
		took = append(took, time.Since(began))
	}
	if err = errors.Join(err, file.Close(), os.Remove(file.Name())); err != nil {
		return 0, err
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

// examineClock compares the clock with the newest file.
func (e *examination) examineClock(data string) {
	var newest time.Time
	err := filepath.WalkDir(data, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
		return err
	})
	if err != nil {
		e.find("clock", err, "run this as the server's user", "")
		return
	}
	e.warnIf(time.Until(newest) > clockSkew, "clock", "set the clock, and keep it with NTP: retention, delays and schedules follow it",
		"the newest file is of %s", newest.Format(time.DateTime))
}
