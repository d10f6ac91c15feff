// Package clitest runs command lines in tests, and compares their output with golden
// files.
package clitest
