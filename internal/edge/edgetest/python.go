package edgetest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

var python = language{
	names: map[string]string{"": "Json", "null": "None", "boolean": "bool", "integer": "int", "number": "float", "string": "str"},
	enum:  func(values []string) string { return "Literal[" + strings.Join(values, ", ") + "]" },
	union: func(parts []string) string {
		if len(parts) == 2 && slices.Contains(parts, "None") {
			return "Optional[" + strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "None" }), "") + "]"
		}
		return "Union[" + strings.Join(parts, ", ") + "]"
	},
	list: func(of string) string { return "list[" + of + "]" },
	dict: func(of string) string { return "dict[str, " + of + "]" },
}

// pythonOptions names the classes of the optional fields of some types: the client of Python takes these fields as keyword
// arguments, and has no other way to write them without the required ones.
var pythonOptions = map[string]string{"NewAction": "NewActionOptions", "NewJob": "NewJobOptions"}

// pythonWords are the words that no field of a class may be named by.
var pythonWords = strings.Fields("False None True and as assert async await break class continue def del elif else except finally for from global if import in is " +
	"lambda nonlocal not or pass raise return try while with yield")

const pythonHead = `"""The requests and answers of the API, by its OpenAPI document: ` + "`go test ./internal/edge -run Types -update`" + ` writes this file.

A TypedDict is a plain dict, as json.loads returns it; a key that is NotRequired may be absent.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, Optional, TypedDict

if sys.version_info >= (3, 11):
    from typing import NotRequired
elif TYPE_CHECKING:
    from typing_extensions import NotRequired

# Any JSON value, as json.loads returns it.
Json = Any
`

// Python returns the types of a document's schemas as a module of Python, which Python 3.9 imports without other packages.
func Python(document []byte) ([]byte, error) {
	all, err := declarations(document, python)
	if err != nil {
		return nil, err
	}
	var to, aliases bytes.Buffer
	to.WriteString(pythonHead)
	for _, d := range all {
		switch {
		case d.fields == nil:
			fmt.Fprintf(&aliases, "\n%s%s = %s\n", remark("", d.description), d.name, d.of)
		case d.nullable:
			fmt.Fprintf(&aliases, "\n%s = Optional[%s]\n", d.name, d.name+"Value")
			d.name += "Value"
			pythonClass(&to, d)
		default:
			pythonClass(&to, d)
		}
	}
	if aliases.Len() > 0 {
		to.WriteByte('\n')
		to.Write(aliases.Bytes())
	}
	return to.Bytes(), nil
}

// pythonClass writes an object, whose optional fields may have a class of their own.
func pythonClass(to *bytes.Buffer, d declaration) {
	options := pythonOptions[d.name]
	if options == "" {
		pythonFields(to, d, "TypedDict", "", required)
		return
	}
	first := slices.IndexFunc(d.fields, func(f field) bool { return f.optional })
	pythonFields(to, declaration{name: options, fields: d.fields[first:]}, "TypedDict", "total=False", func(f field) string { return f.of })
	d.fields = d.fields[:first]
	pythonFields(to, d, options, "", required)
}

// pythonFields writes a class; or a call, where the name of a field is a word of the language.
func pythonFields(to *bytes.Buffer, d declaration, base, total string, of func(field) string) {
	if !slices.ContainsFunc(d.fields, func(f field) bool { return slices.Contains(pythonWords, f.name) }) {
		fmt.Fprintf(to, "\n\n%sclass %s(%s):\n", remark("", d.description), d.name, strings.TrimSuffix(base+", "+total, ", "))
		for _, f := range d.fields {
			fmt.Fprintf(to, "%s    %s: %s\n", remark("    ", f.description), f.name, of(f))
		}
		return
	}
	fmt.Fprintf(to, "\n\n%s%s = %s(\n    %q,\n    {\n", remark("", d.description), d.name, base, d.name)
	for _, f := range d.fields {
		fmt.Fprintf(to, "%s        %q: '%s',\n", remark("        ", f.description), f.name, of(f))
	}
	to.WriteString("    },\n")
	if total != "" {
		fmt.Fprintf(to, "    %s,\n", total)
	}
	to.WriteString(")\n")
}

// required returns the type of a field, with whether it may be absent.
func required(f field) string {
	if f.optional {
		return "NotRequired[" + f.of + "]"
	}
	return f.of
}

func remark(indent, description string) string {
	if description == "" {
		return ""
	}
	return indent + "# " + strings.ReplaceAll(description, "\n", " ") + "\n"
}
