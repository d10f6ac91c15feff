// Command go plays the scenarios of sdk/scenarios.json with the worker and the clients for Go, or works
// until it is told to stop.
//
//	go play URL FILE    prints {"name", "action", "failures"} for each scenario
//	go work URL TYPE    prints the id of each job that it runs, and ends on SIGTERM
//	go room URL ROOM    passes three visitors through a room with one slot
package main
