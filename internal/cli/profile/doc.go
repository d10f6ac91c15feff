// Package profile has the named sets of what commands connect with, such as a server and a token, and
// decides with what a command connects: its flags, a profile, or variables.
package profile
