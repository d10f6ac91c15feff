// Package web is the dashboard: pages that show an operator what all parts do, in a browser.
//
// # Nouns
//
//   - A [Dashboard] is a lifecycle.Service, with the handler of all paths below [Prefix].
//   - [Bulk], [Rooms] and [Topics] are what it needs of the parts' engines; a part that is
//     nil is off, and shown so.
//   - A screen is a page: a template, and a function that returns its data.
//   - The history is an hour of figures, in memory.
//   - An act is a change that an operator makes: a page first says what will happen.
//
// # How data flows
//
//	GET  ─▶ screen ─▶ engine ─▶ data ─▶ template (HTML, SVG)
//	POST ─▶ own pages only ─▶ act ─▶ engine ─▶ redirect to a screen
//	metrics ─ every 10 s ─▶ history ─▶ rates and charts
//
// # Guarantees
//
//   - A page is complete without JavaScript, and loads nothing from another host. The script
//     only loads the page again.
//   - All lists are paged. A page reads a bounded part of what there is.
//   - A page of another origin can neither act nor show a page in a frame.
//   - All text that comes from a part is escaped; binary text is shown in base64.
package web
