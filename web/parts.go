package web

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/room"
	roomengine "github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/delay"
	"github.com/sluice-project/sluice/topic/group"
)

// Bulk is what the dashboard needs of bulk's engine; its Engine says what each method promises.
type Bulk interface {
	Action(ctx context.Context, id string) (bulk.Action, error)
	Actions(ctx context.Context, filter bulk.ActionFilter) ([]bulk.Action, error)
	DeadLetters(ctx context.Context, id string, from int64, limit int) ([]bulk.DeadLetter, error)
	Why(ctx context.Context, id string, index int64) (engine.Explanation, error)
	EstimatedFinish(id string) time.Time
	Settings(ctx context.Context) (bulk.Settings, error)
	StoredOf(ctx context.Context, tenants []string) (map[string]bulk.Stored, error)
	FoundRate(ctx context.Context, target string) (float64, error)
	FoundLoad(target string) engine.FoundLoad

	Pause(ctx context.Context, id string) (bulk.Action, error)
	Resume(ctx context.Context, id string) (bulk.Action, error)
	Cancel(ctx context.Context, id string) (bulk.Action, error)
	Replay(ctx context.Context, id string, only bulk.FailureFilter) (bulk.Action, error)
	Change(ctx context.Context, c engine.Change) (engine.Changed, error)

	Workforces(ctx context.Context) ([]engine.Workforce, error)
	Schedules(ctx context.Context) ([]bulk.Schedule, error)
	Schedule(ctx context.Context, name string) (bulk.Schedule, error)
	PauseSchedule(ctx context.Context, name string) (bulk.Schedule, error)
	ResumeSchedule(ctx context.Context, name string) (bulk.Schedule, error)
	RunNow(ctx context.Context, name string) (bulk.Action, error)
	RemoveSchedule(ctx context.Context, name string) error
}

// Rooms is what the dashboard needs of room's engine; its Engine says what each method promises.
type Rooms interface {
	Room(ctx context.Context, name string) (roomengine.View, error)
	Rooms(ctx context.Context, after string, limit int) (views []roomengine.View, more bool, err error)
	PutRoom(ctx context.Context, name string, s room.Settings) (view roomengine.View, created bool, err error)
	Pause(ctx context.Context, name string) (roomengine.View, error)
	Resume(ctx context.Context, name string) (roomengine.View, error)
	RevokeAll(ctx context.Context, name string) error
}

// Topics is what the dashboard needs of topic's broker; broker.Broker says what each method
// promises.
type Topics interface {
	Topics() []*broker.Topic
	Topic(name string) (*broker.Topic, error)
	Unpacker() *topic.Unpacker
	Groups() *group.Groups
	AwaitReplicas(ctx context.Context, partitions []*broker.Partition)
	Delayed(ctx context.Context, name string, limit int) ([]delay.Waiting, error)
	GroupLag(ctx context.Context, name string) ([]broker.Lag, error)
	PlanReset(ctx context.Context, name, topic string, at int64) ([]broker.Moved, error)
	ResetGroup(ctx context.Context, name, topic string, at int64) error
	ClusterID() string
	Node() int32
	Nodes() []topic.Node
	Volume() (total, free int64, err error)
	Drain(ctx context.Context, node int32, drain bool) (moves int, err error)
	Reassignments(ctx context.Context) ([]broker.Reassignment, error)
}

// missing reports whether an error says that there is no such thing.
func missing(err error) bool {
	for _, target := range []error{bulk.ErrNotFound, bulk.ErrNoSchedule, room.ErrNoRoom, topic.ErrNoTopic, topic.ErrNoPartition, topic.ErrNoNode, group.ErrNoGroup, access.ErrNotFound} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
