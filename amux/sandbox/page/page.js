// The one script of the sandbox page. The server renders everything; this opens the stream, puts each fragment in its
// place by id, sends forms without leaving the page, and follows the newest message unless somebody reads further up.
"use strict";
const $ = (id) => document.getElementById(id);
const BACKOFF_MS = [1000, 2000, 5000, 10000], SILENCE_MS = 7000, HIDDEN_MS = 60000, FATE_MS = 300, TOAST_MS = 5000;
let stream = null, position = "", failures = 0, silence = 0, retry = 0, asleep = 0, following = true, unsent = [];

// ---- the stream: attach from a position, again and again
function attach() {
  detach();
  const url = new URL($("main").dataset.stream, location);
  if (position) url.searchParams.set("from", position);
  stream = new EventSource(url);
  stream.addEventListener("patch", (e) => { alive(e); patch(JSON.parse(e.data)); });
  stream.addEventListener("beat", alive);
  stream.addEventListener("again", () => visit(location.href));
  stream.onerror = lost;
  silence = setTimeout(lost, SILENCE_MS);
}
function detach() {
  stream?.close();
  stream = null;
  clearTimeout(silence); clearTimeout(retry);
}
function alive(event) {
  position = event.lastEventId || position;
  failures = 0;
  $("conn").hidden = true;
  clearTimeout(silence);
  silence = setTimeout(lost, SILENCE_MS);
  unsent.splice(0).forEach(post);
}
function lost() {
  detach();
  $("conn").hidden = false;
  retry = setTimeout(attach, BACKOFF_MS[Math.min(failures++, BACKOFF_MS.length - 1)]);
}

// ---- fragments: replaced by id; a new message goes to its place in time
function patch({ id, html }) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  const fresh = holder.content.firstElementChild, old = $(id);
  if (!fresh) {
    old?.remove();
  } else if (old) {
    tell(fresh, old);
    keepState(old, fresh);
  } else if (id.startsWith("m-")) {
    $("hello")?.remove();
    const next = [...$("said").querySelectorAll(".m[data-n]")].find((m) => +m.dataset.n > +fresh.dataset.n);
    $("said").insertBefore(fresh, next ?? $("said").querySelector(".m:not([data-n])"));
    tell(fresh);
  }
  if (id === "bot" || id.startsWith("m-")) askFate();
  if (following) toEnd(); else if (!old && id.startsWith("m-")) $("pill").hidden = false;
}
function keepState(old, fresh) {
  const key = (node) => `[data-key="${node.dataset.key}"]`;
  const open = [...old.querySelectorAll("details[open]")].map(key), shut = [...old.querySelectorAll("details:not([open])")].map(key);
  const focus = old.contains(document.activeElement) && document.activeElement.dataset.key;
  old.replaceWith(fresh);
  open.forEach((k) => fresh.querySelector("details" + k)?.setAttribute("open", ""));
  shut.forEach((k) => fresh.querySelector("details" + k)?.removeAttribute("open"));
  if (focus) fresh.querySelector(`[data-key="${focus}"]`)?.focus();
}
function tell(fresh, old) { // whole messages and changes of state are announced, text that grows is not
  const state = fresh.dataset.state;
  if (state !== undefined && state !== old?.dataset.state) $("told").textContent = fresh.querySelector(".nm").firstChild.data + " " + state;
}
function nearEnd() { const m = $("msgs"); return m.scrollHeight - m.scrollTop - m.clientHeight < 80; }
function toEnd() { $("msgs").scrollTop = $("msgs").scrollHeight; $("pill").hidden = following = true; }
const resized = new ResizeObserver(() => { if (following) toEnd(); }); // the composer grows, a fold opens, fonts arrive

// ---- another person, chat or language: the same page from the server, without losing the draft
async function visit(url, { back = false } = {}) {
  const followed = following, top = $("msgs").scrollTop, place = $("main").dataset.place, held = document.activeElement;
  const inside = held?.closest("#left, #top") && held.getAttribute("href") && held;
  const twin = inside && `#${inside.closest("#left, #top").id} a[data-visit]`, nth = twin && [...document.querySelectorAll(twin)].indexOf(inside);
  keepDraft();
  let text;
  try { text = await (await fetch(url, { headers: { Accept: "text/html" } })).text(); } catch { return lost(); }
  detach();
  const page = new DOMParser().parseFromString(text, "text/html");
  document.title = page.title;
  document.documentElement.lang = page.documentElement.lang;
  if ($("left").matches(":popover-open")) $("left").hidePopover();
  for (const id of ["top", "left", "main"]) $(id).replaceWith(page.getElementById(id));
  if (!back && new URL(url, location).href !== location.href) history.pushState(null, "", url);
  start();
  if ($("main").dataset.place === place && !followed) $("msgs").scrollTop = top;
  if (twin) document.querySelectorAll(twin)[nth]?.focus(); else if (matchMedia("(min-width: 761px)").matches) $("text").focus();
}
const draftKey = () => "draft " + $("main").dataset.place;
function keepDraft() { sessionStorage.setItem(draftKey(), $("text").value); }

// ---- sending: shown at once as sending, named by the browser, so that a retry is the same message
function say(form, text, fields) {
  fields.set("key", crypto.randomUUID?.() ?? String(Math.random()));
  const shown = $("sending").content.firstElementChild.cloneNode(true), bubble = shown.querySelector(".bub");
  bubble.lastChild.textContent = text;
  if (fields.has("mention")) bubble.insertBefore(new Text(" "), bubble.lastChild); else bubble.firstChild.remove();
  $("hello")?.remove();
  $("said").append(shown);
  toEnd();
  post({ shown, action: form.action, fields });
}
async function post(letter) {
  const word = letter.shown.querySelector("[data-sending]"), withdraw = letter.shown.querySelector("button");
  const mark = (late) => {
    word.textContent = late ? word.dataset.unsent : word.dataset.sending;
    letter.shown.querySelector(".st").classList.toggle("wait", late);
    withdraw.hidden = !late;
  };
  mark(false);
  let answer;
  try {
    answer = await fetch(letter.action, { method: "POST", body: letter.fields, headers: { Accept: "application/json" } });
  } catch {
    unsent.push(letter);
    mark(true);
    withdraw.onclick = (e) => { e.preventDefault(); unsent = unsent.filter((l) => l !== letter); letter.shown.remove(); };
    return lost();
  }
  const said = await answer.json();
  if (!answer.ok) { letter.shown.remove(); return toast(said.error); }
  if (said.place !== $("main").dataset.place) return visit(said.url);
  if ($("m-" + said.message)) letter.shown.remove(); else letter.shown.id = "m-" + said.message;
}
async function press(form, button) {
  const fields = new URLSearchParams(new FormData(form));
  fields.set("button", button.value);
  button.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(form.action, { method: "POST", body: fields, headers: { Accept: "application/json" } });
    const said = await answer.json();
    toast(said.error ?? said.toast);
  } catch { lost(); }
  button.removeAttribute("aria-busy");
}
function toast(text) {
  if (!text) return;
  const shown = Object.assign(document.createElement("div"), { className: "toast", textContent: text });
  $("toasts").append(shown);
  setTimeout(() => shown.remove(), TOAST_MS);
}

// ---- the fate line: asked of amux when something changed, drawn only by its newest answer
let fateTimer = 0, fateAsked = 0;
function askFate() {
  clearTimeout(fateTimer);
  fateTimer = setTimeout(async () => {
    const asked = ++fateAsked, url = new URL($("main").dataset.fate, location), at = document.querySelector("#comp [name=mention]");
    url.searchParams.set("text", $("text").value);
    if (at?.checked) url.searchParams.set("mention", "1");
    try {
      const answer = await fetch(url);
      if (answer.ok && asked === fateAsked) patch({ id: "fate", html: await answer.text() });
    } catch { /* the stream tells that the connection is lost */ }
  }, FATE_MS);
}

function grow() { const t = $("text"); t.style.height = "auto"; t.style.height = Math.min(t.scrollHeight, 168) + "px"; }
function start() {
  position = "";
  $("theme").hidden = false;
  $("text").value = sessionStorage.getItem(draftKey()) ?? "";
  grow();
  toEnd();
  resized.disconnect();
  resized.observe($("msgs"));
  attach();
  askFate();
}

document.addEventListener("submit", (e) => {
  const form = e.target;
  if ("say" in form.dataset) {
    e.preventDefault();
    const fields = new URLSearchParams(new FormData(form)), written = form.id === "comp", text = (written ? $("text").value : e.submitter.value).trim();
    if (!text) return;
    fields.set("text", text);
    say(form, text, fields);
    if (written) { form.reset(); $("text").value = ""; keepDraft(); grow(); $("text").focus(); }
  } else if ("click" in form.dataset) {
    e.preventDefault();
    press(form, e.submitter);
  }
});
document.addEventListener("click", (e) => {
  const link = e.target.closest("a[data-visit]");
  if (link && !e.metaKey && !e.ctrlKey && !e.shiftKey) { e.preventDefault(); visit(link.href); }
  if (e.target.closest("#pill")) toEnd();
  if (e.target.closest("#again")) { failures = 0; attach(); }
  if (e.target.closest("#theme")) {
    const root = document.documentElement, dark = getComputedStyle(root).colorScheme === "dark" || (root.dataset.theme === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
    root.dataset.theme = dark ? "light" : "dark";
    document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
  }
});
document.addEventListener("input", (e) => {
  if (e.target.id === "text") { grow(); keepDraft(); }
  if (e.target.closest("#comp")) askFate();
});
document.addEventListener("keydown", (e) => {
  const typing = e.target.closest("input:not([type=checkbox]), textarea");
  if (e.target.id === "text" && e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); $("comp").requestSubmit(); }
  else if (e.key === "Escape" && typing) e.target.blur();
  else if (/^Digit[1-9]$/.test(e.code) && !e.metaKey && !e.ctrlKey && (e.altKey || !typing)) {
    const person = document.querySelector(`[data-digit="${e.code.slice(-1)}"]`);
    if (person) { e.preventDefault(); visit(person.href); }
  }
});
document.addEventListener("scroll", (e) => {
  if (e.target.id !== "msgs") return;
  following = nearEnd();
  if (following) $("pill").hidden = true;
}, true);
document.addEventListener("visibilitychange", () => {
  clearTimeout(asleep);
  if (document.hidden) asleep = setTimeout(detach, HIDDEN_MS); else if (!stream) attach();
});
addEventListener("popstate", () => visit(location.href, { back: true }));
start();
