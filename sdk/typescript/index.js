/** Workers and clients of a Sluice server, without dependencies: index.d.ts describes them. */
export { Client } from "./client.js";
export { ConnectionFailed, Refused, RetryAfter, SkipRetry, SluiceError, Throttled } from "./errors.js";
export { Room } from "./room.js";
export { Worker } from "./worker.js";
