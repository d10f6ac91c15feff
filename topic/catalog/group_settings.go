package catalog

import (
	"context"

	"github.com/sluice-project/sluice/topic"
)

// GroupSettingsPrefix begins the keys of the settings of share groups.
const GroupSettingsPrefix = "group-settings/"

// GroupSettings is the record of what is set for a share group, which need not exist.
type GroupSettings struct {
	Header
	Settings map[string]string `json:"settings"`
}

// ReadGroupSettings returns what is set for a share group, and the item's revision; nothing, and 0, if nothing is.
func ReadGroupSettings(ctx context.Context, meta topic.Meta, name string) (settings map[string]string, revision uint64, err error) {
	item, err := Get(ctx, meta, GroupSettingsPrefix+name)
	if err == nil {
		settings, err = DecodeGroupSettings(item)
	}
	return settings, item.Revision, err
}

// DecodeGroupSettings returns what an item sets for a share group; nothing if it has revision 0.
func DecodeGroupSettings(item topic.Item) (map[string]string, error) {
	if item.Revision == 0 {
		return nil, nil
	}
	record, err := decode(item, func(r *GroupSettings) *Header { return &r.Header })
	return record.Settings, err
}

// PutGroupSettings replaces what is set for a share group at a revision; if that is nothing, it removes the item. ErrConflict
// if the revision is another one.
func PutGroupSettings(ctx context.Context, meta topic.Meta, name string, settings map[string]string, revision uint64, guards ...topic.Guard) error {
	key := GroupSettingsPrefix + name
	switch {
	case len(settings) == 0 && revision == 0:
		return nil
	case len(settings) == 0:
		return meta.Delete(ctx, key, revision, guards...)
	}
	value, err := encode(GroupSettings{Header{Format: recordFormat}, settings}, Header{})
	if err == nil {
		_, err = meta.Put(ctx, key, value, revision, guards...)
	}
	return err
}
