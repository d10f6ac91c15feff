// Package bulk has the commands of "sluice bulk": run executes jobs in this process (local); submit
// and the others ask a server. Both read jobs through intake and print results through report.
package bulk
