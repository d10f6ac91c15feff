// Command topic-share works on orders as a member of a share group: each order goes to one member, which
// accepts it, releases it for another delivery, or rejects it.
//
//	sluice serve &
//	sluice topic create orders --partitions 3
//	sluice group alter billing --set share.auto.offset.reset=earliest
//	go run ./examples/topic-share
//	echo '{"order": 1, "total": 12}' | sluice topic produce orders
//
// Start as many as you like. Kill one: its orders go to the others.
package main
