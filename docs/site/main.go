package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	from := flag.String("from", "../..", "the repository's folder")
	to := flag.String("to", "../../dist/site", "the folder to write; files that are there stay unless a page replaces them")
	flag.Parse()
	pages, err := build(os.DirFS(*from), *to)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%d pages in %s\n", pages, *to)
}
