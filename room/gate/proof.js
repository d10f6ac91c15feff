// Solves the puzzle of the page and sends its form. See room/puzzle.go for what a solution is. It has
// a SHA-256 of its own: browsers have one only where the page came over TLS.
(function () {
  "use strict";
  var puzzle = document.querySelector('input[name="sluice-puzzle"]');
  if (!puzzle || !puzzle.form) { return; }
  var form = puzzle.form, progress = form.querySelector("progress"), button = form.querySelector("button");
  var zeros = Number(puzzle.getAttribute("data-bits")) - 4, parts = 16;

  var K = new Int32Array([
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2]);
  var start = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
  var w = new Int32Array(64), hash = new Int32Array(8);

  // digest writes the hash of the one block in the first 16 words of w.
  function digest() {
    var i, x, y, s, t;
    for (i = 16; i < 64; i++) {
      x = w[i - 15]; y = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] +
        ((x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3) + ((y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10);
    }
    var a = start[0], b = start[1], c = start[2], d = start[3], e = start[4], f = start[5], g = start[6], h = start[7];
    for (i = 0; i < 64; i++) {
      s = h + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + (e & f ^ ~e & g) + K[i] + w[i] | 0;
      t = ((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + (a & b ^ a & c ^ b & c) | 0;
      h = g; g = f; f = e; e = d + s | 0; d = c; c = b; b = a; a = s + t | 0;
    }
    hash[0] = start[0] + a; hash[1] = start[1] + b; hash[2] = start[2] + c; hash[3] = start[3] + d;
    hash[4] = start[4] + e; hash[5] = start[5] + f; hash[6] = start[6] + g; hash[7] = start[7] + h;
  }

  // The text fits one block, and so do its hash and two numbers.
  var text = puzzle.value, i;
  for (i = 0; i < text.length; i++) { w[i >> 2] |= text.charCodeAt(i) << 24 - 8 * (i & 3); }
  w[i >> 2] |= 0x80 << 24 - 8 * (i & 3);
  w[15] = 8 * text.length;
  digest();
  w.fill(0);
  w.set(hash);
  w[10] = 0x80 << 24;
  w[15] = 320;

  var part = 0, number = 0, found = [];
  function search() {
    // A page in the background has no clicks to answer, and few turns.
    var until = Date.now() + (document.hidden ? 500 : 40);
    do {
      for (var tries = 0; tries < 500 && part < parts; tries++, number++) {
        w[8] = part;
        w[9] = number;
        digest();
        if (hash[0] >>> 32 - zeros === 0) {
          found.push(number);
          part++;
          number = -1; // counted up to 0
        }
      }
    } while (part < parts && Date.now() < until);
    if (progress) { progress.value = part; }
    if (part < parts) { setTimeout(search, 0); return; }
    form.querySelector('input[name="sluice-proof"]').value = found.join(".");
    form.submit();
  }
  if (button) { button.disabled = true; }
  search();
})();
