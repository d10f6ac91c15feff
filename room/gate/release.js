// Ends a visit from within the shop's pages, so that the next in line gets in sooner:
//
//   <script src="/.sluice/shop/release.js" async></script>
//
// By itself it does nothing but offer sluice.release(), which ends the visit and returns
// whether the browser has taken the request. With the attribute
//
//   data-release="pagehide"
//
// it does that when the visitor leaves the page, in whatever way: by closing the tab, but
// also by reloading it, by going back, and by following a link to another page of the
// shop. So it is for the last page, such as the one after the payment, and for no other:
// browsers do not tell pages whether a tab is being closed or only reloaded.
//
// A visit is one for all tabs of a browser. A browser that crashes, or a phone that
// ends the tab, sends nothing: the pass then ends by its time.
(function () {
  "use strict";
  var script = document.currentScript;
  if (!script) { return; }
  var leave = new URL("leave", script.src).href;

  function release() {
    return navigator.sendBeacon ? navigator.sendBeacon(leave) : false;
  }
  window.sluice = window.sluice || {};
  window.sluice.release = release;
  if (script.getAttribute("data-release") === "pagehide") {
    window.addEventListener("pagehide", release);
  }
})();
