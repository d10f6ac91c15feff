package main

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

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

func newRoomLotteryCommand() *cobra.Command {
	var f remoteFlags
	var commitment, ticket string
	command := &cobra.Command{
		Use:   "lottery NAME",
		Short: "Check how the lottery of a room was drawn",
		Long: `Check how the order of those who came before the opening was drawn.

A room's seed is chosen when the room is made, and shown once it has opened. Its
commitment, the SHA-256 of the seed, is shown from the start: note it before the
opening and give it as --commitment after, and you know that the seed was not chosen
once it was seen who came. With --ticket, the number that the seed draws for that
ticket is worked out here: the lowest comes first.

The exit code is 1 if the seed is not the one of the commitment.`,
		Example: `  sluice room lottery sale
  sluice room lottery sale --commitment 8b6f…e1 --ticket AQAAAA…`,
		Args: oneRoom,
		RunE: f.withRooms(func(ctx context.Context, r *roomRemote, args []string) error {
			of, err := r.Lottery(ctx, args[0])
			if err != nil {
				return err
			}
			if of.Method != room.Lottery {
				return fmt.Errorf("%s has no lottery: who comes first is first", args[0])
			}
			checked, err := checkLottery(args[0], &of, commitment, ticket)
			if err != nil {
				return err
			}
			return r.showLottery(checked)
		}),
	}
	f.add(command)
	command.Flags().StringVar(&commitment, "commitment", "", "what was shown as the commitment before the opening, in hexadecimal `digits`")
	command.Flags().StringVar(&ticket, "ticket", "", "work out the number of this `ticket`")
	return command
}

// checkLottery checks a seed against a commitment: the one that was given, or that
// of the server.
func checkLottery(name string, of *client.Lottery, commitment, ticket string) (*checkedLottery, error) {
	checked := &checkedLottery{Room: name, Commitment: of.Commitment, OpensAt: of.OpensAt, Seed: of.Seed}
	if of.Seed == "" {
		switch {
		case commitment != "" && commitment != of.Commitment:
			checked.failure = errors.New("the commitment is not the one that you have noted")
		case ticket != "":
			checked.failure = errors.New("what a ticket has drawn can be worked out once the room has opened")
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
			return nil, wrongUsage("--ticket: %w", err)
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

func (r *roomRemote) showLottery(checked *checkedLottery) error {
	if r.json {
		if err := r.writeJSON(checked); err != nil {
			return err
		}
		return checked.failure
	}
	fmt.Fprintf(r.out, "commitment  %s\n", checked.Commitment)
	if checked.Seed == "" {
		fmt.Fprintf(r.out, "seed        shown when the room opens, at %s\n", checked.OpensAt.Format(time.RFC3339))
		return checked.failure
	}
	fmt.Fprintf(r.out, "seed        %s\n", checked.Seed)
	if checked.failure == nil {
		fmt.Fprintln(r.out, "verified    the seed is the one of the commitment")
	}
	if checked.Draw != nil {
		fmt.Fprintf(r.out, "draw        %s of %s\n", humanize.Comma(*checked.Draw), humanize.Comma(room.MaxDraw))
	}
	return checked.failure
}

func newRoomKeysCommand() *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:   "rotate-keys",
		Short: "Sign tickets and passes with a new key from now on",
		Long: `Sign tickets and passes of all rooms with a new key from now on. Nobody loses their
place: those that older keys of the ring have signed stay good.`,
		Example: `  sluice room rotate-keys`,
		Args:    cobra.NoArgs,
		RunE: f.withRooms(func(ctx context.Context, r *roomRemote, _ []string) error {
			if err := r.RotateKeys(ctx); err != nil {
				return err
			}
			return r.tell(map[string]any{"rotated": true}, "tickets and passes are signed with a new key")
		}),
	}
	f.add(command)
	return command
}
