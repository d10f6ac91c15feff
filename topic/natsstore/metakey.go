package natsstore

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// Bounds of the metadata.
const (
	maxKeyBytes   = 600
	maxValueBytes = 4 << 20
)

// subjectOf returns the subject of a key: each part between slashes is a token.
func subjectOf(key string) (string, error) {
	if len(key) > maxKeyBytes {
		return "", fmt.Errorf("key of %d bytes: want at most %d", len(key), maxKeyBytes)
	}
	parts := strings.Split(key, "/")
	for i, part := range parts {
		parts[i] = tokenOf(part)
	}
	return metaSubject + strings.Join(parts, "."), nil
}

// keyOf returns the key of a subject.
func keyOf(subject string) (string, error) {
	tokens, found := strings.CutPrefix(subject, metaSubject)
	if !found {
		return "", fmt.Errorf("subject %q: want it to begin with %s", subject, metaSubject)
	}
	parts := strings.Split(tokens, ".")
	for i, token := range parts {
		part, err := partOf(token)
		if err != nil {
			return "", fmt.Errorf("subject %q: %w", subject, err)
		}
		parts[i] = part
	}
	return strings.Join(parts, "/"), nil
}

// tokenOf writes bytes as one token of a subject: what is plain stands for
// itself, anything else is = and two hexadecimal digits. No bytes are "=".
func tokenOf(part string) string {
	if part == "" {
		return "="
	}
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(part) {
		if plain(c) {
			b.WriteByte(c)
		} else {
			b.WriteByte('=')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		}
	}
	return b.String()
}

// partOf reads what tokenOf wrote.
func partOf(token string) (string, error) {
	if token == "=" {
		return "", nil
	}
	first, rest, escaped := strings.Cut(token, "=")
	if !escaped {
		return token, nil
	}
	var b strings.Builder
	b.WriteString(first)
	for _, piece := range strings.Split(rest, "=") {
		if len(piece) < 2 {
			return "", fmt.Errorf("token %q: want two digits after =", token)
		}
		code, err := hex.DecodeString(piece[:2])
		if err != nil {
			return "", fmt.Errorf("token %q: %w", token, err)
		}
		b.Write(code)
		b.WriteString(piece[2:])
	}
	return b.String(), nil
}

// filterOf returns the narrowest filter that all subjects of keys with a prefix
// pass: its whole parts, then anything.
func filterOf(prefix string) string {
	cut := strings.LastIndexByte(prefix, '/')
	if cut < 0 {
		return metaSubject + ">"
	}
	parts := strings.Split(prefix[:cut], "/")
	for i, part := range parts {
		parts[i] = tokenOf(part)
	}
	return metaSubject + strings.Join(parts, ".") + ".>"
}
