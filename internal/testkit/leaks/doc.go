// Package leaks fails test programs whose tests leave goroutines behind. It waits for goroutines
// that end a moment after their test, for as long as a busy machine may need.
package leaks
