// Package spelling finds the name that somebody may have meant, so that an
// error about an unknown one can suggest it.
package spelling
