// Package until repeats calls that may fail for a while, such as calls right after a server was
// killed or a network was cut.
package until
