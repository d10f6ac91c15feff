// Command site makes a web site of the repository's documents: plain files that any web server serves, which ask no other
// host for anything. The one script is that of search.html, a list of all headings that can be read without it. It is a
// module of its own, so that its renderer reaches no user.
//
//	go run . -from ../.. -to ../../dist/site
//	python3 -m http.server --directory ../../dist/site
//
// Each document X.md becomes X.html, and README.md the index of its folder. The pages are listed as docs/README.md lists them.
// Links to files that are no documents lead to the source. A link to what does not exist, of a file or within a page, is an error.
package main
