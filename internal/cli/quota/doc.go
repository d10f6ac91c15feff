// Package quota has "sluice quota": the quotas of a server with accounts.
package quota
