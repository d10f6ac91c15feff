// The part of a page with data-live is loaded again every 2 s or less often, while the page is visible and
// nobody is in the middle of something there. Pages are complete without this script.
"use strict";
const busy = (live) =>
  document.hidden ||
  live.querySelector("details[open]") ||
  live.querySelector(":focus-visible") ||
  !document.getSelection().isCollapsed;
let began = 0;
let next = Date.now() + 2000;
setInterval(() => {
  const live = document.querySelector("[data-live]");
  if (!live || Date.now() < next || busy(live)) return;
  began = Date.now();
  next = Infinity;
  htmx.trigger(live, "refresh");
}, 200);
// A page that is slow is asked for less often, so that it costs the server a bounded part of its time.
document.addEventListener("htmx:afterRequest", () => {
  next = Date.now() + Math.max(2000, 20 * (Date.now() - began));
});
// An answer that comes while somebody has begun something is left out.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (busy(event.detail.target)) event.detail.shouldSwap = false;
});
const lost = (is) => document.body.toggleAttribute("data-lost", is);
document.addEventListener("htmx:sendError", () => lost(true));
document.addEventListener("htmx:responseError", () => lost(true));
document.addEventListener("htmx:afterSwap", () => lost(false));
