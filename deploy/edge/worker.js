// A worker at a CDN that sends visitors inside straight to the site, and everybody else to the gate.
// Its settings are variables of the worker:
//
//   SITE    where the site is, such as https://origin.example.com
//   GATE    where the gate is, such as https://gate.example.com: one of the hosts of its site, and
//           the CDN among its trusted proxies
//   KEYS    the URL of the keys, such as https://rooms.example.com/.well-known/jwks.json
//   ROOM    the name of the room
//   PROVEN  "true" if the gate has a challenge
//   CLIENT  the header with the visitor's address that the CDN sets; CF-Connecting-IP by default
import { verifier } from "./verify.js";

let believed; // one for all requests of this instance

export default {
  async fetch(request, env) {
    believed ||= verifier({ keys: env.KEYS, room: env.ROOM, proven: env.PROVEN === "true", keysFor: Number(env.KEYS_FOR) || undefined });
    const url = new URL(request.url);
    const claims = url.pathname.startsWith("/.sluice/") ? null : await believed(request.headers.get("Cookie"));
    const headers = new Headers(request.headers);
    for (const name of [...headers.keys()]) {
      if (/^sluice[-_](pass|visitor|room)$/i.test(name)) { headers.delete(name); } // the visitor's own
    }
    headers.set("X-Forwarded-For", request.headers.get(env.CLIENT || "CF-Connecting-IP") || "");
    headers.set("X-Forwarded-Proto", url.protocol.slice(0, -1));
    headers.set("X-Forwarded-Host", url.host);
    if (claims) {
      headers.set("Sluice-Visitor", claims.sub);
      headers.set("Sluice-Room", claims.room);
    }
    const target = (claims ? env.SITE : env.GATE) + url.pathname + url.search;
    return fetch(target, { method: request.method, headers, body: request.body, redirect: "manual", duplex: "half" });
  },
};
