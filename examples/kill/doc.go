// Package kill runs an example's program, which is the test binary itself, against a broker in the
// test's process, and kills it with SIGKILL while it works.
package kill
