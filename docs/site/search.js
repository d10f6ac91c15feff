"use strict";
// Shows the pages that have, for each word that is typed, one that begins with it, and those of their headings that have any.
const form = document.getElementById("search");
const field = form.querySelector("input");
const pages = [...document.querySelectorAll("[data-words]")];
const wordsOf = (text) => text.toLowerCase().split(/[^\p{L}\p{N}]+/u).filter(Boolean);
const has = (words, typed) => words.includes(" " + typed);

function filter() {
  const typed = wordsOf(field.value);
  let found = 0;
  for (const page of pages) {
    page.hidden = !typed.every((word) => has(page.dataset.words, word));
    found += page.hidden ? 0 : 1;
    const headings = [...page.querySelectorAll("li")];
    const named = headings.filter((li) => typed.some((word) => has(" " + wordsOf(li.textContent).join(" "), word)));
    for (const li of headings) li.hidden = typed.length > 0 && !named.includes(li);
  }
  form.querySelector("output").value = typed.length > 0 ? `${found} of ${pages.length} pages` : "";
}

form.hidden = false;
field.addEventListener("input", filter);
field.value = new URLSearchParams(location.search).get("q") ?? field.value;
filter();
