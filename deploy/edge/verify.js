// Verifies passes of a room where the request is, with WebCrypto, without asking anybody: a pass is
// a JWT that is signed with Ed25519 (docs/room/gate.md). A pass that is not believed is for the
// gate to judge, so a verifier refuses nobody.

const believedFor = 30; // seconds: a pass with less left goes to the gate, which renews it
const keysEvery = 10; // seconds between two requests for keys
const maxPass = 2048; // bytes

// verifier returns a function from a request's Cookie header to the claims of a pass that is
// believed, or null. Options:
//
//   keys     the URL of the keys, such as https://rooms.example.com/.well-known/jwks.json
//   room     the name of the room
//   proven   true if the gate has a challenge: only passes of visitors who have passed it count
//   keysFor  seconds for which keys are believed, 60 by default: a revoked key ends by then
export function verifier({ keys: url, room, proven = false, keysFor = 60 }) {
  let keys = new Map(), read = -Infinity, tried = -Infinity;

  async function readKeys(now) {
    tried = now;
    try {
      const response = await fetch(url, { signal: AbortSignal.timeout(5000) });
      if (!response.ok) { return; }
      const found = new Map();
      for (const { kty, crv, kid, x } of (await response.json()).keys) {
        if (kty === "OKP" && crv === "Ed25519") {
          found.set(kid, await crypto.subtle.importKey("jwk", { kty, crv, x }, { name: "Ed25519" }, false, ["verify"]));
        }
      }
      keys = found;
      read = now;
    } catch { /* the keys that are there last for keysFor, and then the gate decides */ }
  }

  // keyOf returns a key. Anybody can make up a kid, so an unknown one is looked for rarely.
  async function keyOf(kid, now) {
    if ((now - read >= keysFor || !keys.has(kid)) && now - tried >= Math.min(keysEvery, keysFor)) { await readKeys(now); }
    return now - read < keysFor ? keys.get(kid) : undefined;
  }

  return async function believed(cookieHeader) {
    const pass = passOf(cookieHeader || "", room);
    if (!pass || pass.length > maxPass) { return null; }
    try {
      const [header, payload, signature, more] = pass.split(".");
      const { alg, kid } = decodeJSON(header), now = Date.now() / 1000;
      const key = alg === "EdDSA" && more === undefined && await keyOf(kid, now);
      if (!key || !await crypto.subtle.verify("Ed25519", key, decode(signature), new TextEncoder().encode(header + "." + payload))) { return null; }
      const claims = decodeJSON(payload);
      const good = claims.iss === "sluice" && claims.room === room && claims.exp - now > believedFor &&
        !claims.client && (claims.proven || !proven); // only the gate can compare the client
      return good ? claims : null;
    } catch {
      return null; // it is no pass
    }
  };
}

// passOf returns the pass of a Cookie header, if there is one and its slot is taken: a visitor who
// has come in just now has the cookie of the line too, and has to show up at the gate.
export function passOf(cookieHeader, room) {
  const values = {};
  for (const part of cookieHeader.split(";")) {
    const at = part.indexOf("="), name = part.slice(0, at).trim();
    (values[name] ||= []).push(part.slice(at + 1).trim());
  }
  const of = (name) => values["__Host-" + name] || values[name] || [];
  const passes = of("sluice_pass_" + room);
  return passes.length === 1 && of("sluice_line_" + room).length === 0 ? passes[0] : null;
}

function decode(text) {
  return Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
}

function decodeJSON(text) { return JSON.parse(new TextDecoder().decode(decode(text))); }
