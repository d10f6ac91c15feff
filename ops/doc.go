// Package ops is what an operator sees of a running Sluice: its logs, metrics and
// health, and the HTTP server that shows them.
//
// # Nouns
//
//   - The [Server] is a lifecycle.Service that listens at one address. The parts
//     register their operations on its [Server.API]; other handlers use [Server.Handle].
//   - A front is a [Server] with one handler, without the endpoints below, for the
//     public.
//   - A check is a function, registered by name with [Server.Ready], that reports
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
//	/debug/pprof/      profiles of the process, if enabled
//
// # Guarantees
//
//   - With accounts, every request but those for the public, /healthz and /readyz shows a token that has the right for
//     it, before its body is read. A request goes on for at most two seconds after this instance knows that its
//     token has ended.
//   - No request delays the end of the process: [Server.Stop] ends event streams at
//     once, lets other requests finish for [DrainTime], then ends their context, and
//     closes the rest when its own context ends.
//   - A collector of spans that is slow or down delays nothing: spans wait in bounded
//     memory, and each is counted as exported, failed or dropped.
//   - A client must send the header of a request within 10 seconds and in at most 64
//     KiB, and its body at 500 bytes a second after 20 seconds. It must take each 64
//     KiB of an answer within 30 seconds. The time of an answer has no limit, because
//     of event streams.
//   - A body that its handler leaves is read for at most 5 seconds, and 64 MiB.
//   - A request for a host that the server does not know changes nothing.
package ops
