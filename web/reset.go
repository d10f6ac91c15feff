package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
)

// The places to which a group can be moved; a time in UTC is one too.
const (
	placeStart = "start"
	placeEnd   = "end"
)

// moved is one partition of a reset.
type moved struct {
	partition int32
	old       int64 // -1: the group has committed nothing there
	new       int64
}

type movedRow struct {
	Partition int32
	Old, New  string
	// Again and Skipped count the records that are read again, or never.
	Again, Skipped string
}

type resetPage struct {
	Sub         []link
	Text        string
	Name, Value string
	Rows        []movedRow
	More        string
	Button      string
	Back        string
}

// conflict is a refusal that depends on the state of something.
func conflict(format string, args ...any) error {
	return &statusError{http.StatusConflict, fmt.Errorf(format, args...)}
}

// reset previews a reset: where the group would go on in each partition.
func (d *Dashboard) reset(r *request) (string, any, error) {
	if d.options.Topics == nil {
		return "", nil, group.ErrNoGroup
	}
	if err := need(r.Context(), resetRight); err != nil {
		return "", nil, err
	}
	name, place := r.get("name"), r.get("to")
	if place == "time" {
		place = r.get("time")
	}
	value := place + " " + r.get("topic")
	plan, err := d.planReset(r.Context(), name, value)
	if err != nil {
		return "", nil, err
	}
	page := resetPage{Sub: topicSub(r), Name: name, Value: value, Button: r.t("act.reset_group"), Back: groupPath(name)}
	again, skipped := int64(0), int64(0)
	for _, m := range plan {
		row := movedRow{Partition: m.partition, Old: "–", New: number(m.new), Again: "–", Skipped: "–"}
		if m.old >= 0 {
			row.Old, row.Again, row.Skipped = number(m.old), number(max(0, m.old-m.new)), number(max(0, m.new-m.old))
			again, skipped = again+max(0, m.old-m.new), skipped+max(0, m.new-m.old)
		}
		if len(page.Rows) < pageSize {
			page.Rows = append(page.Rows, row)
		}
	}
	if more := len(plan) - len(page.Rows); more > 0 {
		page.More = r.t("text.cut", number(int64(more)))
	}
	page.Text = r.t("ask.reset_group", name, r.get("topic"), number(again), number(skipped))
	return r.t("act.reset_group"), page, nil
}

// planReset returns where a group is in the partitions of a topic, and where it would be. Value is a place, a space and
// the topic. All of it must be of this node.
func (d *Dashboard) planReset(ctx context.Context, name, value string) (plan []moved, err error) {
	place, of, _ := strings.Cut(value, " ")
	t, err := d.options.Topics.Topic(of)
	if err != nil {
		return nil, err
	}
	described, err := d.options.Topics.Groups().Describe(name)
	switch {
	case errors.Is(err, group.ErrNotCoordinator):
		return nil, conflict("another node coordinates the group: use its dashboard, or sluice group reset")
	case err != nil:
		return nil, err
	case described.State != group.Empty && described.State != group.Dead:
		return nil, conflict("the group has %d members, who would go on where they are: stop them first", len(described.Members))
	}
	offsets, err := d.options.Topics.Groups().Offsets(name)
	if err != nil {
		return nil, err
	}
	for _, p := range t.Partitions() {
		if p.Leader() != d.options.Topics.Node() {
			return nil, conflict("node %d leads partition %d: use sluice group reset", p.Leader(), p.Number())
		}
		m := moved{partition: p.Number(), old: -1}
		if at, committed := offsets[of][m.partition]; committed {
			m.old = at.Offset
		}
		if m.new, err = offsetOf(ctx, p, place); err != nil {
			return nil, err
		}
		plan = append(plan, m)
	}
	return plan, nil
}

// offsetOf returns the offset of a place in a partition.
func offsetOf(ctx context.Context, p *broker.Partition, place string) (int64, error) {
	switch place {
	case placeStart:
		return p.Ends().Start, nil
	case placeEnd:
		return p.Ends().HighWatermark, nil
	}
	at, err := parseTime(place)
	if err != nil {
		return 0, err
	}
	offset, _, err := p.OffsetAt(ctx, at.UnixMilli())
	if err == nil && offset < 0 { // no record is that late
		offset = p.Ends().HighWatermark
	}
	return offset, err
}

// parseTime reads the time of a form: in UTC, to the minute.
func parseTime(text string) (time.Time, error) {
	const layout = "2006-01-02T15:04"
	at, err := time.Parse(layout, text[:min(len(text), len(layout))])
	if err != nil {
		return at, &statusError{http.StatusBadRequest, errors.New("time " + strconv.Quote(text) + ": want a time in UTC, as " + layout)}
	}
	return at, nil
}

// resetRight is needed to reset a group: to commit its offsets, in the trail of the server.
const resetRight = access.Consume | access.ManageTopics

func resetGroup(ctx context.Context, d *Dashboard, name, value string) error {
	plan, err := d.planReset(ctx, name, value)
	if err != nil {
		return err
	}
	_, of, _ := strings.Cut(value, " ")
	commit := group.CommitRequest{MemberIdentity: group.MemberIdentity{Group: name, Generation: -1}}
	for _, m := range plan {
		commit.Offsets = append(commit.Offsets, group.OffsetCommit{Topic: of, Partition: m.partition, Offset: m.new, Epoch: -1})
	}
	errs, err := d.options.Topics.Groups().Commit(commit).Wait(ctx)
	return errors.Join(append(errs, err)...)
}

// askReset is never shown: the preview of a reset asks.
func askReset(_ *Dashboard, r *request, name, _ string) (string, error) {
	return "", conflict("say where group %s goes on: see its page", name)
}
