// Package keys computes the keys of jobs by the expressions of a tenant's limits, in CEL: the [Keys]
// of a tenant, compiled from [bulk.KeyLimit]s. Stores use it where they count attempts, and the
// engine where it checks a setting. It is apart from package bulk so that programs that only call a
// server do not contain CEL.
package keys
