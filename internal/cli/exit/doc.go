// Package exit has the exit codes of commands and the errors that choose them:
//
//	0    the command did what was asked
//	1    it failed
//	2    the command line is wrong: an unknown command, flag or setting, or a bad value
//	130  Ctrl-C or SIGTERM ended it early
//
// An error with a method ExitCode() int chooses its own code.
package exit
