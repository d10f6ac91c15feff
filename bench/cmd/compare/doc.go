// Command compare runs all the measures of bench, several times each, and prints
// a Markdown table of each: medians, the lowest and highest, and how many times
// a peer's rate sluice has.
//
// Systems take turns within each run, so that what else the machine does meets
// them all; ratios are of the same run, and their median is printed.
package main
