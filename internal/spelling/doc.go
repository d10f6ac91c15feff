// Package spelling finds the name nearest to an unknown one, so that an error can
// suggest it.
package spelling
