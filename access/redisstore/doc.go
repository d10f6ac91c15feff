// Package redisstore keeps the document of package access in Redis or Valkey, for all instances that share it.
//
// # Guarantees
//
//   - The document and its version are the fields of one hash, sluice:access, which one script replaces.
//   - An acknowledged document is as durable as the server makes it. It is replaced even when the server's memory
//     is full, so that tokens can be revoked.
//   - What instances tell each other of quotas is in another hash, sluice:access:told. It ends when nothing is told for
//     [access.Told], by the server's clock.
package redisstore
