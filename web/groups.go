package web

import (
	"errors"
	"strconv"

	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
)

type groupRow struct {
	Name, To string
	State    pill
	Members  int
	Lag      string
}

type groupList struct {
	Off     bool
	Sub     []link
	Groups  []groupRow
	Pages   pager
	Cluster bool
}

func (d *Dashboard) groups(r *request) (string, any, error) {
	list := groupList{Off: d.options.Topics == nil, Sub: topicSub(r)}
	if list.Off {
		return r.t("topic.groups"), list, nil
	}
	list.Cluster = len(d.options.Topics.Nodes()) > 1
	found, err := d.options.Topics.Groups().List()
	if err != nil && len(found) == 0 {
		return "", nil, err
	}
	var names []string
	for _, g := range found {
		names = append(names, g.Name)
	}
	names, next := r.cut(names)
	lags := d.history.now().labeled["topic_group_lag"]
	for _, name := range names {
		row := groupRow{Name: name, To: groupPath(name), Lag: "–"}
		if lag, measured := lags[name]; measured {
			row.Lag = count(lag)
		}
		if described, err := d.options.Topics.Groups().Describe(name); err == nil { // else it has just gone
			row.State, row.Members = r.groupState(described.State), len(described.Members)
		}
		list.Groups = append(list.Groups, row)
	}
	list.Pages = r.page(next)
	return r.t("topic.groups"), list, nil
}

func (l *uiLanguage) groupState(s group.State) pill {
	class := map[group.State]string{group.Stable: "on", group.Empty: ""}
	c, calm := class[s]
	if !calm {
		c = "warn"
	}
	return pill{c, l.word("group.", s.String())}
}

type lagRow struct {
	Topic, To           string
	Partition           int32
	Committed, End, Lag string
}

type groupPage struct {
	Sub     []link
	State   pill
	Members []group.MemberDescription
	// More counts the members that are not shown.
	More  int
	Total string
	Lags  []lagRow
	Pages pager
	// Node coordinates the group, if it is another one.
	Node     int32
	NodeLink string
	// Name and Topics are for a reset; there are none if the sender may not, or this node knows that the group has members.
	Name   string
	Topics []string
}

func (d *Dashboard) consumerGroup(r *request) (string, any, error) {
	if d.options.Topics == nil {
		return "", nil, group.ErrNoGroup
	}
	name := r.get("name")
	lags, err := d.options.Topics.GroupLag(r.Context(), name)
	if err != nil {
		return "", nil, err
	}
	page := groupPage{Sub: topicSub(r), Name: name}
	described, err := d.options.Topics.Groups().Describe(name)
	switch {
	case errors.Is(err, group.ErrNotCoordinator):
		if page.Node, err = d.options.Topics.Groups().Coordinator(r.Context(), name); err != nil {
			return "", nil, err
		}
		page.NodeLink = d.elsewhere(page.Node) + r.URL.RequestURI()
	case err != nil:
		return "", nil, err
	default:
		page.State, page.Members = r.groupState(described.State), described.Members
		page.More = max(0, len(page.Members)-pageSize)
		page.Members = page.Members[:len(page.Members)-page.More]
	}
	page.lags(r, lags)
	if len(page.Members) == 0 && may(r.Context(), resetRight) {
		for _, lag := range lags { // which are in the order of topics
			if n := len(page.Topics); n == 0 || page.Topics[n-1] != lag.Topic {
				page.Topics = append(page.Topics, lag.Topic)
			}
		}
	}
	return name, page, nil
}

// lags adds a page of the lags, and the sum of all.
func (page *groupPage) lags(r *request, lags []broker.Lag) {
	total := int64(0)
	for _, lag := range lags {
		total += max(0, lag.Lag)
	}
	page.Total = number(total)
	from, _ := strconv.Atoi(r.get("after")) // else from the first
	from = min(max(from, 0), len(lags))
	next := ""
	if lags = lags[from:]; len(lags) > pageSize {
		lags, next = lags[:pageSize], strconv.Itoa(from+pageSize)
	}
	for _, lag := range lags {
		row := lagRow{Topic: lag.Topic, To: recordsPath(lag.Topic, lag.Partition) + "&offset=" + strconv.FormatInt(lag.Committed, 10),
			Partition: lag.Partition, Committed: number(lag.Committed), End: "–", Lag: "–"}
		if lag.Lag >= 0 {
			row.End, row.Lag = number(lag.End), number(lag.Lag)
		}
		page.Lags = append(page.Lags, row)
	}
	page.Pages = r.page(next)
}
