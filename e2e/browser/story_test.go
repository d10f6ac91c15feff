package browser

import (
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/sluice-project/sluice/room/gate"
)

// looks are the looks of the story: both languages, a phone and a desktop, with and without
// JavaScript.
var looks = []look{
	{lang: "en", width: 390},
	{lang: "en", width: 1280, dark: true},
	{lang: "en", width: 1280, noScript: true},
	{lang: "ko", width: 390, dark: true},
	{lang: "ko", width: 1280},
	{lang: "ko", width: 390, noScript: true},
}

var headings = map[string]struct{ waiting, left, ahead string }{
	"en": {"You are in line", "You have left", "2 people are ahead of you."},
	"ko": {"순서를 기다리고 있습니다", "나가셨습니다", "앞에 2명이 기다리고 있습니다."},
}

const (
	number = `[data-sluice="number"]`
	ahead  = `[data-sluice="ahead"]`
)

func TestAVisit(t *testing.T) {
	for _, look := range looks {
		t.Run(look.String(), func(t *testing.T) {
			town := newTown(t, settings(), 3, true)
			v := newVisitor(t, look)
			words := headings[look.lang]
			v.run(chromedp.Navigate(town.url + "/"))
			v.see("h1", words.waiting)
			v.see(number, "3")
			v.see(ahead, words.ahead)
			v.fits()
			v.screenshot("waiting")
			// The script changes the page in place.
			evaluate[bool](v, `window.kept = true`)
			town.leave(1)
			v.see(number, "2")
			town.leave(2)
			v.see(number, "1")
			if got := evaluate[bool](v, `window.kept === true`); got == look.noScript {
				t.Errorf("the page is the same one: %v", got)
			}
			if got := evaluate[int](v, `document.querySelector("progress").value`); got != 66 {
				t.Errorf("progress = %d; want 66", got)
			}
			v.screenshot("next")
			if town.visits.Load() != 0 {
				t.Error("the shop was seen from outside")
			}
			town.leave(0)
			v.see("h1", "Welcome to the shop")
			v.screenshot("shop")
			v.run(chromedp.Reload())
			v.see("h1", "Welcome to the shop")
			town.counts(1, 0)
			if town.visits.Load() != 2 {
				t.Errorf("%d pages of the shop; want 2", town.visits.Load())
			}
		})
	}
}

func TestLeavingByTheButton(t *testing.T) {
	for _, look := range looks {
		t.Run(look.String(), func(t *testing.T) {
			town := newTown(t, settings(), 2, true)
			v := newVisitor(t, look)
			v.run(chromedp.Navigate(town.url + "/?from=letter"))
			v.see(number, "2")
			town.counts(1, 2)
			// The keyboard opens and submits as a finger does.
			v.act(`document.querySelector("details").open`, enter("summary"))
			v.fits()
			v.screenshot("leave")
			// A page without script is loaded again soon, and then closed.
			v.act(`!document.querySelector("details").open`, enter("summary"))
			v.act(`document.querySelector("h1").textContent === `+strconv.Quote(headings[look.lang].left), enter("summary"), enter(".leave button"))
			town.counts(1, 1)
			v.fits()
			v.screenshot("left")
			// Reloading the page that confirms leaving takes no new place; only the button does.
			v.run(chromedp.Reload())
			v.see("h1", headings[look.lang].left)
			town.counts(1, 1)
			v.act(`document.querySelector('`+number+`') !== null`, chromedp.Click(chromedp.CSS("button")))
			v.see(number, "2")
			if got := evaluate[string](v, `location.search`); got != "?from=letter" {
				t.Errorf("the visitor came back to %q", got)
			}
		})
	}
}

// The browser does the work that the gate asks for, and joins by itself; without JavaScript the page
// says what is missing.
func TestProofOfWork(t *testing.T) {
	for _, look := range looks {
		t.Run(look.String(), func(t *testing.T) {
			town := newTown(t, settings(), 1, true)
			work, err := gate.NewProofOfWork(town.engine, 16, 16)
			if err != nil {
				t.Fatal(err)
			}
			town.challenge = work
			town.serve(town.engine, nil, false)
			v := newVisitor(t, look)
			v.run(chromedp.Navigate(town.url + "/?from=letter"))
			if look.noScript {
				v.run(chromedp.WaitVisible(chromedp.CSS("noscript .notice")))
				v.fits()
				v.screenshot("proof")
				town.counts(1, 0)
				return
			}
			v.see(number, "1")
			if got := evaluate[string](v, `location.search`); got != "?from=letter" {
				t.Errorf("the visitor came back to %q", got)
			}
			town.leave(0)
			v.see("h1", "Welcome to the shop")
			town.counts(1, 0)
		})
	}
}

// If streams are blocked, the page polls.
func TestPolling(t *testing.T) {
	town := newTown(t, settings(), 2, false)
	v := newVisitor(t, look{lang: "en", width: 390})
	v.run(chromedp.Navigate(town.url + "/"))
	evaluate[bool](v, `window.kept = true`)
	v.see(number, "2")
	town.leave(1)
	v.see(number, "1")
	if !evaluate[bool](v, `window.kept === true`) {
		t.Error("the page was loaded again")
	}
	town.leave(0)
	v.see("h1", "Welcome to the shop")
}

// A waiting page announces its position from time to time, not at each change.
func TestAnnouncements(t *testing.T) {
	for tries, early := 0, false; !early && !t.Failed(); tries++ {
		t.Run(strconv.Itoa(tries), func(t *testing.T) { early = announces(t) })
	}
}

// announces returns false if the first announcement was due before the place had changed twice: a busy
// machine was too slow.
func announces(t *testing.T) (early bool) {
	town := newTown(t, settings(), 3, true)
	v := newVisitor(t, look{lang: "en", width: 390})
	v.run(chromedp.Navigate(town.url + "/"))
	v.see(number, "3")
	evaluate[chromedp.Void](v, `
		function texts(name) {
			const element = document.querySelector('[data-sluice="' + name + '"]'), all = [element.textContent];
			new MutationObserver(() => all.push(element.textContent)).observe(element, {childList: true});
			return all;
		}
		window.said = texts("announce");
		window.waits = texts("wait");`)
	town.leave(1)
	v.see(number, "2")
	town.leave(2)
	v.see(number, "1")
	switch got := evaluate[int](v, `performance.now() < 15000 ? said.length - 1 : -1`); { // the time is that of page.js
	case got < 0:
		return false
	case got > 0:
		t.Errorf("%d announcements at once", got)
	}
	v.await(`said.length > 1`)
	if !evaluate[bool](v, `said.length === 2 && waits.some(wait => said[1] === "Your place in line: 1. You are next. Estimated wait: " + wait)`) {
		t.Errorf("announced was %q, of waits of %q; want one announcement", evaluate[[]string](v, "said.slice(1)"), evaluate[[]string](v, "waits"))
	}
	return true
}

// A visitor without cookies is told so, and does not take one place after another.
func TestNoCookies(t *testing.T) {
	town := newTown(t, settings(), 1, true)
	v := newVisitor(t, look{lang: "en", width: 390})
	town.noCookies = true
	v.run(chromedp.Navigate(town.url + "/"))
	v.run(chromedp.WaitVisible(chromedp.CSS(`[data-sluice="cookies"]`)))
	v.screenshot("no-cookies")
	town.counts(1, 1)
}

// When the store was away, the page recovers by itself.
func TestLostAndFound(t *testing.T) {
	town := newTown(t, settings(), 2, false)
	away := &awayRooms{Engine: town.engine}
	town.serve(away, nil, false)
	v := newVisitor(t, look{lang: "ko", width: 390})
	v.run(chromedp.Navigate(town.url + "/"))
	v.see(number, "2")
	away.gone.Store(true)
	v.run(chromedp.WaitVisible(chromedp.CSS(`[data-sluice="lost"]`)))
	v.fits()
	v.screenshot("lost")
	town.leave(1)
	away.gone.Store(false)
	v.see(number, "1")
	v.run(chromedp.WaitNotVisible(chromedp.CSS(`[data-sluice="lost"]`)))
}
