package engine

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/room"
)

// A room keeps its settings in its own JSON, as stores keep it.
func TestRoomKeepsSettings(t *testing.T) {
	room := Room{Name: "shop", Settings: room.Settings{Mode: room.Teller, Capacity: 3, Grace: -1}.WithDefaults(), Epoch: 2, Seed: []byte{1}}
	text, err := json.Marshal(room)
	if err != nil {
		t.Fatal(err)
	}
	var got Room
	if err := json.Unmarshal(text, &got); err != nil || !reflect.DeepEqual(got, room) {
		t.Errorf("%s became %+v, %v", text, got, err)
	}
	if !strings.Contains(string(text), `"grace_ms":0`) {
		t.Errorf("no grace in %s", text)
	}
}
