{{define "script"}}{{if .Live}}
<script nonce="{{.Nonce}}">
(function () {
  "use strict";
  var page = {{.Live}};
  var words = page.words;

  // The same as in words.go.
  function number(n) { return String(n).replace(/\B(?=(\d{3})+$)/g, words.thousands); }

  function each(name, change) {
    Array.prototype.forEach.call(document.querySelectorAll('[data-sluice="' + name + '"]'), change);
  }
  function write(name, text) {
    each(name, function (element) { if (element.textContent !== text) { element.textContent = text; } });
  }
  function show(name, visible) {
    each(name, function (element) { element.hidden = !visible; });
  }
  function fill(text, values) {
    return text.replace(/\{(\w+)\}/g, function (_, name) { return number(values[name]); });
  }
  function aheadText(ahead) {
    return ahead === 0 ? words.next : ahead === 1 ? words.ahead_one : fill(words.ahead, { n: ahead });
  }
  function between(low, high, one, both) {
    return low >= high ? fill(one, { n: high }) : fill(both, { low: low, high: high });
  }
  function waitText(wait) {
    if (!wait) { return words.wait_unknown; }
    var low = Math.floor(wait.low / 60000), high = Math.ceil(wait.high / 60000), hours = Math.ceil(wait.high / 3600000);
    if (wait.high < 60000) { return words.wait_seconds; }
    if (high > 120 && low === 0) { return fill(words.wait_up_to_hours, { high: hours }); }
    if (high > 120 && low < 60) { return fill(words.wait_minute_hours, { low: low, high: hours }); }
    if (high > 120) { return between(Math.floor(low / 60), hours, words.wait_hours, words.wait_hours_range); }
    if (low === 0 && high === 1) { return words.wait_up_to_one; }
    if (low === 0) { return fill(words.wait_up_to, { high: high }); }
    if (high === 1) { return words.wait_minute; }
    return between(low, high, words.wait_minutes, words.wait_range);
  }

  // reload asks for the page again, which lets in who is called. Twice within two
  // seconds would be a loop that only costs.
  var reloading = false;
  function reload() {
    if (reloading) { return; }
    reloading = true;
    var last = 0;
    try {
      last = Number(sessionStorage.getItem("sluice-reload")) || 0;
      sessionStorage.setItem("sluice-reload", String(Date.now()));
    } catch (e) { /* storage may be forbidden */ }
    var pause = Math.abs(Date.now() - last) < 2000 ? 2000 : 0;
    setTimeout(function () {
      if (page.return) { location.replace(page.return); } else { location.reload(); }
    }, pause);
  }

  // announce tells screen readers, at most every 15 s.
  var announced = Date.now(), pending = null, told = null;
  function announce(text) {
    told = text;
    if (pending) { return; }
    pending = setTimeout(function () {
      pending = null;
      announced = Date.now();
      write("announce", told);
    }, Math.max(0, announced + 15000 - Date.now()));
  }

  var start = page.start, shown = page.position, title = document.title.replace(/^.* · /, "");
  function update(answer) {
    if (answer.status !== "waiting") { reload(); return; }
    var position = answer.position || 0;
    // What the page has and what it does not have yet differ before and after a draw.
    if ((position > 0) !== (shown > 0)) { reload(); return; }
    if (position === 0) { return; }
    start = Math.max(start, position);
    var place = number(position) + words.place_suffix, ahead = aheadText(position - 1), wait = waitText(answer.estimated_wait_ms);
    write("number", number(position));
    write("place", place);
    write("ahead", ahead);
    write("wait", wait);
    each("progress", function (element) { element.value = Math.floor(100 * (start - position) / start); });
    document.title = place + " · " + title;
    if (position !== shown) { announce(words.place + ": " + place + ". " + ahead + " " + words.wait + ": " + wait); }
    shown = position;
  }

  // Polling is what is left where streams do not arrive.
  var poller = null, failures = 0, polling = false;
  function later(wait) {
    clearTimeout(poller);
    poller = setTimeout(poll, Math.max(500, wait * (0.9 + 0.2 * Math.random())));
  }
  function poll() {
    clearTimeout(poller);
    polling = true;
    fetch(page.status, { credentials: "same-origin", cache: "no-store", headers: { Accept: "application/json" } }).then(function (response) {
      if (response.status === 410) { reload(); return null; }
      if (response.status === 401) { show("lost", false); show("cookies", true); return null; }
      if (!response.ok) { throw new Error(String(response.status)); }
      return response.json().then(function (answer) {
        failures = 0;
        show("lost", false);
        update(answer);
        later(answer.next_poll_ms || 5000);
      });
    }).catch(function () {
      failures++;
      show("lost", true);
      later(Math.min(60000, 2500 * Math.pow(2, failures)));
    });
  }

  var stream = null, heard = false;
  function follow() {
    if (!window.EventSource || !page.watch) { poll(); return; }
    stream = new EventSource(page.watch);
    stream.onmessage = function (event) {
      heard = true;
      show("lost", false);
      try { update(JSON.parse(event.data)); } catch (e) { fallBack(); }
    };
    stream.addEventListener("gone", reload);
    stream.onerror = function () {
      if (stream.readyState === EventSource.CLOSED) { fallBack(); } else if (heard) { show("lost", true); }
    };
    // Some proxies hold streams back.
    setTimeout(function () { if (!heard) { fallBack(); } }, 10000);
  }
  function fallBack() {
    if (stream) { stream.close(); }
    stream = null;
    if (!polling) { poll(); }
  }

  each("time", function (element) {
    var time = new Date(element.getAttribute("datetime"));
    if (!isNaN(time)) { element.textContent = time.toLocaleString(words.lang, { dateStyle: "long", timeStyle: "short" }); }
  });
  if (page.status) {
    follow();
    document.addEventListener("visibilitychange", function () {
      if (!document.hidden && polling && !reloading) { poll(); }
    });
  }
  window.addEventListener("pageshow", function (event) { if (event.persisted) { reload(); } });
})();
</script>
{{end}}{{end}}
