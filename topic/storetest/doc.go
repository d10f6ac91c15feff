// Package storetest is the one suite that every topic.Store must pass, and a
// store in memory for the tests of what is above the stores.
package storetest
