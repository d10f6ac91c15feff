// Package kill runs an example's program, which is the test itself, against a
// broker in the process of the test, and kills it with SIGKILL while it works.
package kill
