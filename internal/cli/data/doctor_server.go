package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/sluice-project/sluice/internal/cli/brokers"
	"github.com/sluice-project/sluice/internal/cli/remote"
)

// examineServer asks a running server.
func (e *examination) examineServer(command *cobra.Command, server *remote.Flags, topics *brokers.Flags) error {
	asked, err := server.Open(command)
	if err != nil {
		return err
	}
	e.examineReady(command.Context(), asked)
	client, err := topics.Open(command)
	if err != nil {
		e.find("kafka", err, "name its address with --brokers; a server with kafka=off has no topics", "")
		return nil
	}
	defer client.Kafka.Close()
	e.examineBrokers(command.Context(), client.Admin)
	return nil
}

// examineReady asks whether the server is ready, and what time it has.
func (e *examination) examineReady(ctx context.Context, server *remote.Client) {
	ctx, cancel := context.WithTimeout(ctx, 2*reachTime)
	defer cancel()
	warnings, date, err := askReady(ctx, server)
	e.find("server", err, "its log says why", "it is ready")
	for _, of := range slices.Sorted(maps.Keys(warnings)) {
		e.warnIf(true, of, "docs/watching.md says what it means, and what to do", "%s", warnings[of])
	}
	if at, err := http.ParseTime(date); err == nil {
		skew := time.Since(at).Abs()
		e.warnIf(skew > clockSkew, "clock", "keep both clocks with NTP", "the server's and this machine's differ by %s", skew.Truncate(time.Second))
	}
}

func askReady(ctx context.Context, server *remote.Client) (warnings map[string]string, date string, err error) {
	response, err := server.Send(ctx, http.MethodGet, "/readyz", nil)
	if err != nil {
		return nil, "", err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, "", err
	}
	var ready struct {
		Ready    bool              `json:"ready"`
		NotReady map[string]string `json:"not_ready"`
		Warnings map[string]string `json:"warnings"`
	}
	if err := json.Unmarshal(text, &ready); err != nil {
		return nil, "", fmt.Errorf("it answered %s: is it a sluice server?", response.Status)
	}
	for _, part := range slices.Sorted(maps.Keys(ready.NotReady)) {
		err = errors.Join(err, fmt.Errorf("%s is not ready: %s", part, ready.NotReady[part]))
	}
	return ready.Warnings, response.Header.Get("Date"), err
}

// examineBrokers examines topics, disks and the addresses that clients are given.
func (e *examination) examineBrokers(ctx context.Context, admin *kadm.Client) {
	metadata, err := admin.Metadata(ctx)
	if err != nil {
		e.find("kafka", err, "its log says why", "")
		return
	}
	for _, b := range metadata.Brokers {
		address := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
		conn, err := (&net.Dialer{Timeout: reachTime}).DialContext(ctx, "tcp", address)
		if err == nil {
			err = conn.Close()
		}
		e.find("advertised", err, "set topic.advertise to an address that clients reach: they are told to connect to this one", "node %d at %s", b.NodeID, address)
	}
	e.examinePartitions(metadata.Topics)
	dirs, err := admin.DescribeAllLogDirs(ctx, nil)
	if err != nil {
		advice := "its log says why"
		if brokers.Unauthorized(err) {
			advice = "show a token with the right read-topics, such as a viewer's"
		}
		e.find("disk space", err, advice, "")
	}
	for _, node := range slices.Sorted(maps.Keys(dirs)) {
		for _, dir := range dirs[node].Sorted() {
			e.warnIf(dir.UsableBytes < littleSpace, "disk space", "free some space: producers are refused below disk_reserve",
				"node %d has %s of %s free", node, humanize.IBytes(uint64(max(dir.UsableBytes, 0))), humanize.IBytes(uint64(max(dir.TotalBytes, 0))))
		}
	}
}

// examinePartitions counts the partitions without a leader, and those that lack replicas.
func (e *examination) examinePartitions(topics kadm.TopicDetails) {
	all, behind, offline := 0, 0, error(nil)
	topics.EachPartition(func(p kadm.PartitionDetail) {
		all++
		if p.Leader < 0 && offline == nil {
			offline = fmt.Errorf("%s/%d has no leader, and perhaps others", p.Topic, p.Partition)
		}
		if len(p.ISR) < len(p.Replicas) {
			behind++
		}
	})
	e.find("partitions", offline, "a majority of its nodes must run; a damaged log is told in the server's log", "%s, all with a leader", humanize.Comma(int64(all)))
	if behind > 0 {
		e.warnIf(true, "replicas", "start the nodes that are away; `sluice cluster show` shows them", "%s partitions have fewer replicas than they should", humanize.Comma(int64(behind)))
	}
}
