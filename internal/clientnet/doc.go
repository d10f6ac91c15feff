// Package clientnet says which networks count as one client where clients are bounded by
// their addresses.
//
// # Guarantees
//
//   - An address counts for one network that is its client's, and at most one wider one.
package clientnet
