// Command sluice keeps a service standing when traffic surges. Its commands are in
// internal/cli.
package main
