// Package input opens the files that commands read, and names the file and line of
// an error in them.
package input
