package intake

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/cli/brokers"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// topicPlan is the set of records that a run takes. With a group, the plan is stored with the
// group's offsets, in the metadata of each, before any record is taken: a run that was killed is
// resumed with the same records under the same ids.
type topicPlan struct {
	// Run is the name of the run; it is empty without a group.
	Run        string
	partitions map[int32]takenPartition
}

// planNote is the part of a plan that is stored with a partition's offset.
type planNote struct {
	Run string `json:"sluice_bulk_run"`
	End int64  `json:"end"`
	As  string `json:"as"`
}

// unread returns the partitions that have records to take, in order.
func (p *topicPlan) unread() []takenPartition {
	var left []takenPartition
	for _, number := range slices.Sorted(maps.Keys(p.partitions)) {
		if taken := p.partitions[number]; taken.next < taken.end {
			left = append(left, taken)
		}
	}
	return left
}

const (
	// takerSession is how long a killed member stays in the group.
	takerSession = 10 * time.Second
	// memberPatience bounds the wait for another member of the group: a killed one is gone by then.
	memberPatience = 2 * takerSession
	memberLook     = 100 * time.Millisecond
)

// enter joins the group as its only member: no other member can take the same records, and commits
// are fenced if there is one nevertheless.
func (in *TopicRows) enter(ctx context.Context) error {
	if err := in.awaitMembers(ctx, func(kadm.DescribedGroup) bool { return true }); err != nil {
		return err
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(in.flags.group), kgo.ConsumeTopics(in.flags.Topic), kgo.DisableAutoCommit(), kgo.SessionTimeout(takerSession),
		kgo.WithHooks(&in.refused),
	}
	if in.instance != "" {
		options = append(options, kgo.InstanceID(in.instance))
	}
	var err error
	if in.member, err = in.join(options...); err != nil {
		return err
	}
	in.member.Kafka.PauseFetchTopics(in.flags.Topic) // another client reads the records, in order
	return in.awaitSoleMember(ctx)
}

// refusal keeps the error of a broker that does not let this command join: the client itself tries again for ever. It implements
// kgo.HookGroupManageError.
type refusal struct{ atomic.Pointer[error] }

func (r *refusal) OnGroupManageError(err error) {
	if brokers.Unauthorized(err) {
		r.Store(&err)
	}
}

// awaitSoleMember waits until this command is the group's only member.
func (in *TopicRows) awaitSoleMember(ctx context.Context) error {
	return in.awaitMembers(ctx, func(found kadm.DescribedGroup) bool {
		id, _ := in.member.Kafka.GroupMetadata()
		return found.State == brokers.GroupStable && len(found.Members) == 1 && found.Members[0].MemberID == id
	})
}

// awaitMembers waits until the group has no other member and is in the wanted state.
func (in *TopicRows) awaitMembers(ctx context.Context, is func(kadm.DescribedGroup) bool) error {
	deadline := time.Now().Add(memberPatience)
	for told := false; ; {
		described, err := in.Admin.DescribeGroups(ctx, in.flags.group)
		if err != nil {
			return err
		}
		found, err := described.On(in.flags.group, nil)
		if err == nil && !errors.Is(found.Err, kerr.GroupIDNotFound) {
			err = brokers.Answered(found.Err, found.ErrMessage)
		}
		if err != nil && !kerr.IsRetriable(err) {
			return err
		}
		if refused := in.refused.Load(); refused != nil {
			return *refused
		}
		other := in.other(found)
		if err == nil && other == "" && is(found) {
			return nil
		}
		switch {
		case time.Now().Before(deadline):
		case other != "":
			return fmt.Errorf("group %q has another member, %s: stop it first, or give another group", in.flags.group, other)
		default:
			return fmt.Errorf("group %q is %s: it could not be joined within %s", in.flags.group, cmp.Or(found.State, brokers.GroupDead), memberPatience)
		}
		if other != "" && !told {
			in.Say("waiting for the other member of group %s to leave, %s", term.Printable(in.flags.group), other)
			told = true
		}
		select {
		case <-time.After(memberLook):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// other returns the name of a member that is not this command; it is empty if there is none.
func (in *TopicRows) other(found kadm.DescribedGroup) string {
	own := ""
	if in.member != nil {
		own, _ = in.member.Kafka.GroupMetadata()
	}
	for _, m := range found.Members {
		if in.instance != "" && m.InstanceID != nil && *m.InstanceID == in.instance {
			continue // this command, before it was killed
		}
		if m.MemberID != own && (in.member == nil || own != "") {
			return fmt.Sprintf("%s at %s", term.Printable(m.ClientID), term.Printable(strings.TrimPrefix(m.ClientHost, "/")))
		}
	}
	return ""
}

// leave removes a static member from the group; closing its client does not.
func (in *TopicRows) leave() {
	if in.instance == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), brokers.CommitPatience)
	defer cancel()
	// If it fails, the member is gone after its session.
	_, _ = in.Admin.LeaveGroup(ctx, kadm.LeaveGroup(in.flags.group).InstanceIDs(in.instance))
}

// makePlan finds the plan of an interrupted run, or makes one.
func (in *TopicRows) makePlan(ctx context.Context) error {
	extents, err := in.Extents(ctx, in.flags.Topic)
	if err != nil {
		return err
	}
	committed, noted, err := in.noted(ctx)
	if err != nil {
		return err
	}
	if len(noted) > 0 {
		return in.resumePlan(extents, committed, noted)
	}
	stable, err := in.Admin.ListCommittedOffsets(ctx, in.flags.Topic)
	if err != nil {
		return err
	}
	for number, has := range extents {
		if end := stable[in.flags.Topic][number]; end.Err == nil {
			has.End = min(has.End, end.Offset) // nothing of open transactions
		}
		extents[number] = has
	}
	ends, err := in.OffsetsOf(ctx, in.flags.Topic, in.until, extents)
	if err != nil {
		return err
	}
	in.plan = &topicPlan{partitions: map[int32]takenPartition{}}
	something := false
	for number, has := range extents {
		begin, found := committed[number]
		if !found {
			begin = has.Start
		}
		end := max(ends[number], begin)
		if begin < has.Start && begin < end {
			if !in.flags.skipBad {
				return in.removed(number, begin, has.Start, "--skip-bad goes on without them")
			}
			in.Say("%v: left out", in.removed(number, begin, has.Start, ""))
			begin = has.Start
		}
		in.plan.partitions[number] = takenPartition{number, begin, end}
		something = something || begin < end
	}
	if in.flags.group == "" || !something {
		return nil
	}
	in.plan.Run = strings.ToLower(rand.Text()[:12])
	return in.commit(ctx, func(p takenPartition) (int64, planNote) {
		return p.next, planNote{Run: in.plan.Run, End: p.end, As: in.as}
	})
}

// removed returns the error that records were removed before the group took them.
func (in *TopicRows) removed(number int32, begin, start int64, hint string) error {
	text := fmt.Sprintf("partition %d: the records from offset %d to %d were removed before group %q had taken them", number, begin, start-1, in.flags.group)
	if hint != "" {
		text += "; " + hint
	}
	return fmt.Errorf("%s, %s", in.Name(), text)
}

// giveUp returns how to give up an interrupted run.
func (in *TopicRows) giveUp() string {
	return fmt.Sprintf("give the run up by moving the group: sluice group reset %s --topic %s --to PLACE", in.flags.group, in.flags.Topic)
}

// noted returns the group's offsets, and the plan that an interrupted run has stored.
func (in *TopicRows) noted(ctx context.Context) (committed map[int32]int64, notes map[int32]planNote, err error) {
	committed, notes = map[int32]int64{}, map[int32]planNote{}
	if in.flags.group == "" {
		return committed, notes, nil
	}
	offsets, err := in.Admin.FetchOffsets(ctx, in.flags.group)
	if err != nil {
		return nil, nil, err
	}
	for number, offset := range offsets[in.flags.Topic] {
		if offset.Err != nil {
			return nil, nil, fmt.Errorf("the offsets of group %q: %w", in.flags.group, offset.Err)
		}
		if offset.At < 0 {
			continue
		}
		committed[number] = offset.At
		var note planNote
		if json.Unmarshal([]byte(offset.Metadata), &note) == nil && note.Run != "" {
			notes[number] = note
		}
	}
	return committed, notes, nil
}

// resumePlan makes the stored plan the plan of this run.
func (in *TopicRows) resumePlan(extents map[int32]brokers.Extent, committed map[int32]int64, notes map[int32]planNote) error {
	in.plan = &topicPlan{partitions: map[int32]takenPartition{}}
	for number, note := range notes {
		in.plan.Run = cmp.Or(in.plan.Run, note.Run)
		if note.Run != in.plan.Run || note.As != in.as {
			return fmt.Errorf("a run of group %q was interrupted that had other flags (what runs the jobs, the tenant, --data or --server):"+
				" end it with those, or %s", in.flags.group, in.giveUp())
		}
		begin := committed[number]
		if start := extents[number].Start; begin < start && begin < note.End {
			return in.removed(number, begin, start, in.giveUp())
		}
		in.plan.partitions[number] = takenPartition{number, begin, note.End}
	}
	in.Say("going on with the run of group %s that was interrupted", term.Printable(in.flags.group))
	return nil
}

// Done commits the end of the plan: all its records were taken.
func (in *TopicRows) Done(ctx context.Context) error {
	if in.plan.Run == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), brokers.BrokerPatience)
	defer cancel()
	err := in.awaitSoleMember(ctx) // after a long pause the member may have had to join again
	if err == nil {
		err = in.stillOurs(ctx)
	}
	if err == nil {
		err = in.commit(ctx, func(p takenPartition) (int64, planNote) { return p.end, planNote{} })
	}
	if err != nil {
		return fmt.Errorf("all was taken, but group %q does not know it: run the same command again: %w", in.flags.group, brokers.Explain(err))
	}
	return nil
}

// stillOurs returns an error if others have committed offsets since.
func (in *TopicRows) stillOurs(ctx context.Context) error {
	_, notes, err := in.noted(ctx)
	if err != nil {
		return err
	}
	for number := range in.plan.partitions {
		if notes[number].Run != in.plan.Run {
			return errors.New("another client has moved its offsets in the meantime")
		}
	}
	return nil
}

// commit commits an offset for each partition of the plan, all in one request.
func (in *TopicRows) commit(ctx context.Context, at func(takenPartition) (int64, planNote)) error {
	id, generation := in.member.Kafka.GroupMetadata()
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group, request.MemberID, request.Generation = in.flags.group, id, generation
	if in.instance != "" {
		request.InstanceID = &in.instance
	}
	of := kmsg.NewOffsetCommitRequestTopic()
	of.Topic = in.flags.Topic
	for _, taken := range in.plan.partitions {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		offset, note := at(taken)
		p.Partition, p.Offset = taken.number, offset
		if note.Run != "" {
			text, err := json.Marshal(note)
			if err != nil {
				return err
			}
			p.Metadata = kmsg.StringPtr(string(text))
		}
		of.Partitions = append(of.Partitions, p)
	}
	request.Topics = append(request.Topics, of)
	response, err := request.RequestWith(ctx, in.member.Kafka)
	if err != nil {
		return err
	}
	for _, of := range response.Topics {
		for _, p := range of.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("commit partition %d of group %q: %w", p.Partition, in.flags.group, err)
			}
		}
	}
	return nil
}
