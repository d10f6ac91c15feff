package edgetest

import (
	"bytes"
	"fmt"
	"strings"
)

var typeScript = language{
	names: map[string]string{"": "Json", "null": "null", "boolean": "boolean", "integer": "number", "number": "number", "string": "string"},
	enum:  alternatives,
	union: alternatives,
	list: func(of string) string {
		if strings.Contains(of, "|") {
			of = "(" + of + ")"
		}
		return of + "[]"
	},
	dict: func(of string) string { return "{ [key: string]: " + of + " }" },
}

func alternatives(parts []string) string { return strings.Join(parts, " | ") }

// TypeScript returns the types of a document's schemas as a TypeScript declaration file.
func TypeScript(document []byte) ([]byte, error) {
	all, err := declarations(document, typeScript)
	if err != nil {
		return nil, err
	}
	var to bytes.Buffer
	to.WriteString("// The requests and answers of the API, by its OpenAPI document: `go test ./internal/edge -run Types -update` writes this file.\n\n" +
		"/** JSON values. */\nexport type Json = null | boolean | number | string | Json[] | { [key: string]: Json };\n")
	for _, d := range all {
		to.WriteByte('\n')
		comment(&to, "", d.description)
		fmt.Fprintf(&to, "export type %s = ", d.name)
		if d.fields == nil {
			fmt.Fprintf(&to, "%s;\n", d.of)
			continue
		}
		to.WriteString("{\n")
		for _, f := range d.fields {
			mark := ""
			if f.optional {
				mark = "?"
			}
			comment(&to, "  ", f.description)
			fmt.Fprintf(&to, "  %s%s: %s;\n", f.name, mark, f.of)
		}
		if d.nullable {
			to.WriteString("} | null;\n")
		} else {
			to.WriteString("};\n")
		}
	}
	return to.Bytes(), nil
}

func comment(to *bytes.Buffer, indent, description string) {
	if description != "" {
		fmt.Fprintf(to, "%s/** %s */\n", indent, strings.ReplaceAll(description, "*/", "*\\/"))
	}
}
