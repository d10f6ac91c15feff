// Puts an app of one page in a line, without a page of the gate's own:
//
//   <script src="/.sluice/sluice.js"></script>
//
//   const shop = sluice.room("shop");
//   await shop.enter({ onWait: (place) => show(place.position, place.estimated_wait_ms) });
//   const response = await shop.fetch("/api/orders", { method: "POST", body });
//   await shop.leave();
//
// Places are objects of the API: status, position, ahead, estimated_wait_ms, next_poll_ms,
// pass_expires_at. Errors have the code and the reason of the gate's problem, and retryAfter
// in seconds where a retry helps. See docs/room/apps.md.
(function () {
  "use strict";
  var TRIES = 3, LONGEST = 60000;

  function failure(response, problem) {
    var error = new Error(problem.detail || "the gate answered " + response.status);
    error.name = "SluiceError";
    error.status = response.status;
    error.code = problem.code || "unknown";
    error.reason = problem.reason;
    error.retryAfter = Number(response.headers.get("Retry-After")) || undefined;
    return error;
  }

  function pause(milliseconds, signal) {
    return new Promise(function (resolve, reject) {
      if (signal && signal.aborted) { reject(signal.reason); return; }
      function stop() { clearTimeout(timer); reject(signal.reason); }
      var timer = setTimeout(function () {
        if (signal) { signal.removeEventListener("abort", stop); }
        resolve();
      }, milliseconds);
      if (signal) { signal.addEventListener("abort", stop, { once: true }); }
    });
  }

  function Room(name) {
    this.name = name;
    this.base = "/.sluice/" + encodeURIComponent(name) + "/";
  }

  // ask calls a path of the room, and returns the place.
  Room.prototype.ask = async function (method, path, options) {
    var response = await fetch(this.base + path, {
      method: method, body: options.form && new URLSearchParams(options.form), signal: options.signal,
      credentials: "same-origin", cache: "no-store", headers: { Accept: "application/json" },
    });
    if (response.status === 204) { return null; }
    var answer = await response.json().catch(function () { return {}; });
    if (!response.ok) { throw failure(response, answer); }
    return answer;
  };

  // status returns the visitor's place.
  Room.prototype.status = function (options) { return this.ask("GET", "status", options || {}); };

  // renew gives a fixed pass its whole time again.
  Room.prototype.renew = function (options) { return this.ask("POST", "renew", options || {}); };

  // leave gives up the place, or ends the visit.
  Room.prototype.leave = function (options) { return this.ask("POST", "leave", options || {}); };

  // join takes a place. One that was lost by time is replaced, as on the gate's page; one that
  // was revoked needs leave first, and when the room has closed there is none.
  Room.prototype.join = async function (options) {
    try {
      return await this.ask("POST", "enter", options);
    } catch (error) {
      if (error.code !== "gone" || ["revoked", "ended", "sold_out"].includes(error.reason)) { throw error; }
      await this.leave(options);
      return this.ask("POST", "enter", options);
    }
  };

  // enter waits until the visitor is inside. Options: onWait is called with each place in line,
  // signal ends the wait (the place is kept, as for a page that was closed), form has the fields
  // of a challenge.
  Room.prototype.enter = async function (options) {
    options = options || {};
    var place = await this.join(options), failures = 0;
    while (place.status !== "inside") {
      if (place.status === "waiting") {
        if (options.onWait) { options.onWait(place); }
        var wait = failures ? Math.min(LONGEST, 2500 * Math.pow(2, failures)) : place.next_poll_ms || 5000;
        await pause(Math.max(500, wait * (0.9 + 0.2 * Math.random())), options.signal);
      }
      try {
        // A slot is the visitor's when a cookie comes back; without cookies, this fails.
        place = await this.ask("GET", "status", options);
        if (place.status !== "waiting") { place = await this.join(options); }
        failures = 0;
      } catch (error) {
        if (error.code === "gone") {
          place = await this.join(options);
        } else if (options.signal && options.signal.aborted || error.status && error.status < 500) {
          throw error;
        } else { // the network, or a gate that does not answer, costs no place
          place.status = "waiting";
          failures++;
        }
      }
    }
    return place;
  };

  // fetch is the browser's, and waits when the gate holds the call: the site has not seen it then,
  // so it is sent again from inside.
  Room.prototype.fetch = async function (input, init, options) {
    var request = new Request(input, init), response;
    if ((request.headers.get("Accept") || "*/*") === "*/*") { request.headers.set("Accept", "application/json"); }
    for (var tries = 0; tries < TRIES; tries++) {
      response = await fetch(request.clone());
      if (response.headers.get("Sluice-Wait") !== this.name) { return response; }
      await this.enter(Object.assign({ signal: request.signal }, options));
    }
    return response;
  };

  window.sluice = window.sluice || {};
  window.sluice.room = function (name) { return new Room(name); };
})();
