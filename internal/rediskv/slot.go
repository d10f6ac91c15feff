package rediskv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// Absent returns a second key for scripts whose first key, base, never exists, though it begins the
// names of all that the script uses. Redis Cluster refuses commands with several keys that do not
// exist while their slot moves, with TRYAGAIN, at both masters: so no script runs that would find
// only a part of its keys.
func Absent(base string) string { return base + "?" }

// Whole returns nil if no master has keys of a key's slot, apart from the one that serves it. A
// slot that a failover has interrupted in its move is not whole, and no node knows: the new master
// takes keys that have moved for missing. Masters that do not answer are passed over, except with
// strict. Only clusters have slots: elsewhere it asks nothing.
func (db *DB) Whole(ctx context.Context, key string, strict bool) error {
	if db.Mode() != rueidis.ClientModeCluster {
		return nil
	}
	_, err := Call(ctx, db, func(ctx context.Context) (any, error) {
		masters, slot, err := db.otherMasters(ctx, key)
		if err != nil {
			return nil, err
		}
		// Half of the time, so that the call may follow though one of them hangs.
		ctx, cancel := context.WithTimeout(ctx, db.timeout/2)
		defer cancel()
		failed := make([]error, len(masters))
		var group sync.WaitGroup
		for i, address := range masters {
			group.Go(func() { failed[i] = db.hasNone(ctx, address, slot, strict) })
		}
		group.Wait()
		return nil, errors.Join(failed...)
	})
	return err
}

// errElsewhere is a part of the errors of slots that are not whole. It counts as no answer.
var errElsewhere = errors.New("the keys of the slot are on two masters: its move has not ended, or must be continued")

// hasNone fails if a master has keys of a slot.
func (db *DB) hasNone(ctx context.Context, address string, slot int64, strict bool) error {
	node, known := db.Nodes()[address]
	if !known { // a master without slots
		options := db.options
		options.InitAddress, options.ForceSingleClient, options.DisableRetry = []string{address}, true, true
		options.Dialer.Timeout = db.timeout / 2
		client, err := rueidis.NewClient(options)
		if err != nil {
			return unless(!strict, err)
		}
		defer client.Close()
		node = client
	}
	answers := node.DoMulti(ctx, node.B().Info().Section("replication").Build(), node.B().ClusterCountkeysinslot().Slot(slot).Build())
	role, err1 := answers[0].ToString()
	count, err2 := answers[1].AsInt64()
	if err1 == nil && parseInfo(role)["role"] != "master" {
		return nil // it has become a replica, which the other node does not know yet
	}
	if err := cmp.Or(err1, err2); err != nil {
		_, answered := rueidis.IsRedisErr(err)
		return unless(!strict && !answered, fmt.Errorf("redis at %s: %w", address, err))
	}
	return unless(count == 0, fmt.Errorf("%w: redis at %s has %d keys of slot %d", errElsewhere, address, count, slot))
}

func unless(fine bool, err error) error {
	if fine {
		return nil
	}
	return err
}

// otherMasters returns the slot of a key, and the addresses of the masters that do not serve it, as
// the one that does sees them. A master that has failed, and has no slots left, is none.
func (db *DB) otherMasters(ctx context.Context, key string) (addresses []string, slot int64, err error) {
	question := db.B().ClusterShards().Build().SetSlot(key)
	slot = int64(question.Slot())
	shards, err := db.Do(ctx, question).ToArray()
	if err != nil {
		return nil, 0, err
	}
	for _, answer := range shards {
		shard, err := answer.AsMap()
		if err != nil {
			return nil, 0, err
		}
		ranges, nodes := shard["slots"], shard["nodes"]
		slots, err1 := ranges.AsIntSlice()
		list, err2 := nodes.ToArray()
		if err := errors.Join(err1, err2); err != nil {
			return nil, 0, err
		}
		if serves(slots, slot) {
			continue
		}
		for _, answer := range list {
			node, err := answer.AsMap()
			if err != nil {
				return nil, 0, err
			}
			if text(node, "role") == "master" && (!strings.HasPrefix(text(node, "health"), "fail") || len(slots) > 0) {
				addresses = append(addresses, db.addressOf(node))
			}
		}
	}
	return addresses, slot, nil
}

// serves reports whether a slot is in a list of first and last slots.
func serves(ranges []int64, slot int64) bool {
	for i := 0; i+1 < len(ranges); i += 2 {
		if ranges[i] <= slot && slot <= ranges[i+1] {
			return true
		}
	}
	return false
}

// addressOf returns the address of a node of CLUSTER SHARDS.
func (db *DB) addressOf(node map[string]rueidis.RedisMessage) string {
	port := text(node, "port")
	if db.options.TLSConfig != nil {
		port = cmp.Or(text(node, "tls-port"), port)
	}
	host := text(node, "endpoint")
	if host == "" || host == "?" {
		host = text(node, "ip")
	}
	return net.JoinHostPort(host, port)
}

// text returns a field as text, "" if there is none.
func text(node map[string]rueidis.RedisMessage, name string) string {
	field := node[name]
	if n, err := field.AsInt64(); err == nil {
		return fmt.Sprint(n)
	}
	found, _ := field.ToString()
	return found
}

// retryDelay is how long the client waits before it repeats a command that only reads: not at all
// after TRYAGAIN, which lasts as long as a slot moves, and else as the client does by default.
func retryDelay(attempts int, _ rueidis.Completed, err error) time.Duration {
	if answer, ok := rueidis.IsRedisErr(err); ok && answer.IsTryAgain() {
		return -1
	}
	return min(time.Second, time.Microsecond<<min(attempts, 20))
}
