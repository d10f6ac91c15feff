// Ends a visit from within the shop's pages, so that the next in line gets in sooner:
//
//   <script src="/.sluice/shop/release.js" async></script>
//
// By itself it does nothing but offer sluice.release(), which ends the visit and returns
// whether the browser has taken the request. With an attribute it does that when
// the visitor leaves the page:
//
//   data-release="close"     leaves the site or closes the tab. Following links,
//                            sending forms, reloading and going back within the site do
//                            not count. Only in browsers with the Navigation API; in
//                            others it does nothing, and the pass ends by its time.
//   data-release="pagehide"  leaves the page in any way, to other pages of the shop too:
//                            for the last page, such as the one after the payment.
//
// A visit is one for all tabs of a browser: closing one tab ends it for all. A browser
// that crashes, or a phone that kills the tab, sends nothing.
(function () {
  "use strict";
  var script = document.currentScript;
  if (!script) { return; }
  var leave = new URL("leave", script.src).href;
  var within = false;

  function release() {
    return navigator.sendBeacon ? navigator.sendBeacon(leave) : false;
  }
  window.sluice = window.sluice || {};
  window.sluice.release = release;

  var when = script.getAttribute("data-release");
  if (when === "close" && window.navigation) {
    window.navigation.addEventListener("navigate", function (event) {
      within = new URL(event.destination.url).origin === location.origin;
    });
    // A navigation that was cancelled, or was a download, leaves the page as it is.
    window.navigation.addEventListener("navigateerror", function () { within = false; });
    window.navigation.addEventListener("navigatesuccess", function () { within = false; });
    window.addEventListener("pageshow", function () { within = false; });
    window.addEventListener("pagehide", function () { if (!within) { release(); } });
  } else if (when === "pagehide") {
    window.addEventListener("pagehide", release);
  }
})();
