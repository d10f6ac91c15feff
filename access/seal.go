package access

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
)

// ErrSealed means that a text was not sealed for somebody, or their secret has changed since.
var ErrSealed = errors.New("access: the text was not sealed for this sender")

// Seal returns a text that all instances can open for the same principal, and nobody can read: for cursors, which may
// name what is beyond the limits of their owner.
func (p *Principal) Seal(text string) string {
	sealer := p.sealer()
	nonce := random(sealer.NonceSize())
	return base64.RawURLEncoding.EncodeToString(sealer.Seal(nonce, nonce, []byte(text), nil))
}

// Open returns the text that was sealed. The error is ErrSealed.
func (p *Principal) Open(sealed string) (string, error) {
	sealer := p.sealer()
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(raw) < sealer.NonceSize() {
		return "", ErrSealed
	}
	text, err := sealer.Open(nil, raw[:sealer.NonceSize()], raw[sealer.NonceSize():], nil)
	if err != nil {
		return "", ErrSealed
	}
	return string(text), nil
}

// sealer seals with the hash of the principal's secret, which is not shown to anybody.
func (p *Principal) sealer() cipher.AEAD {
	block, err := aes.NewCipher(p.hash[:])
	if err == nil {
		var sealer cipher.AEAD
		if sealer, err = cipher.NewGCM(block); err == nil {
			return sealer
		}
	}
	panic(err) // the length of a hash is that of a key
}
