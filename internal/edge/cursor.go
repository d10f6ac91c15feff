package edge

import (
	"context"

	"github.com/sluice-project/sluice/access"
)

// HideCursor returns a cursor as the sender of a request gets it. Those who see a part of the list only, which
// limited reports, cannot read it: it may name what is beyond their limits.
func HideCursor(ctx context.Context, limited bool, cursor *string) *string {
	if cursor == nil || *cursor == "" || !limited {
		return cursor
	}
	hidden := access.From(ctx).Seal(*cursor)
	return &hidden
}

// RevealCursor returns the cursor that HideCursor got, from the parameter after; an error if the sender did not get it.
func RevealCursor(ctx context.Context, limited bool, cursor string) (string, error) {
	if cursor == "" || !limited {
		return cursor, nil
	}
	text, err := access.From(ctx).Open(cursor)
	if err != nil {
		return "", Invalid("after", "want the next of the page before")
	}
	return text, nil
}
