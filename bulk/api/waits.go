package api

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/engine"
)

func (s *server) registerWaits() {
	register(s, "list-waits", "GET /v1/waits", "The actions with jobs that wait, and why the first job of each that has not ended does not run", s.waits)
	register(s, "list-workers", "GET /v1/workers", "The job types, who runs the jobs of each, and how many wait", s.workers)
}

type inWaits struct {
	Tenant string `query:"tenant" doc:"Only those of this tenant."`
	After  string `query:"after" doc:"What the page before gave as next."`
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"20" doc:"The most unfinished actions that a page looks at: those without jobs that wait are left out."`
}

func (s *server) waits(ctx context.Context, in *inWaits) (*object[wire.WaitingActions], error) {
	leave, err := s.explaining(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	actions, next, err := s.page(ctx, bulk.ActionFilter{Tenant: in.Tenant, Unfinished: true, After: in.After, Limit: in.Limit})
	if err != nil {
		return nil, err
	}
	out := &object[wire.WaitingActions]{Body: wire.WaitingActions{Waits: []wire.WaitingAction{}, Next: next}}
	for i := range actions {
		a := &actions[i]
		waiting := a.Pending + a.Ready + a.NonReadyTotal()
		if waiting == 0 {
			continue
		}
		x, err := s.engine.Why(ctx, a.ID, bulk.FirstJob)
		if errors.Is(err, bulk.ErrNoJob) || errors.Is(err, bulk.ErrNotFound) {
			continue // it has ended since
		}
		if err != nil {
			return nil, refuse(a.ID, err)
		}
		out.Body.Waits = append(out.Body.Waits, wire.WaitingAction{Tenant: a.Tenant, Type: a.Type, Target: a.TargetName(), Waiting: waiting, Job: s.jobState(&x)})
	}
	return out, nil
}

type inWorkers struct {
	After string `query:"after" doc:"What the page before gave as next."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"The most types of a page."`
}

func (s *server) workers(ctx context.Context, in *inWorkers) (*object[wire.Workers], error) {
	all, err := s.engine.Workforces(ctx)
	if err != nil {
		return nil, refuse("", err)
	}
	out := &object[wire.Workers]{Body: wire.Workers{Workers: []wire.Workforce{}}}
	from, found := slices.BinarySearchFunc(all, in.After, func(w engine.Workforce, name string) int { return strings.Compare(w.Type, name) })
	if found {
		from++
	}
	for _, w := range all[from:min(len(all), from+in.Limit)] {
		out.Body.Workers = append(out.Body.Workers, wire.Workforce(w))
		if len(out.Body.Workers) == in.Limit && from+in.Limit < len(all) {
			out.Body.Next = &w.Type
		}
	}
	return out, nil
}
