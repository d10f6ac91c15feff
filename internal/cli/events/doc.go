// Package events publishes the events of bulk and room, and the audit trail, to the topics
// sluice.bulk.events, sluice.room.events and sluice.audit.
//
// Each event is in its topic once, in the order of its action or visitor, although
// publishing may fail or the process may end at any time: see Publisher.
package events
