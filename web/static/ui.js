// The part of a page with data-live is loaded again every 2 s, while the page is visible and
// nobody is in the middle of something there. Pages are complete without this script.
"use strict";
const busy = (live) =>
  document.hidden ||
  live.querySelector("details[open]") ||
  live.contains(document.activeElement) ||
  !document.getSelection().isCollapsed;
setInterval(() => {
  const live = document.querySelector("[data-live]");
  if (live && !busy(live)) htmx.trigger(live, "refresh");
}, 2000);
// An answer that comes while somebody has begun something is left out.
document.addEventListener("htmx:beforeSwap", (event) => {
  if (busy(event.detail.target)) event.detail.shouldSwap = false;
});
const lost = (is) => document.body.toggleAttribute("data-lost", is);
document.addEventListener("htmx:sendError", () => lost(true));
document.addEventListener("htmx:responseError", () => lost(true));
document.addEventListener("htmx:afterSwap", () => lost(false));
