// Package ports hands out TCP ports of this machine to tests that start servers.
//
// A port is given to one test at a time, over all test programs that run at once: a
// program locks blocks of ports in files below the folder for temporary files. All
// ports are below those that systems give to outgoing connections, so nothing takes
// a port while its server is down.
package ports
