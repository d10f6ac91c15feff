// Package renew has files that are read again when they change, such as certificates
// that are renewed while they are served.
package renew
