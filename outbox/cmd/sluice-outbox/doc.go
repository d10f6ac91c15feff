// Command sluice-outbox runs a relay of package outbox: it sends the jobs that transactions have
// left in PostgreSQL to a Sluice server, until SIGINT or SIGTERM.
package main
