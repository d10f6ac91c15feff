// Package events publishes the events of bulk and room to the topics
// sluice.bulk.events and sluice.room.events.
//
// Each event is in its topic once, in the order of its action or visitor, although
// publishing may fail or the process may end at any time: see Publisher.
package events
