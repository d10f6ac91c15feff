package web

import (
	"context"
	"net"
	"slices"
	"strconv"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
)

type nodeRow struct {
	ID                      int32
	Here, Alive, Draining   bool
	Kafka, HTTP, Rack       string
	Listeners               map[string]string
	Leads, Replicas, Behind int
	Acts                    []link
}

type clusterPage struct {
	Off                    bool
	ID                     string
	Nodes                  []nodeRow
	Partitions, Leaderless int
	// Moving counts the partitions whose replicas are being moved.
	Moving int
	// Acts reports whether any node has acts.
	Acts bool
	Disk string
}

func (d *Dashboard) showCluster() {
	d.show(Prefix+"cluster", "cluster", func(r *request) (string, any, error) {
		page := clusterPage{Off: d.options.Topics == nil}
		if page.Off {
			return r.t("nav.cluster"), page, nil
		}
		d.nodes(r, &page)
		for i := range page.Nodes {
			if n := &page.Nodes[i]; len(page.Nodes) > 1 {
				n.Acts = r.acts(strconv.Itoa(int(n.ID)), map[bool]string{false: "drain_node", true: "resume_node"}[n.Draining])
				page.Acts = page.Acts || len(n.Acts) > 0
			}
		}
		moves, err := d.options.Topics.Reassignments(r.Context())
		page.Moving = len(moves)
		return r.t("nav.cluster"), page, err
	})
	d.show(Prefix+"settings", "settings", func(r *request) (string, any, error) {
		text, err := d.options.Settings()
		return r.t("nav.settings"), text, err
	})
}

func (d *Dashboard) nodes(r *request, page *clusterPage) {
	topics := d.options.Topics
	page.ID = topics.ClusterID()
	index := map[int32]int{}
	for _, n := range topics.Nodes() {
		row := nodeRow{ID: n.ID, Here: n.ID == topics.Node(), Alive: n.Alive, Draining: n.Draining, HTTP: n.HTTP, Rack: n.Rack, Listeners: n.Listeners}
		if n.Port > 0 {
			row.Kafka = net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port)))
		}
		index[n.ID] = len(page.Nodes)
		page.Nodes = append(page.Nodes, row)
	}
	var partitions []*broker.Partition
	for _, t := range topics.Topics() {
		if t.Source() == nil {
			partitions = append(partitions, t.Partitions()...)
		}
	}
	topics.AwaitReplicas(r.Context(), partitions)
	page.Partitions = len(partitions)
	for _, p := range partitions {
		leader := p.Leader()
		if leader < 0 {
			page.Leaderless++
		}
		whole := p.InSync()
		for _, id := range p.Replicas() {
			i, registered := index[id]
			if !registered {
				continue
			}
			n := &page.Nodes[i]
			n.Replicas++
			if id == leader {
				n.Leads++
			}
			if !slices.Contains(whole, id) {
				n.Behind++
			}
		}
	}
	if all, free, err := topics.Volume(); err == nil {
		page.Disk = r.t("cluster.free", size(free), size(all))
	}
}

func clusterPath(string) string { return Prefix + "cluster" }

// nodeOf returns the number of a node that is registered.
func (d *Dashboard) nodeOf(name string) (int32, error) {
	for _, n := range d.options.Topics.Nodes() {
		if strconv.Itoa(int(n.ID)) == name {
			return n.ID, nil
		}
	}
	return 0, topic.ErrNoNode
}

func askDrain(d *Dashboard, r *request, name, _ string) (string, error) {
	id, err := d.nodeOf(name)
	if err != nil {
		return "", err
	}
	var page clusterPage
	d.nodes(r, &page)
	for _, n := range page.Nodes {
		if n.ID == id {
			return r.t("ask."+r.get("do"), id, number(int64(n.Replicas)), number(int64(n.Leads))), nil
		}
	}
	return "", topic.ErrNoNode
}

// drainNode returns the act that drains a node, or ends that.
func drainNode(drain bool) func(context.Context, *Dashboard, string, string) error {
	return func(ctx context.Context, d *Dashboard, name, _ string) error {
		id, err := d.nodeOf(name)
		if err == nil {
			_, err = d.options.Topics.Drain(ctx, id, drain)
		}
		return err
	}
}
