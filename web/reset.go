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
	at, err := parsePlace(place)
	if err != nil {
		return "", nil, err
	}
	plan, err := d.options.Topics.PlanReset(r.Context(), name, r.get("topic"), at)
	if err != nil {
		return "", nil, refused(err)
	}
	value := place + " " + r.get("topic")
	page := resetPage{Sub: topicSub(r), Name: name, Value: value, Button: r.t("act.reset_group"), Back: groupPath(name)}
	again, skipped := int64(0), int64(0)
	for _, m := range plan {
		row := movedRow{Partition: m.Partition, Old: "–", New: number(m.New), Again: "–", Skipped: "–"}
		if m.Old >= 0 {
			row.Old, row.Again, row.Skipped = number(m.Old), number(max(0, m.Old-m.New)), number(max(0, m.New-m.Old))
			again, skipped = again+max(0, m.Old-m.New), skipped+max(0, m.New-m.Old)
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

// parsePlace reads where a group is to go on: "start", "end", or a time in UTC.
func parsePlace(text string) (int64, error) {
	switch text {
	case "start":
		return broker.AtStart, nil
	case "end":
		return broker.AtEnd, nil
	}
	at, err := parseTime(text)
	return at.UnixMilli(), err
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

// resetGroup moves a group. Value is a place, a space and the topic.
func resetGroup(ctx context.Context, d *Dashboard, name, value string) error {
	place, of, _ := strings.Cut(value, " ")
	at, err := parsePlace(place)
	if err != nil {
		return err
	}
	return d.options.Topics.ResetGroup(ctx, name, of, at)
}

// askReset is never shown: the preview of a reset asks.
func askReset(_ *Dashboard, r *request, name, _ string) (string, error) {
	return "", conflict("say where group %s goes on: see its page", name)
}
