//go:build !race

package storetest

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/sluice-project/sluice/room"
)

// TestMistakes checks that the suite finds each mistake, in each of its groups.
func TestMistakes(t *testing.T) {
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "1ms"} {
		was := flag.Lookup(name).Value.String()
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := flag.Set(name, was); err != nil {
				t.Error(err)
			}
		}()
	}
	for name, mistake := range mistakes {
		for _, group := range mistake.groups {
			t.Run(name+" by "+group, func(t *testing.T) {
				if !finds(t, group, faultyHarness(mistake.fault)) {
					t.Fatalf("%s passes a store with the mistake %q", group, name)
				}
			})
		}
	}
}

func faultyHarness(fault fault) Harness {
	return Harness{Open: func(testing.TB) Opened {
		f := &faulty{NewMemory(), fault}
		return Opened{
			Store:   f,
			Advance: func(d time.Duration) { f.Shift(d) },
			Reopen: func() room.Store {
				m := f.Memory.Reopen()
				if fault.reopen != nil {
					fault.reopen(m)
				}
				f = &faulty{m, fault}
				return f
			},
		}
	}}
}

// unlucky is how often what is random may find nothing, where once in a hundred is much.
const unlucky = 20

// finds reports whether a case of a group fails.
func finds(t *testing.T, name string, harness Harness) bool {
	t.Helper()
	// These are random, and may be unlucky.
	for range unlucky {
		if name == "model" && fails(t, func(tb testing.TB) { checkModel(tb, harness) }) ||
			name == "concurrent" && anyFails(t, concurrentCases, harness) {
			return true
		}
	}
	if name == "model" || name == "concurrent" {
		return false
	}
	for _, group := range groups {
		if group.name != name {
			continue
		}
		return anyFails(t, group.cases, harness)
	}
	t.Fatalf("there is no group %q", name)
	return false
}

func anyFails(t *testing.T, cases []testCase, harness Harness) bool {
	t.Helper()
	return slices.ContainsFunc(cases, func(c testCase) bool {
		return fails(t, func(tb testing.TB) { c.run(newKit(tb, harness)) })
	})
}

// fails reports whether a test fails.
func fails(t *testing.T, test func(testing.TB)) bool {
	t.Helper()
	r := &recorder{TB: t}
	var broke any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { broke = recover() }()
		defer r.clean()
		test(r)
	}()
	<-done
	if broke != nil {
		t.Fatalf("the suite broke instead of failing: %v", broke)
	}
	t.Log(r.why)
	return r.failed
}

// recorder is a testing.TB that may fail.
type recorder struct {
	testing.TB
	failed   bool
	why      string // the first failure
	cleanups []func()
}

func (r *recorder) fail(why string) {
	if !r.failed {
		r.failed, r.why = true, why
	}
}

func (r *recorder) clean() {
	for i := range r.cleanups {
		r.cleanups[len(r.cleanups)-1-i]()
	}
}

func (r *recorder) Cleanup(f func())             { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(args ...any)            { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.fail(fmt.Sprintf(f, args...)) }
func (r *recorder) Fail()                        { r.fail("") }
func (r *recorder) Failed() bool                 { return r.failed }
func (r *recorder) Fatal(args ...any)            { r.fail(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.fail(fmt.Sprintf(f, args...)); runtime.Goexit() }
func (r *recorder) FailNow()                     { r.fail(""); runtime.Goexit() }
func (r *recorder) Helper()                      {}
func (r *recorder) Log(...any)                   {}
func (r *recorder) Logf(string, ...any)          {}
