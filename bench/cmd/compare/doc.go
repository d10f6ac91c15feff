// Command compare runs all the measures of bench, several times each, and prints a Markdown table
// of each: medians, the lowest and highest, and the ratio of sluice's rate to a peer's.
//
// Systems take turns within each run, so that other load on the machine affects all of them; ratios
// are of the same run, and their median is printed.
package main
