package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/spelling"
	"github.com/sluice-project/sluice/room"
)

// maxFileBytes is the largest file that is read.
const maxFileBytes = 1 << 20

// typesKey is the section with a mapping for each job type.
const typesKey = "bulk.types"

// readFile sets what the file sets.
func (c *Config) readFile(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("config file: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return fmt.Errorf("config file: %w", err)
	}
	return c.readYAML(path, content)
}

func (c *Config) readYAML(path string, content []byte) error {
	if len(content) > maxFileBytes {
		return fmt.Errorf("config file %s: larger than %d bytes", path, maxFileBytes)
	}
	var document, another yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return fmt.Errorf("config file %s: %w", path, err)
	}
	if err := decoder.Decode(&another); !errors.Is(err, io.EOF) {
		return fmt.Errorf("config file %s: want one YAML document, it has more", path)
	}
	f := &fileReader{config: c, path: path, settings: c.schema()}
	return f.section(document.Content[0], "")
}

// fileReader walks the nodes of one file.
type fileReader struct {
	config   *Config
	path     string
	settings []Setting
}

func (f *fileReader) source(node *yaml.Node) string {
	return fmt.Sprintf("file %s:%d", f.path, node.Line)
}

func (f *fileReader) wrong(node *yaml.Node, key, why string) error {
	key = cmp.Or(key, "the document")
	return &Error{Key: key, Source: f.source(node), Why: why}
}

// entry is one key of a mapping; Key is the whole key, with its section.
type entry struct {
	key         string
	name, value *yaml.Node
}

// entries returns the keys of a mapping in their order. A section that is empty
// has none.
func (f *fileReader) entries(node *yaml.Node, section string) ([]entry, error) {
	if isNull(node) {
		return nil, nil
	}
	if node.Kind != yaml.MappingNode {
		return nil, f.wrong(node, section, "want a mapping of settings, as \"key: value\" lines")
	}
	var entries []entry
	seen := map[string]bool{}
	for i := 0; i < len(node.Content); i += 2 {
		name, value := node.Content[i], node.Content[i+1]
		if name.Kind != yaml.ScalarNode {
			return nil, f.wrong(name, section, "want a plain word as key")
		}
		key := strings.TrimPrefix(section+"."+name.Value, ".")
		if seen[name.Value] {
			return nil, f.wrong(name, key, "it is set twice")
		}
		seen[name.Value] = true
		entries = append(entries, entry{key: key, name: name, value: resolved(value)})
	}
	return entries, nil
}

func isNull(node *yaml.Node) bool {
	return node.Kind == yaml.ScalarNode && node.ShortTag() == "!!null"
}

// section reads the mapping at the section's key; empty is the document.
func (f *fileReader) section(node *yaml.Node, section string) error {
	entries, err := f.entries(node, section)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := f.entry(e); err != nil {
			return err
		}
	}
	return nil
}

func (f *fileReader) entry(e entry) error {
	switch {
	case e.key == typesKey && e.name.Value == "types":
		return f.types(e)
	case e.key == roomsKey && e.name.Value == "rooms":
		return f.rooms(e)
	case e.key == sitesKey && e.name.Value == "sites":
		return f.sites(e)
	}
	var keys []string
	for i := range f.settings {
		s := &f.settings[i]
		if s.Key == e.key && !strings.Contains(e.name.Value, ".") {
			return f.setting(s, e)
		}
		if section, _, _ := strings.Cut(s.Key, "."); section == e.key {
			return f.section(e.value, e.key)
		}
		keys = append(keys, s.Key)
	}
	return f.unknown(e, append(keys, typesKey, roomsKey, sitesKey))
}

func (f *fileReader) unknown(e entry, keys []string) error {
	near, _ := spelling.Nearest(e.key, keys)
	why := "there is no such setting; the nearest is " + near
	if near == e.key { // "bulk.workers: 3" on one line
		why = "want each level on a line of its own, and no dot in a key"
	}
	return f.wrong(e.name, e.key, why)
}

// setting reads the value of a setting of the table.
func (f *fileReader) setting(s *Setting, e entry) error {
	switch field := s.field.(type) {
	case *Secrets:
		secrets, err := f.secrets(e)
		*field = secrets
		return err
	case *List:
		return f.list(s, e)
	case *map[string]Secrets:
		return f.secretsByName(field, e)
	default:
		return f.value(e, func(text string) error {
			return f.config.set(s, text, f.source(e.value))
		})
	}
}

// secrets reads a list of secrets.
func (f *fileReader) secrets(e entry) (Secrets, error) {
	if e.value.Kind != yaml.SequenceNode {
		return nil, f.wrong(e.value, e.key, "want a list of secrets, each a line that begins with a dash")
	}
	f.config.sources[e.key] = f.source(e.value)
	return f.scalars(e, "want a secret on each line of the list")
}

// list reads a list of values, or one value.
func (f *fileReader) list(s *Setting, e entry) error {
	if e.value.Kind != yaml.SequenceNode {
		return f.value(e, func(text string) error { return f.config.set(s, text, f.source(e.value)) })
	}
	values, err := f.scalars(e, "want a value on each line of the list")
	if err != nil {
		return err
	}
	return f.config.set(s, strings.Join(values, ","), f.source(e.value))
}

// scalars returns the values of a sequence.
func (f *fileReader) scalars(e entry, want string) ([]string, error) {
	var values []string
	for _, node := range e.value.Content {
		if node = resolved(node); node.Kind != yaml.ScalarNode || isNull(node) {
			return nil, f.wrong(node, e.key, want)
		}
		values = append(values, node.Value)
	}
	return values, nil
}

// resolved follows an alias.
func resolved(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode {
		return node.Alias
	}
	return node
}

func (f *fileReader) secretsByName(into *map[string]Secrets, list entry) error {
	entries, err := f.entries(list.value, list.key)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if *into == nil {
			*into = map[string]Secrets{}
		}
		if (*into)[e.name.Value], err = f.secrets(e); err != nil {
			return err
		}
	}
	f.config.sources[list.key] = f.source(list.value)
	return nil
}

// value hands the text of a scalar to set.
func (f *fileReader) value(e entry, set func(text string) error) error {
	if e.value.Kind != yaml.ScalarNode || isNull(e.value) {
		return f.wrong(e.value, e.key, "want one value; without the key it has its default")
	}
	return set(e.value.Value)
}

// types reads the settings of single job types.
func (f *fileReader) types(types entry) error {
	entries, err := f.entries(types.value, types.key)
	if err != nil {
		return err
	}
	return readNamed(f, entries, &f.config.Bulk.Types, f.jobType)
}

// readNamed reads the values of entries into a map, by their names.
func readNamed[T any](f *fileReader, entries []entry, into *map[string]T, read func(entry) (T, error)) error {
	for _, e := range entries {
		value, err := read(e)
		if err != nil {
			return err
		}
		if *into == nil {
			*into = map[string]T{}
		}
		(*into)[e.name.Value] = value
		f.config.sources[e.key] = f.source(e.name)
	}
	return nil
}

func (f *fileReader) jobType(jobType entry) (t bulk.TypeConfig, err error) {
	entries, err := f.entries(jobType.value, jobType.key)
	for _, e := range entries {
		if err == nil {
			err = f.typeEntry(&t, e, jobType.key)
		}
	}
	return t, err
}

func (f *fileReader) typeEntry(t *bulk.TypeConfig, e entry, section string) error {
	var keys []string
	for _, s := range typeSchema(t) {
		if s.Key == e.name.Value {
			s.Key = e.key
			return f.setting(&s, e)
		}
		keys = append(keys, section+"."+s.Key)
	}
	return f.unknown(e, keys)
}

// rooms reads the rooms of the file.
func (f *fileReader) rooms(rooms entry) error {
	entries, err := f.entries(rooms.value, rooms.key)
	if err != nil {
		return err
	}
	f.config.sources[rooms.key] = f.source(rooms.name)
	return readNamed(f, entries, &f.config.Room.Rooms, f.oneRoom)
}

// oneRoom reads a room as the API would: its settings make a JSON object.
func (f *fileReader) oneRoom(of entry) (settings room.Settings, err error) {
	entries, err := f.entries(of.value, of.key)
	if err != nil {
		return settings, err
	}
	object := map[string]any{}
	for _, e := range entries {
		if err := f.roomEntry(object, e, of.key); err != nil {
			return settings, err
		}
	}
	text, err := json.Marshal(object)
	if err != nil {
		return settings, f.wrong(of.name, of.key, err.Error())
	}
	if err := json.Unmarshal(text, &settings); err != nil {
		var wrong *room.SettingsError
		if errors.As(err, &wrong) {
			f.config.sources[of.key] = f.source(of.name)
			return settings, f.config.wrongRoom(of.key, wrong)
		}
		return settings, f.wrong(of.name, of.key, err.Error())
	}
	return settings, nil
}

func (f *fileReader) roomEntry(object map[string]any, e entry, section string) error {
	var keys []string
	for i := range oneRoomSettings {
		s := &oneRoomSettings[i]
		keys = append(keys, section+"."+s.Key)
		if s.Key != e.name.Value {
			continue
		}
		f.config.sources[e.key] = f.source(e.value)
		if s.Unit == unitRules {
			rules, err := f.rules(e)
			object[s.apiName()] = rules
			return err
		}
		return f.value(e, func(text string) error {
			value, err := roomValue(s, text)
			if err != nil {
				return f.wrong(e.value, e.key, fmt.Sprintf("%q: %v", text, err))
			}
			object[s.apiName()] = value
			return nil
		})
	}
	return f.unknown(e, keys)
}

// rules reads a list of rules.
func (f *fileReader) rules(e entry) ([]map[string]string, error) {
	if e.value.Kind != yaml.SequenceNode {
		return nil, f.wrong(e.value, e.key, "want a list of rules, each with host, path or method")
	}
	rules := []map[string]string{}
	for _, node := range e.value.Content {
		parts, err := f.entries(resolved(node), e.key)
		if err != nil {
			return nil, err
		}
		rule := map[string]string{}
		for _, part := range parts {
			if !slices.Contains([]string{"host", "path", "method"}, part.name.Value) {
				return nil, f.unknown(part, []string{e.key + ".host", e.key + ".path", e.key + ".method"})
			}
			if err := f.value(part, func(text string) error { rule[part.name.Value] = text; return nil }); err != nil {
				return nil, err
			}
		}
		rules = append(rules, rule)
	}
	return rules, nil
}
