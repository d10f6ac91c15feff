// Package ops is what an operator sees of a running Sluice: its logs, its
// metrics, its health, and the HTTP server that shows them.
//
// # Nouns
//
//   - The [Server] is a lifecycle.Service that listens at one address. The parts
//     mount their handlers on its mux, beside the operator's.
//   - A front is a [Server] of one handler, without the endpoints below: what the
//     public reaches.
//   - A check is a function, registered by name with [Server.Ready], that tells
//     whether one part can serve.
//   - [Tracing] sends spans to a collector, as OTLP over HTTP.
//   - The registry collects the metrics of all parts; each part registers its
//     own collector.
//
// # What it serves
//
//	GET /metrics       the registry, in the Prometheus text format
//	GET /healthz       200 while the process lives
//	GET /readyz        200 when every check passes, otherwise 503 with the names
//	                   of those that do not
//	/debug/pprof/      profiles of the process, only if asked for
//
// # Guarantees
//
//   - No request can hold up the end of the process: [Server.Stop] ends event
//     streams at once, lets other requests finish for [DrainTime], then ends
//     their context, and closes what is left when its own context ends.
//   - A collector of spans that is slow or away holds up nobody: spans wait in
//     bounded memory, and each is counted as exported, failed or dropped.
//   - A client must send its request's header within 10 seconds and in at most
//     64 KiB. Bodies are bounded by the handlers that read them. There is no
//     limit on the time of an answer, since there are event streams.
package ops
