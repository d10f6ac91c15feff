package storetest

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// Finds runs a group of the suite's cases, or "model", against a store with a deliberate
// mistake, and returns the first failure, or "" if the group passes. It tests the suite, not
// the store.
func Finds(t *testing.T, factory Factory, group string) (failure string) {
	t.Helper()
	if group == "model" {
		for range 20 { // the model is random, and may miss the mistake
			synctest.Test(t, func(t *testing.T) {
				failure = failureOf(t, func(t testing.TB) {
					runModel(t, factory, func(rt *rapid.T, check func(*rapid.T)) { check(rt) })
				})
			})
			if failure != "" {
				break
			}
		}
		return failure
	}
	found := false
	for _, g := range groups {
		if g.name != group {
			continue
		}
		found = true
		for _, c := range g.cases {
			synctest.Test(t, func(t *testing.T) {
				failure = failureOf(t, func(t testing.TB) { c.run(&kit{t: t, factory: factory}) })
			})
			if failure != "" {
				return failure
			}
		}
	}
	if !found {
		t.Fatalf("the suite has no group %q", group)
	}
	return ""
}

// failureOf returns the first failure of a test, or "" if it passes.
func failureOf(t *testing.T, test func(testing.TB)) string {
	r := &recorder{TB: t}
	var panicked any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		defer r.clean()
		test(r)
	}()
	<-done
	if panicked != nil {
		t.Fatalf("the suite broke instead of failing: %v", panicked)
	}
	return r.failure
}

// recorder is a test whose failure is recorded.
type recorder struct {
	testing.TB
	failure  string
	cleanups []func()
}

func (r *recorder) fail(why string) {
	if r.failure == "" {
		r.failure = "failed: " + why
	}
}

func (r *recorder) clean() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

func (r *recorder) Cleanup(f func())             { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(args ...any)            { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.fail(fmt.Sprintf(f, args...)) }
func (r *recorder) Fail()                        { r.fail("") }
func (r *recorder) FailNow()                     { r.fail(""); runtime.Goexit() }
func (r *recorder) Failed() bool                 { return r.failure != "" }
func (r *recorder) Fatal(args ...any)            { r.fail(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.fail(fmt.Sprintf(f, args...)); runtime.Goexit() }
func (r *recorder) Helper()                      {}
func (r *recorder) Log(...any)                   {}
func (r *recorder) Logf(string, ...any)          {}
