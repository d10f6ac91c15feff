// Package upload reads the jobs of an upload: a stream of NDJSON or CSV becomes
// a sequence of payloads, each one JSON value.
//
// # Nouns
//
//   - A [Parser] yields payloads one by one; [NDJSON] and [CSV] are the parsers.
//   - An [Error] says which line of the stream is wrong, and why.
//
// # Guarantees
//
//   - Every payload is one valid JSON value in valid UTF-8, on one line.
//   - Memory is bounded by [MaxPayload], however long the stream is: neither a
//     line, nor a record, nor a payload may be longer.
//   - Nothing is guessed. What does not follow the format is an error with its
//     line number, and the values of a CSV file stay the strings that they are.
//   - An error of the stream itself is returned as it is, so that the caller can
//     tell it from a mistake in the data.
package upload
