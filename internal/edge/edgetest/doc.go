// Package edgetest checks that an API answers as its document says, and that the
// document is valid OpenAPI. It is for tests only.
//
// # Nouns
//
//   - A [Document] is the OpenAPI document of an API: [Read] checks it as a whole,
//     [Document.Conforms] one answer against it.
//
// # Guarantees
//
//   - An answer conforms only if the document has its operation, its status, its
//     content type and its shape.
package edgetest
