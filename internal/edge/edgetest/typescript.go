package edgetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// schema is what a document says of a type, as far as types of TypeScript can say it.
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

// TypeScript returns the types of a document's schemas as a TypeScript declaration file, in the order of their names. Fields come
// in the order in which answers have them; those that may be absent follow by name.
func TypeScript(document []byte) ([]byte, error) {
	var doc struct {
		Components struct{ Schemas map[string]*schema }
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, err
	}
	var to bytes.Buffer
	to.WriteString("// The requests and answers of the API, by its OpenAPI document: `go test ./internal/edge -run TypeScript -update` writes this file.\n\n" +
		"/** JSON values. */\nexport type Json = null | boolean | number | string | Json[] | { [key: string]: Json };\n")
	for _, name := range slices.Sorted(maps.Keys(doc.Components.Schemas)) {
		s := doc.Components.Schemas[name]
		to.WriteByte('\n')
		comment(&to, "", s.Description)
		body, err := s.text("")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(&to, "export type %s = %s;\n", name, body)
	}
	return to.Bytes(), nil
}

func comment(to *bytes.Buffer, indent, description string) {
	if description != "" {
		fmt.Fprintf(to, "%s/** %s */\n", indent, strings.ReplaceAll(description, "*/", "*\\/"))
	}
}

// text returns a schema as an expression.
func (s *schema) text(indent string) (string, error) {
	if s.Ref != "" {
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:], nil
	}
	names, err := s.names()
	if err != nil {
		return "", err
	}
	texts := make([]string, len(names))
	for i, name := range names {
		if texts[i], err = s.one(name, indent); err != nil {
			return "", err
		}
	}
	return strings.Join(texts, " | "), nil
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
func (s *schema) one(name, indent string) (string, error) {
	switch name {
	case "":
		return "Json", nil
	case "null", "boolean":
		return name, nil
	case "integer", "number":
		return "number", nil
	case "string":
		if len(s.Enum) == 0 {
			return "string", nil
		}
		quoted, err := json.Marshal(s.Enum)
		return strings.ReplaceAll(strings.Trim(string(quoted), "[]"), ",", " | "), err
	case "array":
		of, err := s.Items.text(indent)
		if strings.Contains(of, "|") {
			of = "(" + of + ")"
		}
		return of + "[]", err
	case "object":
		return s.object(indent)
	}
	return "", fmt.Errorf("there is no type %q in TypeScript: add it here", name)
}

// object returns an object with its fields, or one with any.
func (s *schema) object(indent string) (string, error) {
	if len(s.Properties) == 0 {
		values := &schema{}
		if bytes.HasPrefix(s.AdditionalProperties, []byte("{")) {
			if err := json.Unmarshal(s.AdditionalProperties, values); err != nil {
				return "", err
			}
		}
		of, err := values.text(indent)
		return "{ [key: string]: " + of + " }", err
	}
	var to bytes.Buffer
	to.WriteString("{\n")
	optional := slices.DeleteFunc(slices.Sorted(maps.Keys(s.Properties)), func(name string) bool { return slices.Contains(s.Required, name) })
	for i, name := range slices.Concat(s.Required, optional) {
		mark := ""
		if i >= len(s.Required) {
			mark = "?"
		}
		field := s.Properties[name]
		of, err := field.text(indent + "  ")
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		comment(&to, indent+"  ", field.Description)
		fmt.Fprintf(&to, "%s  %s%s: %s;\n", indent, name, mark, of)
	}
	return to.String() + indent + "}", nil
}
