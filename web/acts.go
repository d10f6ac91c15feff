package web

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
)

// act is a change that an operator makes to something with a name.
type act struct {
	// part reports whether the part of the act is on.
	part func(*Dashboard) bool
	// ask says what will happen. An error says why it cannot.
	ask func(d *Dashboard, r *request, name, value string) (string, error)
	// do makes the change.
	do func(ctx context.Context, d *Dashboard, name, value string) error
	// back is the page to show then.
	back func(name string) string
	// right is what somebody needs to do it.
	right access.Right
	// takesAway reports that it cannot be undone.
	takesAway bool
}

// acts are those that there are. The text of each is "act." and its name.
var acts = map[string]act{
	"pause_action":  {part: bulkOn, ask: askAction, do: ofAction(Bulk.Pause), back: actionPath, right: access.Submit},
	"resume_action": {part: bulkOn, ask: askAction, do: ofAction(Bulk.Resume), back: actionPath, right: access.Submit},
	"cancel_action": {part: bulkOn, ask: askAction, do: ofAction(Bulk.Cancel), back: actionPath, right: access.Submit, takesAway: true},
	"replay_action": {part: bulkOn, ask: askReplay, do: replayAction, back: actionPath, right: access.Submit},
	"replay_found":  {part: bulkOn, ask: askReplayFound, do: replayFound, back: lettersPath, right: access.Submit},

	"pause_schedule":  {part: bulkOn, ask: askSchedule, do: ofSchedule(Bulk.PauseSchedule), back: schedulePath, right: access.Submit},
	"resume_schedule": {part: bulkOn, ask: askSchedule, do: ofSchedule(Bulk.ResumeSchedule), back: schedulePath, right: access.Submit},
	"run_schedule":    {part: bulkOn, ask: askSchedule, do: runSchedule, back: schedulePath, right: access.Submit},
	"remove_schedule": {part: bulkOn, ask: askSchedule, do: removeSchedule, back: func(string) string { return Prefix + "bulk/schedules" }, right: access.Submit, takesAway: true},

	"reset_group": {part: topicsOn, ask: askReset, do: resetGroup, back: groupPath, right: resetRight, takesAway: true},
	"drain_node":  {part: topicsOn, ask: askDrain, do: drainNode(true), back: clusterPath, right: access.ManageCluster},
	"resume_node": {part: topicsOn, ask: askDrain, do: drainNode(false), back: clusterPath, right: access.ManageCluster},

	"revoke_token": {part: accountsOn, ask: askRevoke, do: revokeToken, back: func(string) string { return accessPath }, right: access.ManageAccess, takesAway: true},

	"pause_room":    {part: roomsOn, ask: askRoom, do: ofRoom(Rooms.Pause), back: roomPath, right: access.ManageRooms},
	"resume_room":   {part: roomsOn, ask: askRoom, do: ofRoom(Rooms.Resume), back: roomPath, right: access.ManageRooms},
	"open_room":     {part: roomsOn, ask: askRoom, do: openRoom, back: roomPath, right: access.ManageRooms},
	"revoke_room":   {part: roomsOn, ask: askRoom, do: revokeRoom, back: roomPath, right: access.ManageRooms, takesAway: true},
	"room_capacity": {part: roomsOn, ask: askCapacity, do: setCapacity, back: roomPath, right: access.ManageRooms},
}

func bulkOn(d *Dashboard) bool   { return d.options.Bulk != nil }
func topicsOn(d *Dashboard) bool { return d.options.Topics != nil }

// confirmation is the page that says what an act will do.
type confirmation struct {
	Act, Name, Value, Text, Button, Back string
	TakesAway                            bool
}

// acts returns the links to the pages that ask about acts, of those that the sender may do.
func (r *request) acts(name string, keys ...string) []link {
	var links []link
	for _, key := range keys {
		if !may(r.Context(), acts[key].right) {
			continue
		}
		links = append(links, link{Text: r.t("act." + key), To: Prefix + "act?" + url.Values{"do": {key}, "name": {name}}.Encode()})
	}
	return links
}

// takeActs serves the acts: GET asks, POST acts and then shows the page of what was changed.
func (d *Dashboard) takeActs() {
	d.show(Prefix+"act", "confirm", func(r *request) (string, any, error) {
		key, name, value := r.get("do"), r.get("name"), r.get("value")
		a, err := d.known(r.Context(), key)
		if err != nil {
			return "", nil, err
		}
		text, err := a.ask(d, r, name, value)
		return r.t("act." + key), confirmation{key, name, value, text, r.t("act." + key), a.back(name), a.takesAway}, refused(err)
	})
	d.mux.HandleFunc("POST "+Prefix+"act", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), pageTime)
		defer cancel()
		asked := &request{r.WithContext(ctx), choose(w, r)}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		name := r.PostFormValue("name")
		a, err := d.known(ctx, r.PostFormValue("do"))
		if err == nil {
			err = refused(a.do(ctx, d, name, r.PostFormValue("value")))
		}
		d.record(asked, a.right, r.PostFormValue("do"), name, err)
		if err != nil {
			d.fail(w, asked, err)
			return
		}
		http.Redirect(w, r, a.back(name), http.StatusSeeOther)
	})
}

// known returns an act of a part that is on, if the sender may do it.
func (d *Dashboard) known(ctx context.Context, key string) (act, error) {
	a, ok := acts[key]
	if !ok || !a.part(d) {
		return act{}, &statusError{http.StatusNotFound, errors.New("there is no such act")}
	}
	return a, need(ctx, a.right)
}

// refused gives an error that is about the request the status of a refusal.
func refused(err error) error {
	var settings *room.SettingsError
	var transition *bulk.TransitionError
	var unfinished *bulk.UnfinishedError
	var run *bulk.RunError
	for _, busy := range []error{topic.ErrNodeInUse, topic.ErrInvalidReplicas, group.ErrUnknownMember, group.ErrGroupNotEmpty, group.ErrOtherProtocol} {
		if errors.Is(err, busy) {
			return &statusError{http.StatusConflict, err}
		}
	}
	for _, target := range []any{&settings, &transition, &unfinished, &run} {
		if errors.As(err, target) {
			return &statusError{http.StatusConflict, err}
		}
	}
	return err
}

func ofAction(change func(Bulk, context.Context, string) (bulk.Action, error)) func(context.Context, *Dashboard, string, string) error {
	return func(ctx context.Context, d *Dashboard, name, _ string) error {
		_, err := change(d.options.Bulk, ctx, name)
		return err
	}
}

func askAction(d *Dashboard, r *request, name, _ string) (string, error) {
	a, err := d.options.Bulk.Action(r.Context(), name)
	if err != nil {
		return "", err
	}
	return r.t("ask."+r.get("do"), a.ID, a.Tenant, number(a.Pending+a.Ready+a.NonReadyTotal()), number(a.InFlight)), nil
}
