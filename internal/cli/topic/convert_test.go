package topic

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/filestore"
)

func converted(t *testing.T, dir string, args ...string) (code int, out, said string) {
	t.Helper()
	return clitest.Command(t, Command, append([]string{"topic", "convert", "--data", dir}, args...)...)
}

// A directory of an earlier release is refused, with the command that converts it; then its
// records are served. Files of an interrupted conversion are no obstacle.
func TestTopicConvert(t *testing.T) {
	dir := stoppedTopics(t, openOldStore)
	within := filepath.Join(dir, "topic")
	_, err := filestore.Open(within, filestore.Options{Logger: discard})
	var format *filestore.FormatError
	if !errors.As(err, &format) || !strings.Contains(err.Error(), "`sluice topic convert --data "+dir+"`") {
		t.Fatalf("opening the directory of an earlier release: %v", err)
	}
	for _, left := range []string{"converting/logs/x.1", "logs/x.1", "meta"} {
		if err := os.MkdirAll(filepath.Join(within, left), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	code, out, said := converted(t, dir, "--json")
	var result convertedTopics
	if err := json.Unmarshal([]byte(out), &result); err != nil || code != 0 || result.Logs != 2 || result.Entries != 1 || result.Items == 0 || result.Before {
		t.Fatalf("convert: %d %v\n%s%s", code, err, out, said)
	}
	if _, err := os.Stat(filepath.Join(within, "converting")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the conversion: %v", err)
	}
	if _, err := os.Stat(filepath.Join(within, "jetstream")); err != nil {
		t.Errorf("the old data: %v", err)
	}
	code, out, said = converted(t, dir)
	if code != 0 || out != "" || !strings.Contains(said, "there is nothing to convert") {
		t.Errorf("convert again: %d\n%s%s", code, out, said)
	}
	holdsOrders(t, openTopicStore(t, within))
}

// holdsOrders checks the records of stoppedTopics, and closes the store.
func holdsOrders(t *testing.T, store topic.Store) {
	t.Helper()
	defer store.Close()
	broker, err := broker.New(store, topic.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = broker.Stop(t.Context()) }()
	orders, err := broker.Topic("orders")
	if err != nil {
		t.Fatal(err)
	}
	read, err := orders.Read(t.Context(), 0, 0, 1<<20)
	if err != nil || read.HighWatermark != 3 || len(read.Data) != 1 {
		t.Errorf("read %d pieces up to offset %d: %v", len(read.Data), read.HighWatermark, err)
	}
}

// A conversion that is interrupted leaves the data as it was.
func TestTopicConvertInterrupted(t *testing.T) {
	dir := stoppedTopics(t, openOldStore)
	within := filepath.Join(dir, "topic")
	if err := os.WriteFile(filepath.Join(within, "converting"), []byte("in the way"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(within, "FORMAT.new", "in the way"), 0o755); err != nil { // so that the mark cannot be changed
		t.Fatal(err)
	}
	if code, _, said := converted(t, dir); code != 1 {
		t.Errorf("convert: %d\n%s", code, said)
	}
	holdsOrders(t, openOldStore(t, within))
	if code, _, said := converted(t, filepath.Join(dir, "none")); code != 1 || !strings.Contains(said, "is not a data directory with topics") {
		t.Errorf("convert nothing: %d\n%s", code, said)
	}
}
