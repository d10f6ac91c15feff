package topic

import (
	"context"
	"log/slog"
)

func NewGroups(Meta, GroupsConfig, *slog.Logger) *Groups { return &Groups{} }
func (g *Groups) Load(context.Context) error             { return nil }
func (g *Groups) Stop()                                  {}

