package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
)

// clientServer is the client of the HTTP API as the commands need it.
type clientServer struct {
	*client.Client
	// once gives up at the first failure.
	once *client.Client
}

// connectServer returns a client of the server at a URL. It asks nothing yet.
func connectServer(base string) (server, error) {
	patient, err := client.New(base)
	if err != nil {
		return nil, err
	}
	once, err := client.New(base, client.WithAttempts(1))
	if err != nil {
		return nil, err
	}
	return &clientServer{patient, once}, nil
}

// Reach implements server.
func (s *clientServer) Reach(ctx context.Context) error {
	_, err := s.once.Limits(ctx)
	return err
}

// Create implements server. What the server refuses of the action, the flags got
// wrong.
func (s *clientServer) Create(ctx context.Context, action wire.NewAction) (wire.Created, error) {
	created, err := s.Client.Create(ctx, action)
	var refused *client.Error
	if errors.As(err, &refused) && (refused.Code == wire.CodeInvalid || refused.Code == wire.CodeExists) {
		return created, wrongUsage("%w", err)
	}
	return created, err
}

// PutSchedule implements scheduleServer. What the server refuses of the schedule,
// the flags got wrong.
func (s *clientServer) PutSchedule(ctx context.Context, name string, schedule wire.NewSchedule) (wire.Schedule, error) {
	stored, err := s.Client.PutSchedule(ctx, name, schedule)
	if client.IsCode(err, wire.CodeInvalid) {
		err = wrongUsage("%w", err)
	}
	return stored, err
}

// Append implements server.
func (s *clientServer) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	return s.UploadChunk(ctx, id, offset, payloads)
}

// Actions implements server.
func (s *clientServer) Actions(ctx context.Context, tenant, status, after string, limit int) (wire.Actions, error) {
	return s.Client.Actions(ctx, client.ActionFilter{Tenant: tenant, Status: status, After: after, Limit: limit})
}

// Replay implements server.
func (s *clientServer) Replay(ctx context.Context, id string) (wire.Action, error) {
	created, err := s.Client.Replay(ctx, id)
	if err != nil {
		return wire.Action{}, err
	}
	action, err := s.Action(ctx, created.ID)
	if err != nil {
		return action, fmt.Errorf("action %s was created: %w", created.ID, err)
	}
	return action, nil
}
