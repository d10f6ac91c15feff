// Package urlprefix keeps URLs below a prefix, by rules that hold for every server: a path that
// some server could read as one outside the prefix is refused.
package urlprefix
