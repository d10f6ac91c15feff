// Command manpages writes the man pages and the completions of all commands of sluice, which
// archives and packages hold:
//
//	go run ./internal/manpages DIR
//
// It is a program of its own, so that the binary carries neither. Its test writes docs/commands.md.
package main
