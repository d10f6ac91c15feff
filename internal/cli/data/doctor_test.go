package data_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/data"
)

// The doctor tells what a server that is ready warns of, as a warning.
func TestDoctorTellsWarnings(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"ready":true,"warnings":{"disk":"the disk is slow: an fsync of the store topic took 5s"}}`))
	}))
	defer server.Close()
	_, stdout, stderr := clitest.Command(t, data.Doctor, "doctor", "--server", server.URL, "--brokers", "127.0.0.1:1", "--json")
	for _, want := range []string{`{"check":"server","result":"ok","detail":"it is ready"}`, `{"check":"disk","result":"warning","detail":"the disk is slow: an fsync of the store topic took 5s","advice":`} {
		if !strings.Contains(stdout, want) {
			t.Errorf("it does not say %s:\n%s%s", want, stdout, stderr)
		}
	}
}
