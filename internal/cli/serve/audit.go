package serve

import (
	"log/slog"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/access/audit"
	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/cli/events"
	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// trail is the audit trail of this process; nil: there is none.
type trail struct{ *audit.Trail }

// openTrail returns the audit trail of the settings.
func openTrail(settings *config.Config, log *slog.Logger) (trail, error) {
	if !settings.Audited() {
		return trail{}, nil
	}
	name, err := instanceName(settings)
	if err != nil {
		return trail{}, err
	}
	hash, err := settings.Hash()
	if err != nil {
		return trail{}, err
	}
	return trail{audit.New(audit.Options{
		File: settings.AuditFile(), MaxBytes: settings.Audit.MaxBytes, Keep: settings.Audit.Keep, Node: name, Settings: hash, Logger: log,
	})}, nil
}

// services returns the trail as a service. It starts before all edges, and stops after them.
func (t trail) services() []lifecycle.Service {
	if t.Trail == nil {
		return nil
	}
	return []lifecycle.Service{t.Trail}
}

// publish publishes the trail if there is one, and the settings want that.
func (t trail) publish(settings *config.Config, broker *broker.Broker, to events.Log, log *slog.Logger) {
	if t.Trail == nil || !settings.AuditTopic() {
		return
	}
	t.PublishTo("the topic "+events.AuditTopic, events.ForAudit(broker, to, log).Publish)
}

// kafkaTrail is the trail as the server for Kafka clients sees it.
type kafkaTrail struct{ *audit.Trail }

// kafka returns the trail for Kafka clients; nil: there is none.
func (t trail) kafka() auth.Trail {
	if t.Trail == nil {
		return nil
	}
	return kafkaTrail(t)
}

// Follows implements auth.Trail.
func (kafkaTrail) Follows(request int16) bool {
	right, _ := access.Request(request)
	return right.Changes()
}

var outcomes = map[auth.Outcome]audit.Outcome{
	auth.Done: audit.Allowed, auth.Failed: audit.Failed, auth.Refused: audit.Refused, auth.Unauthenticated: audit.Unauthenticated,
}

// Record implements auth.Trail.
func (t kafkaTrail) Record(act auth.Act) {
	right, _ := access.Request(act.Key)
	e := audit.Entry{
		Edge: audit.Kafka, Address: act.Host, Operation: act.Request, Resources: act.Resources, Outcome: outcomes[act.Outcome], Code: act.Code,
	}
	switch p := act.Principal.(type) {
	case kafkaPrincipal:
		e = e.By(p.Principal)
	case auth.Principal: // a node
		e.Token = p.Name()
	}
	t.Trail.Record(right, e)
}
