// Package token has "sluice token": the tokens of a server with accounts.
package token
