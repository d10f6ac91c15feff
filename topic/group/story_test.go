package group_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
)

var rewrite = flag.Bool("rewrite", false, "write what happens into the stories")

// TestGroupStories plays the stories in testdata/groups: commands, each followed by its
// results.
func TestGroupStories(t *testing.T) {
	files, err := os.ReadDir("testdata/groups")
	if err != nil || len(files) == 0 {
		t.Fatal("no stories", err)
	}
	for _, file := range files {
		t.Run(file.Name(), func(t *testing.T) {
			path := "testdata/groups/" + file.Name()
			told, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var happened string
			synctest.Test(t, func(t *testing.T) { happened = tell(t, string(told)) })
			if *rewrite {
				if err := os.WriteFile(path, []byte(happened), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if happened != string(told) {
				t.Errorf("%s tells another story:\n%s", path, happened)
			}
		})
	}
}

// story is a group and its cast, by name.
type story struct {
	t      *testing.T
	meta   *badMeta
	groups *group.Groups
	cast   map[string]*modelClient
	out    strings.Builder
}

// tell plays a script: lines that begin with "> " are commands, lines that begin with
// "  " are replaced by the results, all others are kept.
func tell(t *testing.T, script string) string {
	s := &story{t: t, meta: newBadMeta(), cast: map[string]*modelClient{}}
	s.groups = group.New(s.meta, topic.Single{}, topic.GroupsConfig{}, nil, nil)
	if err := s.groups.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		s.out.WriteString(line)
		if command, is := strings.CutPrefix(line, "> "); is {
			s.do(strings.Fields(command))
			synctest.Wait()
			s.answers()
		}
	}
	stopGroups(t, s.groups)
	return s.out.String()
}

func (s *story) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for name := range s.cast {
		text = regexp.MustCompile(name+"-[A-Z2-7]{26}").ReplaceAllString(text, "<"+name+">") // ids are random
	}
	fmt.Fprintf(&s.out, "  %s\n", text)
}

// saying returns the text of an error, or "ok".
func saying(err error) string {
	for _, known := range []error{
		group.ErrUnknownMember, group.ErrIllegalGeneration, group.ErrRebalanceInProgress, group.ErrFencedInstance,
		group.ErrMemberIDRequired, group.ErrInconsistentProtocol, group.ErrGroupNotEmpty, group.ErrNoGroup,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// who returns a member of the cast, which is created when it is first named. A name that
// begins with "static" is the member's instance id.
func (s *story) who(name string) *modelClient {
	if s.cast[name] == nil {
		instance := ""
		if strings.HasPrefix(name, "static") {
			instance = name
		}
		c := &modelClient{consumer: newConsumer(s.t, s.groups, name, instance)}
		c.join.RequireMember = true
		s.cast[name] = c
	}
	return s.cast[name]
}

func (s *story) do(words []string) {
	c := s.who(words[min(1, len(words)-1)])
	switch words[0] {
	case "join":
		c.joining = c.startJoin()
	case "sync":
		c.syncing = c.startSync()
	case "heartbeat":
		s.say("%s", saying(c.heartbeat()))
	case "commit":
		offset, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		s.say("%s", saying(c.commit(0, offset)))
	case "leave":
		errs, err := s.groups.Leave("g", []group.MemberIdentity{{Member: c.Member, Instance: c.Instance}})
		s.say("%s", saying(errors.Join(append(errs, err)...)))
	case "crash": // of a member, which loses its state
		c.Member, c.joining, c.syncing = "", nil, nil
	case "wait":
		delete(s.cast, words[1])
		duration, err := time.ParseDuration(words[1])
		if err != nil {
			s.t.Fatal(err)
		}
		time.Sleep(duration)
	case "describe":
		delete(s.cast, words[0])
		s.describe()
	case "restart":
		delete(s.cast, words[0])
		stopGroups(s.t, s.groups)
		s.groups = group.New(s.meta, topic.Single{}, topic.GroupsConfig{}, nil, nil)
		if err := s.groups.Load(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		for _, c := range s.cast {
			c.groups = s.groups
		}
	default:
		s.t.Fatalf("a story cannot say %q", words)
	}
}

func (s *story) describe() {
	d, err := s.groups.Describe("g")
	if err != nil {
		s.say("%s", saying(err))
		return
	}
	var members []string
	for _, m := range d.Members {
		members = append(members, m.Client)
	}
	offsets, err := s.groups.Offsets("g")
	if err != nil {
		s.t.Fatal(err)
	}
	committed := "nothing"
	if o, is := offsets["orders"][0]; is {
		committed = fmt.Sprint(o.Offset)
	}
	s.say("%v, generation %d, members %v, committed %s", d.State, d.Generation, members, committed)
}

// answers returns the new answers.
func (s *story) answers() {
	for _, name := range sortedNames(s.cast) {
		c := s.cast[name]
		if c.joining != nil && settled(c.joining) {
			err := c.finishJoin(c.joining)
			c.joining = nil
			if err != nil {
				s.say("%s is told: %s", name, saying(err))
				continue
			}
			role := "follows"
			if c.leader {
				var members []string
				for _, m := range c.joined.Members {
					members = append(members, s.nameOf(m.Member))
				}
				role = fmt.Sprintf("leads %v", members)
			}
			s.say("%s is in generation %d and %s", name, c.Generation, role)
		}
		if c.syncing != nil && settled(c.syncing) {
			result, err := c.syncing.Wait(s.t.Context())
			c.syncing = nil
			if err != nil {
				s.say("%s is told: %s", name, saying(err))
				continue
			}
			s.say("%s is assigned %q", name, result.Assignment)
		}
	}
}

// nameOf returns the name of a member id, which begins with the client's id.
func (s *story) nameOf(member string) string {
	for name := range s.cast {
		if strings.HasPrefix(member, name+"-") {
			return name
		}
	}
	return member
}

func sortedNames(cast map[string]*modelClient) []string {
	var names []string
	for name := range cast {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
