// Package ranks has heaps whose items know their place, so that any of them can be moved or
// removed, and which can be read in order.
//
// A Heap has its least item first. A Walk reads the items of a heap in order and does not change it.
package ranks
