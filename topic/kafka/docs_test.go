package kafka

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// The documentation has exactly the supported requests.
func TestProtocolTableIsThatOfTheDocs(t *testing.T) {
	want := "| number | request | versions |\n|---:|---|---|\n"
	for _, kind := range requests {
		want += fmt.Sprintf("| %d | %s | %d–%d |\n", kind.key, requestName(kind.key), kind.min, kind.max)
	}
	page := readDoc(t, "protocol.md")
	if !strings.Contains(page, want+"\n") {
		t.Errorf("docs/topic/protocol.md should have this table:\n%s", want)
	}
}

func TestMetricsAreInTheDocs(t *testing.T) {
	page := readDoc(t, "metrics.md")
	s := NewServer(nil, Options{})
	descriptions := make(chan *prometheus.Desc, 100)
	s.Collector().Describe(descriptions)
	close(descriptions)
	for d := range descriptions {
		_, rest, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ := strings.Cut(rest, `"`)
		if !strings.Contains(page, "| `"+name+"` |") {
			t.Errorf("docs/topic/metrics.md has no row for %s", name)
		}
	}
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/topic/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}
