package room

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxLanes is how many lanes a room may have.
const MaxLanes = 8

// maxShare is the highest share of a lane.
const maxShare = 100

// Lane is a line of its own in a room, for the visitors whose tokens name it.
type Lane struct {
	// Name is as that of a room.
	Name string
	// Share is the lane's part of the calls, in proportion to the shares of all lanes in which
	// somebody waits, 1 to 100.
	Share int64
}

// Turns say which lane's turn it is: that of the lane with the lowest. A lane that calls
// somebody while somebody waits in another gets a turn that is in inverse proportion to its
// share. So of two lanes in which somebody waits all the time, the numbers of calls, each
// divided by the lane's share, differ by at most one call of each, divided by its share; and a
// lane in which nobody waits saves nothing up.
type Turns [MaxLanes]int64

// turnOfShare1 is the turn of a lane with the share 1 after a call.
const turnOfShare1 = 1 << 20

// Next returns the lane of the next call, of those with somebody who may be called, and the
// turns after that call; of lanes with the same turn it takes the highest. False: there is none.
func (t *Terms) Next(turns Turns, ready func(lane int) bool) (lane int, after Turns, ok bool) {
	contested := false
	for l := range MaxLanes {
		if !ready(l) {
			continue
		}
		contested = ok
		if !ok || turns[l] <= turns[lane] {
			lane, ok = l, true
		}
	}
	if !contested {
		return lane, turns, ok
	}
	passed := turns[lane]
	for l := range turns {
		turns[l] = max(0, turns[l]-passed)
	}
	turns[lane] = turnOfShare1 / max(1, t.Shares[lane])
	return lane, turns, true
}

// parseLanes parses the setting.
func parseLanes(text string) (lanes []Lane, why string) {
	if text == "" {
		return nil, ""
	}
	for part := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(strings.TrimSpace(part), "=")
		share, err := strconv.ParseInt(number, 10, 64)
		switch {
		case ValidName(name) != nil:
			return nil, fmt.Sprintf("has the name %.40q: give lower-case letters, digits and \"-\"", name)
		case err != nil || share < 1 || share > maxShare:
			return nil, fmt.Sprintf("has the share %.40q: give lanes as in vip=20,members=30,public=50, each with a share from 1 to %d", number, maxShare)
		}
		for _, other := range lanes {
			if other.Name == name {
				return nil, fmt.Sprintf("has %s twice", name)
			}
		}
		lanes = append(lanes, Lane{name, share})
	}
	if len(lanes) > MaxLanes {
		return nil, fmt.Sprintf("has %d lanes; give at most %d", len(lanes), MaxLanes)
	}
	return lanes, ""
}

// LanesByNumber returns the lanes by their numbers: the last of the setting is 0, so that a lane that is
// put before the others changes none of them.
func (s *Settings) LanesByNumber() []Lane {
	if s.Lanes == "" {
		return nil // as in most rooms, at each request
	}
	lanes, _ := parseLanes(s.Lanes)
	slices.Reverse(lanes)
	return lanes
}

// LaneNumber returns the number of the lane that a token names; 0 for one that the room lacks.
func (s *Settings) LaneNumber(name string) int {
	for number, lane := range s.LanesByNumber() {
		if lane.Name == name {
			return number
		}
	}
	return 0
}

// LaneName returns the name of a lane; "" if the room lacks it.
func (s *Settings) LaneName(number int) string {
	if lanes := s.LanesByNumber(); number < len(lanes) {
		return lanes[number].Name
	}
	return ""
}

// LaneWeight returns how many calls there are for one of a lane while somebody waits in
// each lane: 1 in a room without lanes.
func (s *Settings) LaneWeight(number int) float64 {
	lanes := s.LanesByNumber()
	own, all := int64(1), int64(0)
	for i, lane := range lanes {
		all += lane.Share
		if i == number {
			own = lane.Share
		}
	}
	return float64(cmp.Or(all, own)) / float64(own)
}

// checkLanes checks the lanes.
func (s *Settings) checkLanes() error {
	_, why := parseLanes(s.Lanes)
	switch {
	case why != "":
		return &SettingsError{"lanes", why}
	case s.Lanes != "" && s.Method == Lottery:
		return &SettingsError{"lanes", "cannot be in a room whose method is lottery: leave out one of the two"}
	}
	return nil
}
