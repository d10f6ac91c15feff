//go:build redis

package rediskv_test

import (
	"errors"
	"testing"

	"github.com/sluice-project/sluice/internal/rediskv"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
)

var errAway = errors.New("away")

func TestASlotIsWhole(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.ClusterOptions{Args: []string{"--cluster-require-full-coverage", "no"}})
	db, err := rediskv.Open(t.Context(), rediskv.Options{URL: cluster.URL(), Errors: rediskv.Errors{Unavailable: errAway}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	const key, another = "{a}", "{b}"
	from := cluster.MasterOf(key)
	from.Cli("MSET", "{a}1", "1", "{a}2", "2")
	check := func(when, key string, strict, want bool) {
		t.Helper()
		if err := db.Whole(t.Context(), key, strict); (err == nil) != want || err != nil && !errors.Is(err, errAway) {
			t.Errorf("strict %v: %s is whole %s: %v, want %v", strict, key, when, err, want)
		}
	}
	var third, to *redistest.Server // neither has the slots of both keys
	for _, master := range cluster.Masters() {
		switch {
		case master == from:
		case master == cluster.MasterOf(another) || third != nil:
			to = master
		default:
			third = master
		}
	}
	move := cluster.BeginMove(key, to)
	check("when nothing has moved", key, true, true)
	move.Step(1)
	for _, strict := range []bool{false, true} {
		check("half way", key, strict, false)
		check("while another slot moves", another, strict, true)
	}
	third.Kill()
	check("half way, when a third master is away", key, false, false)
	check("when a third master is away", another, false, true)
	check("when a third master is away", another, true, false)
	move.End()
	check("after the move", key, false, true)
}

func TestAServerWithoutSlotsIsWhole(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	db, err := rediskv.Open(t.Context(), rediskv.Options{URL: server.URL(), Errors: rediskv.Errors{Unavailable: errAway}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	if err := db.Whole(t.Context(), "{a}", true); err != nil {
		t.Error(err)
	}
}
