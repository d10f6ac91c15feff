package web

import (
	"bytes"
	"context"
	"encoding/csv"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// maxReported bounds the rooms of a report.
const maxReported = 10_000

// reportColumns are those of a report: counts since the room was made, and waits of the last 10 minutes. Programs read them, so they are
// in no language of the pages.
var reportColumns = []string{
	"room", "at", "state", "waiting", "inside", "entered", "admitted", "came_in", "no_shows", "departed", "expired", "wait_p50_seconds", "wait_p95_seconds",
}

func reportRow(v *engine.View) []string {
	s := &v.Status
	row := []string{v.Room.Name, s.Now.UTC().Format(time.RFC3339), string(v.Phase)}
	for _, n := range []int64{s.Waiting, s.Inside, s.Entered, s.Admitted, s.CameIn(), s.NoShows, s.Departed, s.Expired} {
		row = append(row, strconv.FormatInt(n, 10))
	}
	if v.Waits == nil {
		return append(row, "", "")
	}
	for _, wait := range []time.Duration{v.Waits.P50, v.Waits.P95} {
		row = append(row, strconv.FormatFloat(wait.Seconds(), 'f', -1, 64))
	}
	return row
}

// showReport serves a report of a room, or of all, as CSV to keep.
func (d *Dashboard) showReport() {
	d.mux.HandleFunc("GET "+Prefix+"rooms/report", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), pageTime)
		defer cancel()
		asked := &request{r.WithContext(ctx), choose(w, r)}
		views, err := d.reported(asked)
		if err != nil {
			d.fail(w, asked, err)
			return
		}
		var out bytes.Buffer
		lines := csv.NewWriter(&out)
		_ = lines.Write(reportColumns)
		for i := range views {
			_ = lines.Write(reportRow(&views[i]))
		}
		lines.Flush() // a buffer takes all
		name := "rooms.csv"
		if of := asked.get("name"); of != "" {
			name = of + ".csv"
		}
		w.Header().Set("Content-Type", "text/csv; charset=utf-8")
		w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
		_, _ = out.WriteTo(w) // a browser that is gone needs no report
	})
}

// reported returns the room of a request, or up to maxReported of all.
func (d *Dashboard) reported(r *request) (views []engine.View, err error) {
	if d.options.Rooms == nil {
		return nil, room.ErrNoRoom
	}
	if name := r.get("name"); name != "" {
		v, err := d.options.Rooms.Room(r.Context(), name)
		return []engine.View{v}, err
	}
	after := ""
	for more := true; more && len(views) < maxReported; {
		var page []engine.View
		if page, more, err = d.options.Rooms.Rooms(r.Context(), after, pageSize); err != nil {
			return nil, err
		}
		if views = append(views, page...); len(page) > 0 {
			after = page[len(page)-1].Room.Name
		}
	}
	return views, nil
}
