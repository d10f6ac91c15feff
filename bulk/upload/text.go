package upload

// plain marks the bytes that stand for themselves in a JSON string.
var plain = func() (table [256]bool) {
	for b := range table {
		table[b] = b >= 0x20 && b != '"' && b != '\\'
	}
	return table
}()

// appendString appends text, which is valid UTF-8, as a JSON string.
func appendString(to, text []byte) []byte {
	to = append(to, '"')
	done := 0
	for i, b := range text {
		if plain[b] {
			continue
		}
		to = append(to, text[done:i]...)
		to = appendEscape(to, b)
		done = i + 1
	}
	to = append(to, text[done:]...)
	return append(to, '"')
}

func appendEscape(to []byte, b byte) []byte {
	const digits = "0123456789abcdef"
	switch b {
	case '"', '\\':
		return append(to, '\\', b)
	case '\n':
		return append(to, '\\', 'n')
	case '\r':
		return append(to, '\\', 'r')
	case '\t':
		return append(to, '\\', 't')
	default:
		return append(to, '\\', 'u', '0', '0', digits[b>>4], digits[b&0xf])
	}
}
