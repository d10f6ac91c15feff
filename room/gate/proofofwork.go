package gate

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	template "github.com/DataDog/datadog-agent/pkg/template/html"

	"github.com/sluice-project/sluice/room/engine"
)

// Puzzles is the part of room's engine that a ProofOfWork needs.
type Puzzles interface {
	Puzzle(ctx context.Context, name string, client netip.Addr, least, most int) (text string, bits int, err error)
	Solved(ctx context.Context, name string, client netip.Addr, puzzle, proof string) (bool, error)
}

// ProofOfWork is a [Challenge] without a provider: the browser solves a [room.Puzzle], by a script,
// and sends the form. Each place costs work then, the more the faster visitors join.
type ProofOfWork struct {
	puzzles     Puzzles
	least, most int
}

var _ Challenge = (*ProofOfWork)(nil)

// NewProofOfWork returns a challenge whose puzzles take from 2^least to 2^most hashes.
func NewProofOfWork(puzzles Puzzles, least, most int) (*ProofOfWork, error) {
	if least < engine.MinPuzzleBits || most < least || most > engine.MaxPuzzleBits {
		return nil, fmt.Errorf("puzzles of %d to %d bits: want from %d to %d", least, most, engine.MinPuzzleBits, engine.MaxPuzzleBits)
	}
	return &ProofOfWork{puzzles, least, most}, nil
}

// The fields of the form.
const puzzleField, proofField = "sluice-puzzle", "sluice-proof"

// Passed implements [Challenge].
func (p *ProofOfWork) Passed(ctx context.Context, r *http.Request, who Newcomer) (bool, error) {
	puzzle, proof := r.PostForm.Get(puzzleField), r.PostForm.Get(proofField)
	if puzzle == "" || proof == "" {
		return false, nil
	}
	return p.puzzles.Solved(ctx, who.Room, who.Client, puzzle, proof)
}

// Widget implements [Challenge].
func (p *ProofOfWork) Widget(ctx context.Context, who Newcomer) (*Widget, error) {
	puzzle, bits, err := p.puzzles.Puzzle(ctx, who.Room, who.Client, p.least, p.most)
	if err != nil {
		return nil, err
	}
	return &Widget{Kind: KindProof, HTML: proofHTML(puzzle, bits, who.Words), Script: base(who.Room) + "proof.js"}, nil
}

func proofHTML(puzzle string, bits int, words *Words) template.HTML {
	return template.HTML(`<input type="hidden" name="` + puzzleField + `" value="` + template.HTMLEscapeString(puzzle) + `" data-bits="` + strconv.Itoa(bits) + `">
<input type="hidden" name="` + proofField + `">
<label class="visually-hidden" for="proof">` + template.HTMLEscapeString(words.Proof) + `</label>
<progress id="proof" max="` + strconv.Itoa(engine.PuzzleParts) + `" value="0"></progress>
<noscript><p class="notice">` + template.HTMLEscapeString(words.NeedScript) + `</p></noscript>`)
}

// BackupTime is how long newcomers get the backup of a challenge that could not be reached.
const BackupTime = time.Minute

// WithBackup returns a challenge in whose place newcomers get the backup, while its service cannot be
// reached; the logger is told when that begins. The backup must know its own proofs.
func WithBackup(challenge, backup Challenge, logger *slog.Logger) Challenge {
	return &backed{challenge: challenge, backup: backup, logger: logger}
}

type backed struct {
	challenge, backup Challenge
	logger            *slog.Logger
	// failed is when the challenge could not be reached last, in nanoseconds since the epoch.
	failed atomic.Int64
}

// Passed implements [Challenge]. A proof of the backup is good for as long as it says: its widget
// was shown while the challenge could not be reached.
func (b *backed) Passed(ctx context.Context, r *http.Request, who Newcomer) (bool, error) {
	if passed, err := b.backup.Passed(ctx, r, who); passed || err != nil {
		return passed, err
	}
	passed, err := b.challenge.Passed(ctx, r, who)
	if err == nil {
		return passed, nil
	}
	if last := b.failed.Swap(time.Now().UnixNano()); time.Since(time.Unix(0, last)) >= BackupTime {
		b.logger.ErrorContext(ctx, "newcomers get the backup of the challenge", "error", err)
	}
	return false, nil
}

// Widget implements [Challenge].
func (b *backed) Widget(ctx context.Context, who Newcomer) (*Widget, error) {
	if time.Since(time.Unix(0, b.failed.Load())) < BackupTime {
		return b.backup.Widget(ctx, who)
	}
	return b.challenge.Widget(ctx, who)
}
