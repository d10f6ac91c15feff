// Package access knows who calls a server, and decides what they may do. All edges ask it: HTTP and the
// Kafka protocol.
//
// # Nouns
//
//   - A token is a name with a secret, roles, limits and an end. A program shows the secret; only its hash is kept.
//   - A user is a name with credentials of SCRAM, for Kafka clients whose passwords were made elsewhere.
//   - A [Principal] is somebody who has shown the secret of a token, or the admin token of the settings.
//   - A [Right] is what an operation needs; a [Role] is a set of rights. The table in this package gives the right
//     of each HTTP operation, each other path and each Kafka request.
//   - An [ACL] allows or denies somebody an operation of Kafka on resources, beside roles and limits.
//   - A [Quota] bounds the bytes a second of a user or a client id of Kafka's; a [Meter] counts them.
//   - An instance's part of a rate is what it wants of it, or what is left by the others, divided evenly: see shares.
//   - Limits narrow a token to tenants, job types, rooms, topics or groups.
//   - [Accounts] has the tokens in memory. A [Store] keeps them, all in one document.
//
// # Guarantees
//
//   - Finding who has a secret takes no lock and no I/O.
//   - A token that was revoked or rotated by one instance is unknown to all that share the store within [Follow],
//     and the time that one read takes. While the store cannot be read, the last known tokens hold.
//   - A secret has 256 random bits. The document has its SHA-256, and salted keys for SCRAM: neither is of use to
//     somebody who wants to call the server.
//   - There are at most [MaxTokens] tokens and users, [MaxACLs] ACLs and [MaxQuotas] quotas, and the document has at most
//     [MaxDocument] bytes.
//   - A quota holds over all instances that share an [Exchange], within 5 % over 10 seconds, and makes a client wait at most
//     [MaxThrottle]. Without one it holds for each instance by itself.
//   - A nil *Principal may do everything, and nil *Accounts know nobody: that is a server without accounts.
package access
