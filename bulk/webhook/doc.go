// Package webhook runs a job as an HTTP request to its action's target.
//
// # Nouns
//
//   - A [Handler] is a bulk.Handler for jobs of type bulk.WebhookType.
//   - A secret signs requests, so that the target can distinguish them from forgeries.
//     Its text is "whsec_" and the base64 of 24 to 64 random bytes.
//   - [Verify] and [VerifyFor] are for the other side: they check a request that a target
//     received, VerifyFor also for whom it is.
//
// # The request
//
// Each attempt is one POST of the job's payload, with Content-Type
// application/json and the headers of the Standard Webhooks specification
// (https://www.standardwebhooks.com):
//
//	webhook-id         the job's id, the same in every attempt
//	webhook-timestamp  when this attempt was made, in seconds since 1970
//	webhook-signature  "v1," and the base64 of the HMAC-SHA256 of
//	                   "{id}.{timestamp}.{body}"; one for each secret, the current
//	                   one first, with a space between them; then one "v1s," for each,
//	                   which covers tenant and URL, too; left out if there is no secret
//	Sluice-Action      the action's id
//	Sluice-Tenant      the tenant; bytes other than visible ASCII, and %, are
//	                   percent-encoded
//	Sluice-Key         the action's key, written like the tenant; left out if it has none
//	Sluice-Attempt     which attempt this is, from 1
//	traceparent        the attempt's place in the action's trace, as W3C Trace
//	tracestate         Context has it; left out if the action is not traced
//
// A target must tolerate receiving a job again; it recognizes the job by webhook-id. User and
// password in the target's URL are sent as basic authentication.
//
// # The answer
//
//	2xx            the job succeeded; a body that is JSON is its result
//	3xx            final: redirects are not followed
//	408, 425, 5xx  failed for now; Retry-After says when to try again
//	429, 503       throttled; Retry-After says how long at least
//	other 4xx      final
//
// Its header Sluice-Cost is what the attempt has really cost, for limits by cost.
//
// If there is no answer (no connection, a broken connection, the attempt's timeout), the
// attempt failed for now. The same holds for any other status (1xx, 6xx and up).
//
// # Guarantees
//
//   - No answer can block a worker beyond the end of the attempt's context, or make it
//     read more than twice [Options.MaxResponseBytes].
//   - Error texts contain no secrets, and of a URL only its host. A redirect's
//     destination is quoted without its user, its password and the values of its query.
//   - An error text is one line.
//   - A request reaches no loopback, private, link-local, multicast or reserved address, and
//     none of this machine, unless [Options.Allow] has its network. The address is checked
//     after its name was resolved, for each connection, and an IPv6 address that stands for an
//     IPv4 address (mapped, 6to4, NAT64) is judged by both. Requests through a proxy
//     ([Options.EnvironmentProxy]) are the exception.
//
// # Trust
//
// Anyone who may create an action can make this process send a POST to any public address,
// and read part of the answer in results and errors.
package webhook
