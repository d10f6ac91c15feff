// Package spans makes the OpenTelemetry spans of topics: of requests of Kafka clients, and of what a broker does by itself. The
// names and attributes are those of the semantic conventions for messaging, where there are any: docs/tracing.md has them.
//
// Each span is made when its work has ended, and is a trace of its own: the Kafka protocol has no field for the trace of a
// request. Those of records that are read are linked to the traces that the records name. A nil *Spans makes none, and costs nothing.
package spans
