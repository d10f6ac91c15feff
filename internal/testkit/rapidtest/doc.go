// Package rapidtest sets how often properties are checked. A check is one run of a property of
// pgregory.net/rapid on drawn input. Slow properties are checked less often, and all more often
// with SLUICE_LONG.
package rapidtest
