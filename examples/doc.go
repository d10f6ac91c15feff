// Package examples holds real input, embedded in the binary, for the demo and
// for trying out commands.
//
// [Zipcodes] is CSV with a header: zip_code, latitude, longitude, city, state,
// county; 42,049 rows of 59 states and territories, from one row to 2,670 each.
// Source: GeoNames postal codes (https://www.geonames.org), CC BY 4.0, by way of
// the npm package vega-datasets.
package examples
