package web

import (
	"net"
	"slices"
	"strconv"

	"github.com/sluice-project/sluice/topic/broker"
)

type nodeRow struct {
	ID                      int32
	Here, Alive, Draining   bool
	Kafka, HTTP, Rack       string
	Leads, Replicas, Behind int
}

type clusterPage struct {
	Off                    bool
	ID                     string
	Nodes                  []nodeRow
	Partitions, Leaderless int
	Disk                   string
}

func (d *Dashboard) showCluster() {
	d.show(Prefix+"cluster", "cluster", func(r *request) (string, any, error) {
		page := clusterPage{Off: d.options.Topics == nil}
		if !page.Off {
			d.nodes(r, &page)
		}
		return r.t("nav.cluster"), page, nil
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
		row := nodeRow{ID: n.ID, Here: n.ID == topics.Node(), Alive: n.Alive, Draining: n.Draining, HTTP: n.HTTP, Rack: n.Rack}
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
