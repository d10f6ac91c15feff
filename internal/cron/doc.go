// Package cron computes the times of cron expressions in time zones. A change of a zone's clock
// neither skips nor repeats a time: one that the clock skips is due at the change, and one that it
// shows twice is due once. Expressions with every hour, or every n-th, follow elapsed time instead
// (docs/decisions/0018).
package cron
