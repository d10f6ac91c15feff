package edgetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// schema is what a document says of a type, as far as types of other languages can say it.
type schema struct {
	Type        any    // a name, or several
	Ref         string `json:"$ref"`
	Description string
	Enum        []string
	Items       *schema
	Properties  map[string]*schema
	Required    []string
	// AdditionalProperties is a schema, or whether there are any.
	AdditionalProperties json.RawMessage
}

// language is how a language writes types.
type language struct {
	names       map[string]string // of those without parts, by their name in JSON schemas; "" is any value
	enum, union func(parts []string) string
	list, dict  func(of string) string
}

// declaration is a named type: an object with fields, or else what of says.
type declaration struct {
	name, description, of string
	fields                []field // those that are always there, then the others
	nullable              bool    // of an object: it may be null in its place
}

type field struct {
	name, description, of string
	optional              bool
}

// declarations returns the types of a document's schemas in a language, in the order of their names. Fields come in the order in
// which answers have them; those that may be absent follow by name.
func declarations(document []byte, l language) ([]declaration, error) {
	var doc struct {
		Components struct{ Schemas map[string]*schema }
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, err
	}
	var all []declaration
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas)) {
		d, err := l.declare(doc.Components.Schemas[name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		d.name = name
		all = append(all, d)
	}
	return all, nil
}

func (l language) declare(s *schema) (declaration, error) {
	d := declaration{description: s.Description}
	names, err := s.names()
	if err != nil {
		return d, err
	}
	if len(s.Properties) == 0 {
		d.of, err = l.text(s)
		return d, err
	}
	d.nullable = slices.Contains(names, "null")
	optional := slices.DeleteFunc(slices.Sorted(maps.Keys(s.Properties)), func(name string) bool { return slices.Contains(s.Required, name) })
	for i, name := range slices.Concat(s.Required, optional) {
		of, err := l.text(s.Properties[name])
		if err != nil {
			return d, fmt.Errorf("%s: %w", name, err)
		}
		d.fields = append(d.fields, field{name, s.Properties[name].Description, of, i >= len(s.Required)})
	}
	return d, nil
}

// text returns a schema as an expression.
func (l language) text(s *schema) (string, error) {
	if s.Ref != "" {
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:], nil
	}
	names, err := s.names()
	if err != nil {
		return "", err
	}
	texts := make([]string, len(names))
	for i, name := range names {
		if texts[i], err = l.one(s, name); err != nil {
			return "", err
		}
	}
	if len(texts) == 1 {
		return texts[0], nil
	}
	return l.union(texts), nil
}

// names returns the names of a schema's type; "" stands for any JSON value.
func (s *schema) names() ([]string, error) {
	switch of := s.Type.(type) {
	case nil:
		return []string{""}, nil
	case string:
		return []string{of}, nil
	case []any:
		names := make([]string, len(of))
		for i, name := range of {
			names[i] = fmt.Sprint(name)
		}
		return names, nil
	}
	return nil, fmt.Errorf("a type is %v: want a name, or several", s.Type)
}

// one returns one of the types of a schema.
func (l language) one(s *schema, name string) (string, error) {
	switch {
	case name == "string" && len(s.Enum) > 0:
		quoted := make([]string, len(s.Enum))
		for i, value := range s.Enum {
			text, err := json.Marshal(value)
			if err != nil {
				return "", err
			}
			quoted[i] = string(text)
		}
		return l.enum(quoted), nil
	case name == "array":
		of, err := l.text(s.Items)
		return l.list(of), err
	case name == "object" && len(s.Properties) > 0:
		return "", fmt.Errorf("an object with fields within another type: give it a name")
	case name == "object":
		values := &schema{}
		if bytes.HasPrefix(s.AdditionalProperties, []byte("{")) {
			if err := json.Unmarshal(s.AdditionalProperties, values); err != nil {
				return "", err
			}
		}
		of, err := l.text(values)
		return l.dict(of), err
	}
	of, known := l.names[name]
	if !known {
		return "", fmt.Errorf("there is no type %q here: add it", name)
	}
	return of, nil
}
