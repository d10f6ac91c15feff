//go:build !race

package rapidtest

const race = false
