// Package puzzle solves the puzzles of package room as a program would.
package puzzle
