// Package trust has the flags of commands that connect with TLS: which authority signs the server's
// certificate, and the certificate that the client shows.
package trust
