package tidy

// rule says what one package may import.
type rule struct {
	// imports are the packages of this module that its code may import.
	imports []string
	// refuses are packages of others, with those below them, that its code must
	// not import: what keeps its core free of I/O and of edges.
	refuses []string
	// testOnly packages may be imported by tests, and by each other, only.
	testOnly bool
}

// packages names every package of the module, by its folder.
var packages = map[string]rule{
	"cmd/sluice": {imports: []string{"config"}},
	"config":     {imports: []string{"bulk"}},
	"ops":        {imports: []string{"lifecycle"}},
	"bulk": {
		imports: []string{"lifecycle"},
		refuses: []string{"net/http", "os", "github.com/cockroachdb/pebble", "github.com/spf13"},
	},
	"lifecycle": {refuses: []string{"github.com", "net"}},
	"tidy":      {testOnly: true},
}

// notInTheBinary are packages that only tests need.
var notInTheBinary = []string{"testing", "net/http/httptest", "pgregory.net/rapid", "go.uber.org/goleak"}

// The most lines of a file and of a function.
const (
	maxFileLines = 400
	maxFuncLines = 60
)

// ratchet is an exception from a size: a number of lines that may only fall.
type ratchet struct {
	lines  int
	reason string
}

// longFiles are the exceptions from maxFileLines, by path.
var longFiles = map[string]ratchet{}

// longFuncs are the exceptions from maxFuncLines, by path and name.
var longFuncs = map[string]ratchet{
	"bulk/action.go Action.Apply": {66, "the status machine: one switch with a case for each move reads as a table"},
}

// historic documents tell of what was, so paths in them need not exist any more.
var historic = []string{"CHANGELOG.md", "docs/decisions/"}
