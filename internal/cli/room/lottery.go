package room

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/client"
)

// checkedLottery is what "lottery" prints with --json.
type checkedLottery struct {
	Room       string    `json:"room"`
	Commitment string    `json:"commitment"`
	OpensAt    time.Time `json:"opens_at"`
	Seed       string    `json:"seed,omitempty"`
	Verified   *bool     `json:"verified,omitempty"`
	Draw       *int64    `json:"draw,omitempty"`
	failure    error
}

func newLotteryCommand() *cobra.Command {
	var commitment, ticket string
	command := onRooms(&cobra.Command{
		Use:   "lottery NAME",
		Short: "Check how the lottery of a room was drawn",
		Long: `Check how the order of the visitors who came before the opening was drawn.

A room's seed is chosen when the room is created, and published once the room has opened.
Its commitment, the SHA-256 of the seed, is public from the start. Note it before the
opening and pass it as --commitment afterwards: this proves that the seed was not chosen
after the visitors were known. With --ticket the command computes the number that the
seed draws for that ticket; the lowest number comes first.

The exit code is 1 if the seed is not the one of the commitment.`,
		Example: `  sluice room lottery sale
  sluice room lottery sale --commitment 8b6f…e1 --ticket AQAAAA…`,
		Args: oneRoom,
	}, func(ctx context.Context, r *session, args []string) error {
		of, err := r.Lottery(ctx, args[0])
		if err != nil {
			return err
		}
		if of.Method != room.Lottery {
			return fmt.Errorf("%s has no lottery: visitors are admitted in the order of arrival", args[0])
		}
		checked, err := checkLottery(args[0], &of, commitment, ticket)
		if err != nil {
			return err
		}
		return r.showLottery(checked)
	})
	command.Flags().StringVar(&commitment, "commitment", "", "the commitment that was shown before the opening, in hexadecimal `digits`")
	command.Flags().StringVar(&ticket, "ticket", "", "compute the number of this `ticket`")
	return command
}

// checkLottery checks a seed against a commitment: the given one, or the server's.
func checkLottery(name string, of *client.Lottery, commitment, ticket string) (*checkedLottery, error) {
	checked := &checkedLottery{Room: name, Commitment: of.Commitment, OpensAt: of.OpensAt, Seed: of.Seed}
	if of.Seed == "" {
		switch {
		case commitment != "" && commitment != of.Commitment:
			checked.failure = errors.New("the commitment is not the one that you have noted")
		case ticket != "":
			checked.failure = errors.New("the number of a ticket can be computed once the room has opened")
		}
		return checked, nil
	}
	seed, err := hex.DecodeString(of.Seed)
	if err != nil {
		return nil, fmt.Errorf("the server's seed: %w", err)
	}
	if commitment != "" {
		checked.Commitment = commitment
	}
	checked.failure = room.Verify(checked.Commitment, seed)
	verified := checked.failure == nil
	checked.Verified = &verified
	if ticket != "" {
		nonce, err := nonceOf(ticket)
		if err != nil {
			return nil, exit.Usage("--ticket: %w", err)
		}
		draw := room.Draw(seed, nonce)
		checked.Draw = &draw
	}
	return checked, nil
}

// nonceOf returns bytes 13 to 20 of a ticket, counted from 0: its nonce. The ticket
// is not verified.
func nonceOf(ticket string) (nonce [8]byte, err error) {
	const from, least = 13, 21
	text, err := base64.RawURLEncoding.DecodeString(ticket)
	if err != nil || len(text) < least {
		return nonce, fmt.Errorf("%.60q is no ticket", ticket)
	}
	return [8]byte(text[from:least]), nil
}

func (r *session) showLottery(checked *checkedLottery) error {
	if r.JSON {
		if err := r.WriteJSON(checked); err != nil {
			return err
		}
		return checked.failure
	}
	r.Facts([]term.Fact{
		{"commitment", checked.Commitment},
		{"seed", cmp.Or(checked.Seed, "shown when the room opens, at "+checked.OpensAt.Format(time.RFC3339))},
		{"verified", term.If(checked.Seed != "" && checked.failure == nil, "the seed is the one of the commitment")},
		{"draw", term.Or(checked.Draw, "", func(n int64) string { return humanize.Comma(n) + " of " + humanize.Comma(room.MaxDraw) })},
	}, false)
	return checked.failure
}
