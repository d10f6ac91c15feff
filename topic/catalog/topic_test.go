package catalog_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/storetest"
)

// Single servers were node 0 before they were clusters of one.
func TestPartitionsOfNodeZeroAreNodeOnes(t *testing.T) {
	record, err := catalog.ReadTopic(topic.Item{Key: "topics/orders", Value: []byte(
		`{"id":"00000000000000000000000000000001","partitions":[{"epoch":3,"replicas":[0]},{"epoch":3,"replicas":[2,3]}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	if got := record.Replicas(); !slices.Equal(got[0], []int32{1}) || !slices.Equal(got[1], []int32{2, 3}) {
		t.Errorf("replicas %v, want [[1] [2 3]]", got)
	}
}

// A field that a later version has added under the same format number stays when this one changes
// the record, at each level, unless its partition is gone.
func TestFieldsOfLaterVersionsAreKept(t *testing.T) {
	stored := `{"format":1,"id":"00000000000000000000000000000001","leaderless":{"since":9007199254740993},
		"partitions":[{"epoch":3,"replicas":[1],"tier":"cold","elect":3},{"epoch":1,"replicas":[2],"tier":"hot"}],
		"removed":{"2":{"times":1,"epoch":4,"start":5,"why":"x"}}}`
	record, err := catalog.ReadTopic(topic.Item{Key: "topics/orders", Value: []byte(stored)})
	if err != nil {
		t.Fatal(err)
	}
	record.Partitions[0].Epoch, record.Partitions[0].Elect = 4, 0
	record.Partitions = record.Partitions[:1]
	record.Settings = map[string]string{"retention.ms": "1"}
	wantStored(t, record, `{"format":1,"id":"00000000000000000000000000000001","leaderless":{"since":9007199254740993},`+
		`"partitions":[{"epoch":4,"replicas":[1],"tier":"cold"}],"removed":{"2":{"epoch":4,"start":5,"times":1,"why":"x"}},"settings":{"retention.ms":"1"}}`)

	node, err := catalog.ReadNode(topic.Item{Key: "nodes/3", Value: []byte(`{"id":3,"host":"a","port":9,"tls":true}`)})
	if err != nil {
		t.Fatal(err)
	}
	node.Draining = true
	wantStored(t, node, `{"draining":true,"format":1,"host":"a","id":3,"port":9,"tls":true}`)
	node.Listeners = map[string]string{"public": "b:9"}
	wantStored(t, node, `{"draining":true,"format":1,"host":"a","id":3,"listeners":{"public":"b:9"},"port":9,"tls":true}`)
}

func wantStored(t *testing.T, record interface{ Encode() ([]byte, error) }, want string) {
	t.Helper()
	if got, err := record.Encode(); err != nil || string(got) != want {
		t.Errorf("stored %s, %v\nwant   %s", got, err, want)
	}
}

// A record of a format that this version does not know is refused, and said to be so.
func TestRecordsOfALaterFormatAreRefused(t *testing.T) {
	_, err := catalog.ReadTopic(topic.Item{Key: "topics/orders", Value: []byte(`{"format":2,"id":"00000000000000000000000000000001"}`)})
	if err == nil || !strings.Contains(err.Error(), "topics/orders: format 2; this version reads 1") {
		t.Errorf("a topic: %v", err)
	}
	_, err = catalog.ReadNode(topic.Item{Key: "nodes/3", Value: []byte(`{"format":2,"id":3}`)})
	if err == nil || !strings.Contains(err.Error(), "nodes/3: format 2; this version reads 1") {
		t.Errorf("a node: %v", err)
	}
}

// The records of a migration of a newer version are refused, with what to do.
func TestNewerMigrationsAreRefused(t *testing.T) {
	meta := storetest.NewMemory().Meta()
	for _, key := range []string{catalog.MovedKey, catalog.ImportsPrefix + "one"} {
		if _, err := meta.Put(t.Context(), key, []byte(`{"format":2}`), 0); err != nil {
			t.Fatal(err)
		}
	}
	_, _, moved := catalog.ReadMigration(t.Context(), meta)
	opening := catalog.Opening(t.Context(), meta, func(string) {})
	for _, err := range []error{moved, opening} {
		if err == nil || !strings.Contains(err.Error(), "format 2; this version reads 1: upgrade this node") {
			t.Errorf("a migration of format 2: %v", err)
		}
	}
}
