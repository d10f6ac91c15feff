// Package browser tests the waiting page of package room/gate and the dashboard in a real browser,
// Chromium, over the real engine. It is a module of its own, so that chromedp does not reach users.
//
// A visitor waits, sees its position fall without the page being loaded again, is let through to
// the shop, reloads without losing its pass, and leaves by the button or by a beacon, also without
// JavaScript. The tests run in both languages, at the widths of a phone and a desktop; nothing may
// be wider than the screen, and the browser must not report errors.
//
// The waiting page and an app with sluice.js also run behind nginx, HAProxy and Caddy, which ask the gate.
//
// The dashboard of package web is tested over the real binary with load: each page in each look, with
// axe-core.
//
// With SLUICE_SCREENSHOTS=DIR the tests save screenshots there.
package browser
