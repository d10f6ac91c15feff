package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/internal/edge/problem"
)

// Path is the path of the operation.
const Path = "/v1/backup"

// folder is the folder of the data directory in which snapshots are.
const folder = "backup.new"

// maxBase is the most bytes of what a request has about the base: of about 500,000 files.
const maxBase = 96 << 20

type inBackup struct {
	Body *Continuation
}

// Continuation is the body of a request; without one a full backup is taken.
type Continuation struct {
	Base *Inventory `json:"base" doc:"The backup that the new one continues: what it has of the files is left out."`
}

// Source is what a server has to back up.
type Source struct {
	// Data is the data directory.
	Data string
	// Parts and Elsewhere are as in a Description.
	Parts     []string
	Elsewhere map[string]string
	// Refusal says why there is nothing to back up, and what to do instead; empty: there is.
	Refusal string
	// Snapshot makes the folder dir with what all parts have at one moment, and returns what Write
	// takes as sizes.
	Snapshot func(ctx context.Context, dir string) (sizes map[string]int64, err error)
	// Logger gets the backups that were taken, or failed.
	Logger *slog.Logger
}

// Register adds the operation, and removes a snapshot that a killed process has left.
func Register(to *edge.API, s Source) error {
	if err := os.RemoveAll(filepath.Join(s.Data, folder)); err != nil {
		return err
	}
	b := &backups{Source: s}
	edge.Handle[inBackup, struct{}](to.Part("backup", edge.PartOptions{Logger: s.Logger, Refuse: refuse}), edge.Operation{
		ID: "back-up", Route: "POST " + Path, Summary: "A backup of everything in the data directory, as of one moment",
		Description: "A tar, whose last file has the checksums of all others: without it the backup is not whole. With a base it is incremental: the server reads all files, " +
			"and leaves out what the base has of those that begin as they do there. One backup is taken at a time.",
		MaxBody: maxBase,
		Answers: []edge.Answer{{Status: http.StatusOK, Description: "The backup.", Of: "", Type: "application/x-tar"}},
	}, b.serve)
	return nil
}

func refuse(error) *edge.Error { return nil }

// backups takes one backup at a time.
type backups struct {
	Source
	taking sync.Mutex
}

func (b *backups) serve(e *edge.Exchange) error {
	if b.Refusal != "" {
		return edge.Refuse(http.StatusConflict, problem.Conflict, b.Refusal)
	}
	base, err := baseOf(e.In)
	if err != nil {
		return err
	}
	if !b.taking.TryLock() {
		return edge.Refuse(http.StatusServiceUnavailable, problem.Busy, "a backup is being taken, and one is taken at a time").RetryAfter(time.Minute)
	}
	defer b.taking.Unlock()
	dir := filepath.Join(b.Data, folder)
	began := time.Now()
	sizes, err := b.Snapshot(e.R.Context(), dir)
	defer func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Logger.Warn("the files of a backup were not removed: the next start removes them", "folder", dir, "error", err)
		}
	}()
	if err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	snapshot := time.Since(began)
	e.W.Header().Set("Content-Type", "application/x-tar")
	e.W.Header().Set("Cache-Control", "no-store")
	err = Write(e.R.Context(), e.W, dir, sizes, base, Description{TakenAt: began, Parts: b.Parts, Elsewhere: b.Elsewhere})
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			b.Logger.Warn("a backup was not sent whole", "error", err)
		}
		panic(http.ErrAbortHandler) // the client must see that it has no end
	}
	b.Logger.Info("a backup was taken", "parts", b.Parts, "incremental", base != nil, "snapshot", snapshot.Round(time.Millisecond), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

// baseOf returns the base that a body names; nil: a full backup is to be taken.
func baseOf(body []byte) (*Inventory, error) {
	if len(body) == 0 {
		return nil, nil
	}
	var asked Continuation
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&asked); err != nil {
		return nil, edge.Invalid("body", "is not what this operation takes: "+err.Error())
	}
	if asked.Base == nil {
		return nil, edge.Invalid("base", "is missing: for a full backup send no body")
	}
	if sum, err := hex.DecodeString(asked.Base.ID); err != nil || len(sum) != sha256.Size {
		return nil, edge.Invalid("base.id", "give the SHA-256 of the base's "+sumsName+" in hexadecimal")
	}
	if asked.Base.TakenAt.IsZero() {
		return nil, edge.Invalid("base.taken_at", "give the time that the base's "+descriptionName+" has")
	}
	return asked.Base, nil
}
