package config

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// WriteYAML writes the config as a file that gives the same config, with a
// comment after each value that says where it came from. Secrets are not shown:
// a mark stands for each, and a file with such a mark is refused.
func (c *Config) WriteYAML(w io.Writer) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	sections := map[string]*yaml.Node{"": root}
	for i := range settings {
		s := &settings[i]
		section, name := "", s.Key
		if before, after, nested := strings.Cut(s.Key, "."); nested {
			section, name = before, after
		}
		if sections[section] == nil {
			sections[section] = addMapping(root, section)
		}
		switch field := s.field(c).(type) {
		case *Secrets:
			addSecrets(sections[section], name, *field, c.Source(s.Key))
		case *List:
			addList(sections[section], name, *field, c.Source(s.Key))
		case *map[string]Secrets:
			mapping := addMapping(sections[section], name)
			mapping.LineComment = "# " + c.Source(s.Key)
			c.addSecretsByName(mapping, s.Key, *field)
		default:
			addValue(sections[section], name, s.Unit, format(field), c.Source(s.Key))
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
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return fmt.Errorf("print the config: %w", err)
	}
	return encoder.Close()
}

// addTypes adds what was set for single job types.
func (c *Config) addTypes(types *yaml.Node) {
	for _, name := range slices.Sorted(maps.Keys(c.Bulk.Types)) {
		t := c.Bulk.Types[name]
		mapping := addMapping(types, name)
		for _, s := range typeSettings {
			key := typesKey + "." + name + "." + s.Key
			if source, set := c.sources[key]; set {
				addValue(mapping, s.Key, s.Unit, format(typeField(&t, s.Key)), source)
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
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle, LineComment: "# " + source}
	for range secrets {
		list.Content = append(list.Content, text(hiddenSecret))
	}
	parent.Content = append(parent.Content, text(name), list)
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
