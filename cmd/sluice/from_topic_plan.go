package main

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
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// topicPlan says what a run takes. With a group it is noted beside the group's
// offsets before anything is taken, in the text that goes with each: so a run that
// was killed is gone on with, with the same records under the same ids.
type topicPlan struct {
	// Run names the run; empty without a group.
	Run        string
	partitions map[int32]takenPartition
}

// planNote is what is noted of a plan with a partition's offset.
type planNote struct {
	Run string `json:"sluice_bulk_run"`
	End int64  `json:"end"`
	As  string `json:"as"`
}

// unread returns the partitions that have something to take, in order.
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
	// takerSession is how long a member that was killed is in the group.
	takerSession = 10 * time.Second
	// memberPatience is how long another member of the group is waited for: one
	// that was killed is gone by then.
	memberPatience = 2 * takerSession
	memberLook     = 100 * time.Millisecond
)

// enter joins the group, as its only member: then no other can take the same, and
// what is committed is refused if there is one all the same.
func (in *topicInput) enter(ctx context.Context) error {
	if err := in.alone(ctx, func(kadm.DescribedGroup) bool { return true }); err != nil {
		return err
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(in.flags.group), kgo.ConsumeTopics(in.flags.topic), kgo.DisableAutoCommit(), kgo.SessionTimeout(takerSession),
	}
	if in.instance != "" {
		options = append(options, kgo.InstanceID(in.instance))
	}
	var err error
	if in.member, err = in.join(options...); err != nil {
		return err
	}
	in.member.client.PauseFetchTopics(in.flags.topic) // records are read in order, by another client
	return in.settled(ctx)
}

// settled waits until we are the group's only member.
func (in *topicInput) settled(ctx context.Context) error {
	return in.alone(ctx, func(found kadm.DescribedGroup) bool {
		id, _ := in.member.client.GroupMetadata()
		return found.State == groupStable && len(found.Members) == 1 && found.Members[0].MemberID == id
	})
}

const groupStable = "Stable"

// alone waits until nobody else is in the group, and until it is as it should be.
func (in *topicInput) alone(ctx context.Context, is func(kadm.DescribedGroup) bool) error {
	deadline := time.Now().Add(memberPatience)
	for told := false; ; {
		described, err := in.admin.DescribeGroups(ctx, in.flags.group)
		if err != nil {
			return err
		}
		found, err := described.On(in.flags.group, nil)
		if err == nil && !errors.Is(found.Err, kerr.GroupIDNotFound) {
			err = answered(found.Err, found.ErrMessage)
		}
		if err != nil && !kerr.IsRetriable(err) {
			return err
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
			return fmt.Errorf("group %q is %s: it could not be joined within %s", in.flags.group, cmp.Or(found.State, groupDead), memberPatience)
		}
		if other != "" && !told {
			in.say("waiting for the other member of group %s to leave, %s", printable(in.flags.group), other)
			told = true
		}
		select {
		case <-time.After(memberLook):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// other names a member that is not this command; empty if there is none.
func (in *topicInput) other(found kadm.DescribedGroup) string {
	own := ""
	if in.member != nil {
		own, _ = in.member.client.GroupMetadata()
	}
	for _, m := range found.Members {
		if in.instance != "" && m.InstanceID != nil && *m.InstanceID == in.instance {
			continue // this command before it was killed
		}
		if m.MemberID != own && (in.member == nil || own != "") {
			return fmt.Sprintf("%s at %s", printable(m.ClientID), printable(strings.TrimPrefix(m.ClientHost, "/")))
		}
	}
	return ""
}

// leave takes a static member out of the group, which closing its client does not.
func (in *topicInput) leave() {
	if in.instance == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), commitPatience)
	defer cancel()
	// If it fails, the member is gone after its session.
	_, _ = in.admin.LeaveGroup(ctx, kadm.LeaveGroup(in.flags.group).InstanceIDs(in.instance))
}

// makePlan finds the plan of a run that was interrupted, or makes one.
func (in *topicInput) makePlan(ctx context.Context) error {
	extents, err := in.extents(ctx, in.flags.topic)
	if err != nil {
		return err
	}
	committed, noted, err := in.noted(ctx)
	if err != nil {
		return err
	}
	if len(noted) > 0 {
		return in.goOn(extents, committed, noted)
	}
	stable, err := in.admin.ListCommittedOffsets(ctx, in.flags.topic)
	if err != nil {
		return err
	}
	for number, has := range extents {
		if end := stable[in.flags.topic][number]; end.Err == nil {
			has.End = min(has.End, end.Offset) // of open transactions nothing
		}
		extents[number] = has
	}
	ends, err := in.offsetsOf(ctx, in.flags.topic, in.until, extents)
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
			in.say("%v: left out", in.removed(number, begin, has.Start, ""))
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

// removed says that records are gone that the group has not taken.
func (in *topicInput) removed(number int32, begin, start int64, hint string) error {
	text := fmt.Sprintf("partition %d: the records from offset %d to %d were removed before group %q had taken them", number, begin, start-1, in.flags.group)
	if hint != "" {
		text += "; " + hint
	}
	return fmt.Errorf("%s, %s", in.name(), text)
}

// giveUp is how an interrupted run is given up.
func (in *topicInput) giveUp() string {
	return fmt.Sprintf("give the run up by moving the group: sluice group reset %s --topic %s --to PLACE", in.flags.group, in.flags.topic)
}

// noted returns where the group is, and what a run that was interrupted has noted.
func (in *topicInput) noted(ctx context.Context) (committed map[int32]int64, notes map[int32]planNote, err error) {
	committed, notes = map[int32]int64{}, map[int32]planNote{}
	if in.flags.group == "" {
		return committed, notes, nil
	}
	offsets, err := in.admin.FetchOffsets(ctx, in.flags.group)
	if err != nil {
		return nil, nil, err
	}
	for number, offset := range offsets[in.flags.topic] {
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

// goOn makes the plan that was noted the one of this run.
func (in *topicInput) goOn(extents map[int32]extent, committed map[int32]int64, notes map[int32]planNote) error {
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
	in.say("going on with the run of group %s that was interrupted", printable(in.flags.group))
	return nil
}

// done moves the group's offsets on: all was taken.
func (in *topicInput) done(ctx context.Context) error {
	if in.plan.Run == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), brokerPatience)
	defer cancel()
	err := in.settled(ctx) // after a long pause it may have had to join again
	if err == nil {
		err = in.stillOurs(ctx)
	}
	if err == nil {
		err = in.commit(ctx, func(p takenPartition) (int64, planNote) { return p.end, planNote{} })
	}
	if err != nil {
		return fmt.Errorf("all was taken, but group %q does not know it: run the same command again: %w", in.flags.group, explainKafka(err))
	}
	return nil
}

// stillOurs refuses to commit over what others have committed.
func (in *topicInput) stillOurs(ctx context.Context) error {
	_, notes, err := in.noted(ctx)
	if err != nil {
		return err
	}
	for number := range in.plan.partitions {
		if notes[number].Run != in.plan.Run {
			return errors.New("somebody else has moved its offsets meanwhile")
		}
	}
	return nil
}

// commit commits an offset of each partition of the plan, all in one request.
func (in *topicInput) commit(ctx context.Context, at func(takenPartition) (int64, planNote)) error {
	id, generation := in.member.client.GroupMetadata()
	request := kmsg.NewPtrOffsetCommitRequest()
	request.Group, request.MemberID, request.Generation = in.flags.group, id, generation
	if in.instance != "" {
		request.InstanceID = &in.instance
	}
	of := kmsg.NewOffsetCommitRequestTopic()
	of.Topic = in.flags.topic
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
	response, err := request.RequestWith(ctx, in.member.client)
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
