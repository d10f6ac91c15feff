// Package browser tests the waiting page of package room/gate in a real browser,
// Chromium, over the real engine. It is a module of its own, so that chromedp does not
// reach users.
//
// A visitor waits, sees its position fall without the page being loaded again, is let
// through to the shop, comes back by reloading without losing its pass, and leaves by
// the button or by a beacon; without JavaScript as well. In both languages, on the width of
// a phone and of a desktop; nothing may be wider than the screen, and the browser
// must have nothing to complain about.
//
// With SLUICE_SCREENSHOTS=DIR it saves what it sees there.
package browser
