package catalog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/sluice-project/sluice/topic"
)

// recordFormat is the number of the format of topics and nodes. A later version may add fields
// under the same number, if an earlier one may do without: that one keeps them when it changes
// the record. A field that it must not do without needs a new number, which an earlier version
// refuses to read. Records of before there was a number have none.
const recordFormat = 1

// Header is the part of a record that all records have.
type Header struct {
	Format int `json:"format,omitempty"`
	// unknown is the record as it was stored, if it has fields that this version does not know.
	unknown *unknown
}

type unknown struct{ stored any }

// decode decodes what is stored of a record.
func decode[R any](item topic.Item, header func(*R) *Header) (R, error) {
	var record R
	strict := json.NewDecoder(bytes.NewReader(item.Value))
	strict.DisallowUnknownFields()
	if strict.Decode(&record) != nil {
		record = *new(R)
		if err := json.Unmarshal(item.Value, &record); err != nil {
			return record, fmt.Errorf("metadata of %s: %w", item.Key, err)
		}
		header(&record).unknown = &unknown{tree(item.Value)}
	}
	if format := header(&record).Format; format > recordFormat {
		return record, fmt.Errorf("metadata of %s: format %d; this version reads %d: upgrade this node", item.Key, format, recordFormat)
	}
	return record, nil
}

// encode encodes a record, with the fields that this version does not know.
func encode(record any, header Header) ([]byte, error) {
	value, err := json.Marshal(record)
	if err != nil || header.unknown == nil {
		return value, err
	}
	return json.Marshal(merge(reflect.TypeOf(record), tree(value), header.unknown.stored))
}

// tree decodes JSON that is valid; numbers keep their digits.
func tree(value []byte) (all any) {
	decoder := json.NewDecoder(bytes.NewReader(value))
	decoder.UseNumber()
	_ = decoder.Decode(&all)
	return all
}

// merge adds to a value of a type the fields of the stored one that the type does not have.
// Elements of lists are the same if they have the same place, since records grow and shrink at
// their ends.
func merge(kind reflect.Type, now, stored any) any {
	switch now := now.(type) {
	case map[string]any:
		stored, _ := stored.(map[string]any)
		known := map[string]reflect.Type{}
		if kind.Kind() == reflect.Struct {
			known = fields(kind)
		}
		for name, value := range stored {
			field, isKnown := known[name]
			if kind.Kind() == reflect.Map {
				field, isKnown = kind.Elem(), true
			}
			if has, exists := now[name]; exists {
				now[name] = merge(field, has, value)
			} else if !isKnown {
				now[name] = value
			}
		}
	case []any:
		stored, _ := stored.([]any)
		for i := range min(len(now), len(stored)) {
			now[i] = merge(kind.Elem(), now[i], stored[i])
		}
	}
	return now
}

// fields returns the types of a struct's fields by their names in JSON.
func fields(kind reflect.Type) map[string]reflect.Type {
	named := map[string]reflect.Type{}
	for _, field := range reflect.VisibleFields(kind) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			named[name] = field.Type
		}
	}
	return named
}
