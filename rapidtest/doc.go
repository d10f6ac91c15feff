// Package rapidtest says how often properties are checked: a check is one run of a
// property of pgregory.net/rapid on input that it draws. Properties whose checks
// take long are checked less often, and more often with SLUICE_LONG.
package rapidtest
