package view

import (
	"reflect"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/sluice-project/sluice/topic"
)

// headerMap is a CEL map of a record's headers, in which the last of a name wins. A
// lookup, which nearly all filters use, makes no Go map; all other operations do.
type headerMap struct{ headers []topic.Header }

var _ traits.Mapper = headerMap{}

// Find returns the header of a name.
func (m headerMap) Find(key ref.Val) (ref.Val, bool) {
	name, isString := key.(types.String)
	if !isString {
		return types.MaybeNoSuchOverloadErr(key), false
	}
	for i := len(m.headers) - 1; i >= 0; i-- {
		if m.headers[i].Key == string(name) {
			return types.String(m.headers[i].Value), true
		}
	}
	return nil, false
}

// Contains reports whether there is a header of a name.
func (m headerMap) Contains(key ref.Val) ref.Val {
	value, found := m.Find(key)
	if value != nil && !found { // the key is not a string
		return value
	}
	return types.Bool(found)
}

func (m headerMap) mapped() traits.Mapper {
	headers := make(map[string]string, len(m.headers))
	for _, header := range m.headers {
		headers[header.Key] = string(header.Value)
	}
	return types.NewStringStringMap(types.DefaultTypeAdapter, headers)
}

func (m headerMap) Get(key ref.Val) ref.Val          { return m.mapped().Get(key) }
func (m headerMap) Iterator() traits.Iterator        { return m.mapped().Iterator() }
func (m headerMap) Size() ref.Val                    { return m.mapped().Size() }
func (m headerMap) Equal(other ref.Val) ref.Val      { return m.mapped().Equal(other) }
func (m headerMap) Type() ref.Type                   { return types.MapType }
func (m headerMap) Value() any                       { return m.mapped().Value() }
func (m headerMap) ConvertToType(t ref.Type) ref.Val { return m.mapped().ConvertToType(t) }
func (m headerMap) ConvertToNative(t reflect.Type) (any, error) {
	return m.mapped().ConvertToNative(t)
}
