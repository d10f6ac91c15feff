package rediskv

import (
	"context"
	"io/fs"
	"strings"

	"github.com/redis/rueidis"
)

// Script is a Lua script, sent by its digest.
type Script struct {
	// Name is the name of its last file.
	Name string
	lua  *rueidis.Lua
}

// The flags of scripts. A script without a flag is refused when the memory is full.
const (
	// ReadOnly scripts write nothing.
	ReadOnly = "flags=no-writes"
	// EvenFull scripts run when the memory is full too: accepted work is served in any
	// case.
	EvenFull = "flags=allow-oom"
)

// NewScript joins the files lua/NAME.lua of sources, in that order, to a script. It
// panics if one is missing, since they are embedded in the binary.
func NewScript(sources fs.FS, flags string, names ...string) Script {
	parts := []string{strings.TrimSpace("#!lua " + flags)}
	for _, name := range names {
		source, err := fs.ReadFile(sources, "lua/"+name+".lua")
		if err != nil {
			panic(err)
		}
		parts = append(parts, string(source))
	}
	text, name := strings.Join(parts, "\n"), names[len(names)-1]
	if flags == ReadOnly {
		return Script{name, rueidis.NewLuaScriptReadOnly(text)}
	}
	return Script{name, rueidis.NewLuaScript(text)}
}

// Exec runs a script and reads its answer.
func Exec[T any](ctx context.Context, db *DB, sc Script, keys, args []string, read func(rueidis.RedisResult) (T, error)) (T, error) {
	return Call(ctx, db, func(ctx context.Context) (T, error) { return read(sc.lua.Exec(ctx, db.Client, keys, args)) })
}
