// Command termsvg draws text as it stands in a terminal, as an SVG image that follows
// the reader's light or dark theme. It draws docs/demo.svg:
//
//	go run ./cmd/sluice demo --top 3 | go run ./internal/termsvg -title "sluice demo" > docs/demo.svg
package main
