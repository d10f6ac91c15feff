package gate

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/text/language"

	"github.com/sluice-project/sluice/room"
)

// The bounds of an operator's texts.
const (
	// MaxWords is the most bytes of a file of texts.
	MaxWords = 64 << 10
	// maxTexts is the most files of texts of a site.
	maxTexts = 100
)

//go:embed words/*.yaml
var wordFiles embed.FS

// builtIns are the languages that are built in.
var builtIns = []string{"en", "ko", "ja", "zh-Hans"}

// english has every text.
var english = mustWords("en", nil)

// builtInWords are the texts in all languages that are built in.
var builtInWords = readBuiltIns()

func readBuiltIns() []*Words {
	all := []*Words{english}
	for _, lang := range builtIns[1:] {
		all = append(all, mustWords(lang, english))
	}
	return all
}

// WordsFile returns the file of the texts in a language that is built in, for [ParseWords].
func WordsFile(lang string) ([]byte, error) {
	text, err := wordFiles.ReadFile("words/" + lang + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("language %q: want one that is built in: %s", lang, strings.Join(builtIns, ", "))
	}
	return text, nil
}

func mustWords(lang string, like *Words) *Words {
	text, err := WordsFile(lang)
	if err != nil {
		panic("gate: " + err.Error())
	}
	words, err := parseWords(text, like)
	if err != nil {
		panic("gate: the texts in " + lang + ": " + err.Error())
	}
	return words
}

// Languages are the languages that are built in; the first is the default of [Options].
func Languages() []language.Tag {
	tags := make([]language.Tag, len(builtInWords))
	for i, words := range builtInWords {
		tags[i] = words.tag()
	}
	return tags
}

func (w *Words) tag() language.Tag { return language.MustParse(w.Lang) } // parseWords has checked it

// rightToLeft are the scripts that are written from right to left.
var rightToLeft = []string{"Arab", "Hebr", "Syrc", "Thaa", "Nkoo", "Adlm", "Rohg"}

func (w *Words) direction() string {
	if script, _ := w.tag().Script(); slices.Contains(rightToLeft, script.String()) {
		return "rtl"
	}
	return "ltr"
}

// ParseWords reads the texts of a language in YAML, as the files in words have them, for
// [Site].Texts. Missing texts are those that are built in for the language, or else the English
// ones. The error says which text is wrong.
func ParseWords(text []byte) (*Words, error) {
	if len(text) > MaxWords {
		return nil, fmt.Errorf("the texts of a language have at most %d KiB", MaxWords>>10)
	}
	own, err := parseWords(text, english)
	if err != nil {
		return nil, err
	}
	base := english
	if i := slices.IndexFunc(builtInWords, func(w *Words) bool { return sameWriting(w.tag(), own.tag()) }); i >= 0 {
		base = builtInWords[i]
	}
	own.complete(base)
	return own, nil
}

// parseWords reads texts, some of which may be missing, and compares them with those of a language
// that has all, unless it is nil.
func parseWords(text []byte, like *Words) (*Words, error) {
	w := &Words{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(w); err != nil {
		return nil, fmt.Errorf("want the texts of one language, as sluice gate words prints them: %w", err)
	}
	if _, err := language.Parse(w.Lang); err != nil {
		return nil, fmt.Errorf("lang: %q: want a language, such as fr or zh-Hant", w.Lang)
	}
	if w.Time != "" && !strings.Contains(w.Time, "2006") {
		return nil, fmt.Errorf("time: %q: want how 2 January 2006, 15:04 is written", w.Time)
	}
	if like == nil {
		return w, nil
	}
	return w, w.checkAgainst(like)
}

// placeholder is where a number goes.
var placeholder = regexp.MustCompile(`\{[^}]*\}`)

// checkAgainst checks that the texts that are there have the places for numbers that others have,
// and that the others have their kinds of pages and reasons.
func (w *Words) checkAgainst(of *Words) error {
	mine, theirs := reflect.ValueOf(w).Elem(), reflect.ValueOf(of).Elem()
	for i := range mine.NumField() {
		if mine.Field(i).Kind() != reflect.String || mine.Field(i).String() == "" {
			continue
		}
		got, want := placeholders(mine.Field(i).String()), placeholders(theirs.Field(i).String())
		if !slices.Equal(got, want) {
			return fmt.Errorf("%s: %q has %q for numbers: want %q", nameOf(mine.Type().Field(i)), mine.Field(i), got, want)
		}
	}
	for kind := range w.Pages {
		if _, known := of.Pages[kind]; !known {
			return fmt.Errorf("pages: %q: there is no such page", kind)
		}
	}
	for reason := range w.Gone {
		if _, known := of.Gone[reason]; !known {
			return fmt.Errorf("gone: %q: there is no such reason", reason)
		}
	}
	return nil
}

// placeholders returns those of a text, sorted: a language may turn their order.
func placeholders(text string) []string {
	found := placeholder.FindAllString(text, -1)
	slices.Sort(found)
	return found
}

// nameOf returns the name of a text in a file.
func nameOf(field reflect.StructField) string {
	return cmp.Or(field.Tag.Get("yaml"), strings.ToLower(field.Name))
}

// complete takes the missing texts from others.
func (w *Words) complete(from *Words) {
	mine, theirs := reflect.ValueOf(w).Elem(), reflect.ValueOf(from).Elem()
	for i := range mine.NumField() {
		if mine.Field(i).IsZero() {
			mine.Field(i).Set(theirs.Field(i))
		}
	}
	pages, gone := map[Kind]Text{}, map[room.Reason]string{}
	for kind, text := range from.Pages {
		own := w.Pages[kind]
		pages[kind] = Text{cmp.Or(own.Title, text.Title), cmp.Or(own.Heading, text.Heading), cmp.Or(own.Message, text.Message)}
	}
	for reason, text := range from.Gone {
		gone[reason] = cmp.Or(w.Gone[reason], text)
	}
	w.Pages, w.Gone = pages, gone
}

// chooser chooses the words by Accept-Language.
type chooser struct {
	words   []*Words
	matcher language.Matcher
}

// newChooser returns a chooser of the languages, the default first; none: all that are built in. Own
// texts replace those of their language; further languages follow.
func newChooser(tags []language.Tag, own []*Words) (*chooser, error) {
	if len(tags) == 0 {
		tags = Languages()
	}
	if len(own) > maxTexts {
		return nil, fmt.Errorf("want at most %d", maxTexts)
	}
	for i, words := range own {
		same := func(w *Words) bool { return sameWriting(w.tag(), words.tag()) }
		if slices.ContainsFunc(own[:i], same) {
			return nil, fmt.Errorf("%q comes twice", words.Lang)
		}
		if !slices.ContainsFunc(tags, func(tag language.Tag) bool { return sameWriting(tag, words.tag()) }) {
			tags = append(slices.Clone(tags), words.tag())
		}
	}
	written := slices.Concat(own, builtInWords)
	c := &chooser{matcher: language.NewMatcher(tags)}
	for _, tag := range tags {
		i := slices.IndexFunc(written, func(w *Words) bool { return sameWriting(tag, w.tag()) })
		if i < 0 {
			return nil, fmt.Errorf("there are none in %q, which gate.languages has: %v are built in", tag, Languages())
		}
		c.words = append(c.words, written[i])
	}
	return c, nil
}

// sameWriting reports whether two tags have the same language and script: zh-CN is
// written as zh-Hans is, and zh-TW is not.
func sameWriting(a, b language.Tag) bool {
	baseA, _ := a.Base()
	baseB, _ := b.Base()
	scriptA, _ := a.Script()
	scriptB, _ := b.Script()
	return baseA == baseB && scriptA == scriptB
}

// choose returns the words for an Accept-Language; the default's if it has none of the
// languages.
func (c *chooser) choose(accept string) *Words {
	// A longer header has more languages than anybody speaks.
	if len(accept) > 1_000 {
		accept = ""
	}
	_, index := language.MatchStrings(c.matcher, accept)
	return c.words[index]
}
