// Package intake turns rows into actions: the rows of a CSV or NDJSON file, or the
// records of a topic, are grouped by tenant and become one action for each. Nothing
// runs until all of them are stored.
package intake
