package storetest

import (
	"math"
	"os"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

var autoCases = []testCase{
	{"the rate of a target that throttles is found", false, autoFound},
	{"a rate that is not made use of stays", false, autoIdle},
	{"a rate to be found is set and unset", false, autoSet},
	{"a rate to be found holds after a restart", true, autoRestart},
}

func (k *kit) autoTarget(name string) {
	k.t.Helper()
	k.set(bulk.SettingsChange{Name: name, Target: &bulk.TargetLimits{Auto: true}})
}

// found returns the rate found for a target, which the backlog must have.
func (k *kit) found(target string) float64 {
	k.t.Helper()
	rate, has := k.backlog().Found[target]
	k.check(has && rate >= bulk.MinRate, "the backlog has the rates %v, want one of %s", k.backlog().Found, target)
	return rate
}

// autoTime is the duration of an attempt.
const autoTime = 20 * time.Millisecond

// autoWindow runs one window against a target that lets `most` attempts pass in it. As many
// attempts must start as the found rate allows. It returns that rate, and how many attempts
// started and were throttled.
func (k *kit) autoWindow(window time.Duration, target string, most int) (rate float64, started, throttled int) {
	k.t.Helper()
	k.dispatch(100_000)
	rate = k.found(target)
	k.admitAll()
	jobs := k.lease(10_000)
	k.admitAll()
	jobs = append(jobs, k.lease(10_000)...)
	allowed := rate * window.Seconds()
	k.check(float64(len(jobs)) < allowed+1 && float64(len(jobs)) > allowed-1, "%d attempts started in a window that %g are found for", len(jobs), allowed)
	k.advance(autoTime)
	passed := min(len(jobs), most)
	k.settle(bulk.Settlement{Kind: bulk.Succeeded, Took: autoTime}, jobs[:passed]...)
	if passed < len(jobs) {
		k.settle(bulk.Settlement{Kind: bulk.Throttled, Took: autoTime}, jobs[passed:]...)
	}
	k.check(k.found(target) == rate, "the rate went from %g to %g within a window", rate, k.found(target))
	k.admitAll()
	k.check(len(k.lease(1)) == 0, "more started in a window than are found for it")
	k.advance(window - autoTime)
	return rate, len(jobs), len(jobs) - passed
}

// autoFound runs a target that lets 60 attempts pass in a second, and later 30; with SLUICE_LONG=1 also in windows
// of half a second.
func autoFound(k *kit) {
	lengths := []time.Duration{time.Second}
	if os.Getenv(longVariable) == "1" {
		lengths = append(lengths, 500*time.Millisecond)
	}
	for _, window := range lengths {
		config := unlimited()
		config.Window = window
		k.open(config)
		k.autoTarget("api")
		k.run(targeted("a", "one", "api"), 5000)
		k.run(targeted("b", "two", "api"), 5000)
		k.advance(window - time.Duration(time.Now().UnixNano()%int64(window)))
		k.check(k.found("api") == bulk.AutoFirst, "the rate begins with %g, want %g", k.found("api"), bulk.AutoFirst)
		for _, rate := range []float64{60, 30} {
			most, seconds := int(rate*window.Seconds()), 0.0
			sum, windows, throttles, starts := 0.0, 0.0, 0, 0
			for ; seconds < 50; seconds += window.Seconds() {
				found, started, throttled := k.autoWindow(window, "api", most)
				if seconds >= 20 {
					sum, windows, throttles, starts = sum+found, windows+1, throttles+throttled, starts+started
				}
			}
			k.check(math.Abs(sum/windows-rate) <= rate/10, "windows of %v: the rate found is %g, want %g within 10 %%", window, sum/windows, rate)
			k.check(throttles*50 <= starts, "windows of %v: %d of %d attempts were throttled, want at most 2 %%", window, throttles, starts)
		}
	}
}

func autoIdle(k *kit) {
	k.open(unlimited())
	k.autoTarget("api")
	k.run(targeted("a", "tenant", "api"), 400)
	k.advance(time.Second - time.Duration(time.Now().UnixNano()%int64(time.Second)))
	for range 4 {
		k.autoWindow(time.Second, "api", 1000)
	}
	rate := k.found("api")
	k.check(rate > bulk.AutoFirst, "the rate of a target that passes everything is still %g", rate)
	k.transition("a", bulk.Transition{Kind: bulk.Pause})
	for range 20 {
		k.advance(time.Second)
		k.check(k.found("api") == rate, "the rate went from %g to %g while nothing waited", rate, k.found("api"))
	}
	k.transition("a", bulk.Transition{Kind: bulk.Resume})
	for range 20 { // one job at a time does not use up the rate
		k.admit("a", 1)
		k.succeed(k.lease(1)...)
		k.advance(time.Second)
	}
	k.check(k.found("api") == rate, "the rate went from %g to %g while it was not made use of", rate, k.found("api"))
}

func autoSet(k *kit) {
	k.open(unlimited())
	k.run(targeted("a", "tenant", "api"), 3000)
	k.check(len(k.backlog().Found) == 0, "rates %v are found, but none is to be", k.backlog().Found)
	k.limitTarget("api", 25, 0)
	k.check(len(k.backlog().Found) == 0, "rates %v are found, but none is to be", k.backlog().Found)
	k.advance(time.Second - time.Duration(time.Now().UnixNano()%int64(time.Second)))
	k.autoTarget("api")
	for range 4 {
		k.autoWindow(time.Second, "api", 1000)
	}
	rate := k.found("api")
	k.autoTarget("api")
	k.check(k.found("api") == rate, "setting it again changed the rate found from %g to %g", rate, k.found("api"))
	targets := k.backlog("api").Targets
	k.check(targets["api"] == int64(rate), "targets %v, want %g for api", targets, rate)
	k.limitTarget("api", 5, 0)
	k.check(len(k.backlog().Found) == 0, "rates %v are found, but a number was set", k.backlog().Found)
	k.check(k.admitAll() == 5 && len(k.lease(100)) == 5, "a limit of 5 in place of one to be found did not start 5")
	k.advance(time.Second)
	k.limitTarget("api", 0, 0)
	k.check(k.admitAll() > 1000, "without a limit few were admitted")
}

func autoRestart(k *kit) {
	for name, restart := range k.restarts() {
		k.open(unlimited())
		k.autoTarget("api")
		k.run(targeted("a", "tenant", "api"), 5000)
		k.advance(time.Second - time.Duration(time.Now().UnixNano()%int64(time.Second)))
		for range 12 {
			k.autoWindow(time.Second, "api", 60)
		}
		restart()
		k.advance(time.Second)
		sum := 0.0
		for i := range 50 {
			if rate, _, _ := k.autoWindow(time.Second, "api", 60); i >= 20 {
				sum += rate / 30
			}
		}
		k.check(sum >= 54 && sum <= 66, "after a %s the rate found is %g, want 60 within 10 %%", name, sum)
	}
}
