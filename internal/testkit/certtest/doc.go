// Package certtest makes authorities and certificates of TLS, in files, for tests.
package certtest
