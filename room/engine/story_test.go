package engine_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
)

var updateStories = flag.Bool("update", false, "rewrite the stories in testdata/stories")

// TestStories runs the scripts in testdata/stories. Lines that begin with "# " are prose; each
// other line is an action, and the lines below it that begin with "| " are its results.
func TestStories(t *testing.T) {
	paths, err := filepath.Glob("testdata/stories/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var told string
			synctest.Test(t, func(t *testing.T) { told = tell(t, string(text)) })
			if *updateStories {
				if err := os.WriteFile(path, []byte(told), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if told != string(text) {
				t.Errorf("the story went otherwise (go test -run TestStories ./room -update accepts it):\n%s", told)
			}
		})
	}
}

// stage is the room "shop" of a story.
type stage struct {
	rig   *rig
	begin time.Time
	// cast are the visitors in the order of entering.
	cast []*actor
	out  *strings.Builder
}

type actor struct {
	name, ticket, pass string
	asking             bool
	last               string
}

func tell(t *testing.T, script string) string {
	s := &stage{rig: newRig(t, storetest.NewMemory()), begin: time.Now(), out: new(strings.Builder)}
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "| ") {
			continue
		}
		fmt.Fprintln(s.out, line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		play, ok := scenes[verb]
		if !ok {
			t.Fatalf("%q is nothing that happens in a story", verb)
		}
		play(s, rest)
	}
	s.rig.stop()
	return s.out.String()
}

// says writes a result.
func (s *stage) says(format string, args ...any) { fmt.Fprintf(s.out, "| "+format+"\n", args...) }

func (s *stage) at(when time.Time) string {
	return fmt.Sprintf("+%gs", when.Sub(s.begin).Round(100*time.Millisecond).Seconds())
}

func (s *stage) answer(a engine.Answer, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case a.State == room.Inside:
		return "inside until " + s.at(a.PassExpiresAt)
	case a.Position == 0:
		return a.State.String() + ", the place is not drawn yet"
	}
	return fmt.Sprintf("%s at %d", a.State, a.Position)
}

func (s *stage) actor(name string) *actor {
	for _, a := range s.cast {
		if a.name == name {
			return a
		}
	}
	a := &actor{name: name}
	s.cast = append(s.cast, a)
	return a
}

func (s *stage) ask(a *actor) string {
	answer, err := s.rig.Ask(ctx, "shop", a.ticket, nowhere)
	if answer.Ticket != "" {
		a.ticket = answer.Ticket
	}
	if answer.Pass != "" {
		a.pass = answer.Pass
	}
	return s.answer(answer, err)
}

func (s *stage) view(v engine.View, err error) {
	if err != nil {
		s.says("%v", err)
		return
	}
	s.says("%s: %d waiting, %d inside, %d called", v.Phase, v.Status.Waiting, v.Status.Inside, v.Status.Called)
}

// settings parses {"mode":…}, where times are seconds since the beginning: "+10s".
func (s *stage) settings(text string) (settings room.Settings) {
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == '"' }) {
		if after, err := time.ParseDuration(strings.TrimPrefix(word, "+")); err == nil && strings.HasPrefix(word, "+") {
			text = strings.ReplaceAll(text, `"`+word+`"`, `"`+s.begin.Add(after).UTC().Format(time.RFC3339Nano)+`"`)
		}
	}
	if err := json.Unmarshal([]byte(text), &settings); err != nil {
		s.rig.t.Fatal(err)
	}
	return settings
}

// scenes are the actions of stories.
var scenes = map[string]func(*stage, string){
	"room": func(s *stage, settings string) {
		view, _, err := s.rig.PutRoom(ctx, "shop", s.settings(settings))
		s.view(view, err)
	},
	"show":  func(s *stage, _ string) { s.view(s.rig.Room(ctx, "shop")) },
	"pause": func(s *stage, _ string) { s.view(s.rig.Pause(ctx, "shop")) },
	// The visitors who are let in then are called in the background.
	"resume": func(s *stage, _ string) {
		_, err := s.rig.Resume(ctx, "shop")
		synctest.Wait()
		now, failed := s.rig.Room(ctx, "shop")
		s.view(now, errors.Join(err, failed))
	},
	// Names of visitors who enter, ask once, keep asking, fall silent or leave.
	"enter": func(s *stage, names string) {
		for name := range strings.FieldsSeq(names) {
			answer, err := s.rig.Enter(ctx, "shop", room.Visit{Key: name})
			a := s.actor(name)
			a.ticket, a.pass = answer.Ticket, answer.Pass
			a.last = s.answer(answer, err)
			s.says("%s: %s", name, a.last)
		}
	},
	"ask": func(s *stage, names string) {
		for name := range strings.FieldsSeq(names) {
			a := s.actor(name)
			a.last = s.ask(a)
			s.says("%s: %s", name, a.last)
		}
	},
	"asking": func(s *stage, names string) {
		for name := range strings.FieldsSeq(names) {
			s.actor(name).asking = true
		}
	},
	"silent": func(s *stage, names string) {
		for name := range strings.FieldsSeq(names) {
			s.actor(name).asking = false
		}
	},
	"leave": func(s *stage, names string) {
		for name := range strings.FieldsSeq(names) {
			if err := s.rig.Leave(ctx, "shop", s.actor(name).ticket, nowhere); err != nil {
				s.says("%s: %v", name, err)
			}
			s.actor(name).asking = false
		}
	},
	"renew": func(s *stage, name string) {
		s.says("%s: %s", name, s.answer(s.rig.Renew(ctx, "shop", s.actor(name).ticket, nowhere)))
	},
	"shows-pass": func(s *stage, name string) {
		s.says("%s: %s", name, s.answer(s.rig.AskPass(ctx, "shop", s.actor(name).pass, nowhere)))
	},
	"revoke": func(s *stage, name string) {
		err := s.rig.RevokeAll
		if name != "all" {
			if err := s.rig.RevokeVisitor(ctx, "shop", name); err != nil {
				s.says("%v", err)
			}
			return
		}
		if err := err(ctx, "shop"); err != nil {
			s.says("%v", err)
		}
	},
	"wait":              func(s *stage, d string) { s.wait(d) },
	"restart":           func(s *stage, _ string) { s.rig = s.rig.restarted() },
	"the-store-is-away": func(s *stage, _ string) { s.rig.store.Fail(room.ErrUnavailable) },
	"the-store-is-back": func(s *stage, _ string) { s.rig.store.Fail(nil) },
}

// wait lets time pass, in which visitors who keep asking do so twice a second, never at the moment
// when something is due.
func (s *stage) wait(text string) {
	d, err := time.ParseDuration(text)
	if err != nil {
		s.rig.t.Fatal(err)
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(250 * time.Millisecond)
		for _, a := range s.cast {
			if !a.asking {
				continue
			}
			now := s.ask(a)
			before, _, _ := strings.Cut(a.last, " until")
			if after, _, _ := strings.Cut(now, " until"); after != before {
				s.says("%s %s: %s", s.at(time.Now()), a.name, now)
			}
			a.last = now
			if strings.Contains(now, "gone") {
				a.asking = false
			}
		}
		time.Sleep(250 * time.Millisecond)
	}
}
