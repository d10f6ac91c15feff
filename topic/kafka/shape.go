package kafka

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kbin"
)

// A request is validated before it is decoded. The decoder trusts the lengths of arrays and
// the numbers of tags: a few bytes could make it allocate gigabytes, or loop for minutes.

const (
	// maxElements bounds the array elements and tags of one request.
	maxElements = 100_000
	// maxTags bounds the tags of one request. The decoder makes a map for the unknown tags of each
	// structure, a hundred times their bytes, and clients send few: a client that may omit a field
	// omits it.
	maxTags = 1000
)

// shape is the sequence of fields in a kind of request, in all of its versions.
type shape []part

// part is a field, or an array or structure of fields.
type part struct {
	// from and to are the versions that have the part.
	from, to int16
	// kind is its encoding, see shapes.
	kind  byte
	array bool
	// nullable structures have a byte in front: -1 means null.
	nullable bool
	// tagged structures are in the tagged field of that number, if present.
	tagged bool
	tag    uint32
	// inside are the fields of a structure.
	inside shape
}

// newShape parses the notation of shapes.
func newShape(text string) shape {
	s, rest := readShape(text)
	if rest != "" {
		panic("shape " + text + ": too many brackets")
	}
	return s
}

// readShape returns the shape up to a closing bracket, and the rest of the text.
func readShape(text string) (s shape, rest string) {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		if text[0] == ']' {
			return s, text[1:]
		}
		p := part{to: 1<<15 - 1}
		if at := strings.IndexByte(text, ':'); at > 0 && !strings.ContainsAny(text[:at], " []*") {
			p.from, p.to = readVersions(text[:at])
			text = text[at+1:]
		}
		switch text[0] {
		case '#':
			p.tagged, p.tag = true, uint32(text[1]-'0')
			p.inside, text = readShape(text[3:])
		case '[':
			p.array = true
			p.inside, text = readShape(text[1:])
		case '?':
			p.nullable = true
			p.inside, text = readShape(text[2:])
		case '*':
			p.array, p.kind, text = true, text[1], text[2:]
		default:
			p.kind, text = text[0], text[1:]
		}
		s = append(s, p)
	}
	return s, ""
}

// readVersions parses "3+", "-3" and "2-4".
func readVersions(text string) (from, to int16) {
	first, last, _ := strings.Cut(strings.Replace(text, "+", "-", 1), "-")
	return number(first, 0), number(last, 1<<15-1)
}

func number(text string, otherwise int16) int16 {
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 16)
	if err != nil {
		panic("shape: version " + text)
	}
	return int16(n)
}

// walk scans the body of a request.
type walk struct {
	kbin.Reader
	version        int16
	flexible       bool
	elements, tags int
}

// check returns the number of elements in a body. It returns an error if the body is shorter than its
// lengths declare, or has too many elements.
func (s shape) check(version int16, flexible bool, body []byte) (int, error) {
	w := walk{Reader: kbin.Reader{Src: body}, version: version, flexible: flexible}
	w.structure(s)
	switch {
	case w.elements > maxElements:
		return 0, fmt.Errorf("more than %d elements in one request", maxElements)
	case w.tags > maxTags:
		return 0, fmt.Errorf("more than %d tags in one request", maxTags)
	}
	return w.elements, w.Complete()
}

// fine reports whether to continue.
func (w *walk) fine() bool { return w.Ok() && w.elements <= maxElements && w.tags <= maxTags }

func (w *walk) structure(s shape) {
	for i := range s {
		p := &s[i]
		if w.version < p.from || w.version > p.to || p.tagged || !w.fine() {
			continue
		}
		if p.nullable {
			if w.Int8() != -1 && w.fine() {
				w.structure(p.inside)
			}
			continue
		}
		if !p.array {
			w.field(p.kind)
			continue
		}
		for left := w.count(); left > 0 && w.fine(); left-- {
			w.elements++
			if p.inside != nil {
				w.structure(p.inside)
			} else {
				w.field(p.kind)
			}
		}
	}
	if w.flexible {
		w.tagged(s)
	}
}

func (w *walk) count() int32 {
	if w.flexible {
		return w.CompactArrayLen()
	}
	return w.ArrayLen()
}

func (w *walk) tagged(s shape) {
	for left := w.Uvarint(); left > 0 && w.fine(); left-- {
		w.elements++
		w.tags++
		tag := w.Uvarint()
		value := w.Span(int(w.Uvarint()))
		for i := range s {
			if s[i].tagged && s[i].tag == tag {
				w.inside(s[i].inside, value)
			}
		}
	}
}

// inside scans the structure in a tagged field.
func (w *walk) inside(s shape, value []byte) {
	inner := walk{Reader: kbin.Reader{Src: value}, version: w.version, flexible: w.flexible, elements: w.elements, tags: w.tags}
	inner.structure(s)
	w.elements, w.tags = inner.elements, inner.tags
	if !inner.Ok() {
		w.Span(-1) // malformed
	}
}

// widths are the widths of fixed-size fields.
var widths = map[byte]int{'b': 1, 'h': 2, 'i': 4, 'q': 8, 'u': 16}

func (w *walk) field(kind byte) {
	length := widths[kind]
	switch {
	case length > 0:
	case w.flexible:
		length = int(w.Uvarint()) - 1
	case kind == 's':
		length = int(w.Int16())
	default:
		length = int(w.Int32())
	}
	w.Span(max(length, 0)) // null is -1
}
