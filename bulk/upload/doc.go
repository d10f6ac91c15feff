// Package upload reads the jobs of an upload: a stream of NDJSON or CSV becomes
// a sequence of payloads, each one JSON value.
//
// # Nouns
//
//   - A [Parser] yields payloads one by one; [NDJSON] and [CSV] are the parsers.
//   - An [Error] has the line of the stream that is wrong, and the reason.
//
// # Guarantees
//
//   - Every payload is one valid JSON value in valid UTF-8, on one line.
//   - Memory is bounded by [MaxPayload], however long the stream is: neither a
//     line, nor a record, nor a payload may be longer.
//   - Nothing is guessed. A deviation from the format is an error with its line number, and the
//     values of a CSV file remain strings.
//   - An error of the stream itself is returned unchanged, so that callers can distinguish it
//     from a mistake in the data.
package upload
