package examples

import _ "embed"

// Zipcodes is the file zipcodes.csv.
//
//go:embed zipcodes.csv
var Zipcodes []byte
