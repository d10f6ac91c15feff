package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// MaxDocument is the most bytes of the document.
const MaxDocument = 1 << 20

// ErrChanged means that the document is another than the one that was read.
var ErrChanged = errors.New("access: the document was changed in the meantime")

// Store keeps one document, for all instances that share it. Each method is atomic.
type Store interface {
	// Read returns the document and its version; nil and "" if none was written.
	Read(ctx context.Context) (document []byte, version string, err error)
	// Write replaces the document if it still has that version, otherwise it returns ErrChanged. Documents with
	// different bytes have different versions. After another error the document may have been replaced, or not.
	Write(ctx context.Context, document []byte, version string) (newVersion string, err error)
}

// Version returns a version of a document, for stores that have none of their own: its hash.
func Version(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])
}
