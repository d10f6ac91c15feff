package browser

import (
	"context"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// inside returns a visitor who was let in at once, on a page of the shop.
func inside(t *testing.T, path string) (*town, *visitor) {
	t.Helper()
	town := newTown(t, settings(), 0, true)
	v := newVisitor(t, look{lang: "en", width: 1280})
	v.run(chromedp.Navigate(town.url + path))
	town.counts(1, 0)
	return town, v
}

func TestReleaseByCall(t *testing.T) {
	town, v := inside(t, "/button")
	v.see("h1", "Button")
	if !evaluate[bool](v, `sluice.release()`) {
		t.Error("the browser did not take the beacon")
	}
	town.counts(0, 0)
}

func TestReleaseWhenThePageIsLeft(t *testing.T) {
	town, v := inside(t, "/thanks")
	v.see("h1", "Thanks")
	v.act(`location.href === "about:blank"`, chromedp.Click(chromedp.CSS("#away")))
	town.counts(0, 0)
}

// Closing the tab leaves the page too.
func TestReleaseWhenTheTabIsClosed(t *testing.T) {
	town, v := inside(t, "/thanks")
	v.see("h1", "Thanks")
	closing, cancel := context.WithCancel(v.ctx)
	var asked sync.WaitGroup
	asked.Go(func() { _ = chromedp.Do(closing, call(page.Close, cdp.Empty{})) }) // the answer never arrives
	town.counts(0, 0)
	cancel()
	asked.Wait()
}

// The script alone releases nothing.
func TestScriptAloneReleasesNothing(t *testing.T) {
	town, v := inside(t, "/button")
	for range 3 {
		v.run(chromedp.Reload())
		v.see("h1", "Button")
	}
	v.run(chromedp.Navigate(town.url + "/"))
	v.see("h1", "Welcome to the shop")
	if view, err := town.engine.Room(t.Context(), roomName); err != nil || view.Status.Inside != 1 || view.Status.Entered != 1 {
		t.Fatalf("%+v, %v: the visit has ended", view.Status, err)
	}
}
