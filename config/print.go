package config

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-project/sluice/room"
)

// WriteYAML writes the config as a file that gives the same config, with the source
// of each value in a comment. Secrets are not shown: a mark stands for each, and a
// file with such a mark is refused.
func (c *Config) WriteYAML(w io.Writer) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	sections := map[string]*yaml.Node{"": root}
	for _, s := range c.schema() {
		section, name := "", s.Key
		if before, after, nested := strings.Cut(s.Key, "."); nested {
			section, name = before, after
		}
		if sections[section] == nil {
			sections[section] = addMapping(root, section)
		}
		switch field := s.field.(type) {
		case *Secrets:
			addSecrets(sections[section], name, *field, c.Source(s.Key))
		case *List:
			addList(sections[section], name, *field, c.Source(s.Key))
		case *map[string]Secrets:
			mapping := addMapping(sections[section], name)
			mapping.LineComment = "# " + c.Source(s.Key)
			c.addSecretsByName(mapping, s.Key, *field)
		default:
			addValue(sections[section], name, unitOf(field), format(field), c.Source(s.Key))
		}
	}
	if len(c.Bulk.Types) > 0 {
		c.addTypes(addMapping(sections["bulk"], "types"))
	}
	if len(c.Room.Rooms) > 0 {
		if err := c.addRooms(addMapping(sections["room"], "rooms")); err != nil {
			return fmt.Errorf("print the config: %w", err)
		}
	}
	if len(c.Gate.Sites) > 0 {
		c.addSites(sections["gate"])
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return fmt.Errorf("print the config: %w", err)
	}
	return encoder.Close()
}

// addTypes adds the settings of single job types that were set.
func (c *Config) addTypes(types *yaml.Node) {
	for _, name := range slices.Sorted(maps.Keys(c.Bulk.Types)) {
		t := c.Bulk.Types[name]
		mapping := addMapping(types, name)
		for _, s := range typeSchema(&t) {
			key := typesKey + "." + name + "." + s.Key
			if source, set := c.sources[key]; set {
				addValue(mapping, s.Key, unitOf(s.field), format(s.field), source)
			}
		}
	}
}

// addSecretsByName adds the secrets of targets.
func (c *Config) addSecretsByName(mapping *yaml.Node, key string, secrets map[string]Secrets) {
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		addSecrets(mapping, name, secrets[name], c.Source(key+"."+name))
	}
}

// addSecrets adds a list that shows how many secrets there are.
func addSecrets(parent *yaml.Node, name string, secrets Secrets, source string) {
	addList(parent, name, slices.Repeat(List{hiddenSecret}, len(secrets)), source)
}

func addList(parent *yaml.Node, name string, values List, source string) {
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, LineComment: "# " + source}
	for _, value := range values {
		list.Content = append(list.Content, text(value))
	}
	parent.Content = append(parent.Content, text(name), list)
}

func addMapping(parent *yaml.Node, name string) *yaml.Node {
	mapping := &yaml.Node{Kind: yaml.MappingNode}
	parent.Content = append(parent.Content, text(name), mapping)
	return mapping
}

func addValue(parent *yaml.Node, name, unit, value, source string) {
	node := text(value)
	switch unit {
	case unitWhole:
		node.Tag = "!!int"
	case unitNumber:
		node.Tag = "!!float"
		if !strings.Contains(value, ".") {
			node.Tag = "!!int"
		}
	case unitBool:
		node.Tag = "!!bool"
	}
	node.LineComment = "# " + source
	parent.Content = append(parent.Content, text(name), node)
}

// text is a string node; it is quoted where it would read as something else.
func text(value string) *yaml.Node {
	node := &yaml.Node{}
	node.SetString(value)
	return node
}

// addRooms adds the settings of rooms that were set.
func (c *Config) addRooms(section *yaml.Node) error {
	for _, name := range slices.Sorted(maps.Keys(c.Room.Rooms)) {
		mapping := addMapping(section, name)
		text, err := json.Marshal(c.Room.Rooms[name])
		if err != nil {
			return err
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(text, &object); err != nil {
			return err
		}
		for i := range oneRoomSettings {
			s := &oneRoomSettings[i]
			if source, set := c.sources[roomsKey+"."+name+"."+s.Key]; set {
				addRoomValue(mapping, s, object[s.apiName()], source)
			}
		}
	}
	return nil
}

// addRoomValue adds a setting of a room from its value in the API, which leaves out
// empty values.
func addRoomValue(mapping *yaml.Node, s *Setting, value json.RawMessage, source string) {
	switch s.Unit {
	case unitRules:
		var rules []room.Rule
		_ = json.Unmarshal(value, &rules) // made by Marshal
		addRules(mapping, s.Key, rules, source)
	case unitDuration:
		ms, _ := strconv.ParseInt(string(value), 10, 64)
		addValue(mapping, s.Key, s.Unit, formatDuration(time.Duration(ms)*time.Millisecond), source)
	default:
		addValue(mapping, s.Key, s.Unit, strings.Trim(string(value), `"`), source)
	}
}

func addRules(mapping *yaml.Node, name string, rules []room.Rule, source string) {
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, LineComment: "# " + source}
	for _, rule := range rules {
		parts := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		for _, part := range [][2]string{{"host", rule.Host}, {"path", rule.Path}, {"method", rule.Method}} {
			if part[1] != "" {
				parts.Content = append(parts.Content, text(part[0]), text(part[1]))
			}
		}
		list.Content = append(list.Content, parts)
	}
	mapping.Content = append(mapping.Content, text(name), list)
}
