package rapidtest

import (
	"testing"

	"pgregory.net/rapid"
)

// TB returns a testing.TB that fails a check of package rapid.
func TB(t testing.TB, rt *rapid.T) testing.TB { return check{t, rt} }

type check struct {
	testing.TB
	rapid *rapid.T
}

func (c check) Cleanup(f func())             { c.rapid.Cleanup(f) }
func (c check) Error(args ...any)            { c.rapid.Error(args...) }
func (c check) Errorf(f string, args ...any) { c.rapid.Errorf(f, args...) }
func (c check) Fail()                        { c.rapid.Fail() }
func (c check) FailNow()                     { c.rapid.FailNow() }
func (c check) Failed() bool                 { return c.rapid.Failed() }
func (c check) Fatal(args ...any)            { c.rapid.Fatal(args...) }
func (c check) Fatalf(f string, args ...any) { c.rapid.Fatalf(f, args...) }
func (c check) Helper()                      { c.rapid.Helper() }
func (c check) Log(args ...any)              { c.rapid.Log(args...) }
func (c check) Logf(f string, args ...any)   { c.rapid.Logf(f, args...) }
