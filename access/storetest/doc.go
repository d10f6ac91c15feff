// Package storetest is the conformance suite of access.Store, and a store in memory whose calls can fail. It is for
// tests only.
package storetest
