// Elements from data. Text of a server always becomes a text node or an attribute that can't run, never markup.

/** Create an element: `h("p.note", {onclick: f}, "text", child)`. Properties may be left out, empty children are. */
export function h(tag, props, ...children) {
  const [type, ...classes] = tag.split(".");
  const element = document.createElement(type);
  if (classes.length) element.className = classes.join(" ");
  return props?.constructor === Object ? fill(element, props, ...children) : put(element, props, ...children);
}

export function fill(element, props, ...children) {
  for (const [name, value] of Object.entries(props)) {
    if (value == null) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (["value", "checked", "hidden", "controls"].includes(name)) element[name] = value;
    else element.setAttribute(name, value);
  }
  return put(element, ...children);
}

/** Append children; strings become text nodes. */
export function put(parent, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child != null && child !== false) parent.append(child);
  }
  return parent;
}

export function show(parent, ...children) {
  parent.textContent = "";
  return put(parent, ...children);
}

/** Show new children if `version` is another one than the last time. */
export function refresh(parent, version, make) {
  if (parent.version === version) return;
  parent.version = version;
  show(parent, make());
}

export const byId = (id) => document.getElementById(id);

export function svg(tag, props, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, ...children);
}

// The list of src/gemel/visible.py; a test compares the two.
const HIDDEN_RANGES = "0-8 b-1f 7f-9f ad 34f 600-605 61c 6dd 70f 890-891 8e2 115f-1160 17b4-17b5 180b-180f 200b 200e-200f 2028-202e 2060-206f 2800 3164 d800-f8ff fe00-fe0e feff ffa0 fff0-fffc fffe-ffff 110bd 110cd 13430-1343f 16fe4 1bca0-1bca3 1d159 1d173-1d17a e0000-10ffff";
const SET = HIDDEN_RANGES.replace(/[0-9a-f]+/g, "\\u{$&}").replaceAll(" ", "");
const JOINERS = "\\u200c\\u200d", EMOJI = "\\ufe0f";
const SHOWN = `[^\\0-\\x7f${SET}${JOINERS}${EMOJI}]`;
const HIDDEN = new RegExp(
  `[${SET}]|(?<!${SHOWN})(?<!${EMOJI})[${JOINERS}]|[${JOINERS}](?!${SHOWN})|(?<!${SHOWN})(?<![0-9#*])${EMOJI}`, "gu");

const escaped = (c) => {
  const code = c.codePointAt(0).toString(16);
  return c.length > 1 ? `\\u{${code}}` : `\\u${code.padStart(4, "0")}`;
};

/** Text with its lines, in which hidden characters are shown as escapes. */
export const revealed = (text) => plain(text).replace(/\r\n/g, "\n").replace(HIDDEN, escaped);

/** Any JSON value as text; an object may have a member `toString` that is no function. */
export function plain(value) {
  if (value == null) return "";
  return typeof value === "object" ? stringify(value, 0) : String(value);
}

/** A name as one line in which hidden characters are shown as escapes; long names are cut. */
export function visible(text, limit = 300) {
  const line = revealed(plain(text).slice(0, limit + 1)).replace(/[\t\n]/g, escaped);
  return line.length > limit ? `${line.slice(0, limit)}…` : line;
}

/** An element with one line of text; null if there is none. */
const textIn = (tag, text, limit, props = {}) => (plain(text) === "" ? null : h(tag, props, visible(text, limit)));

export const code = (text, limit) => textIn("code", text, limit);

/** Text of the server, isolated from the text around it. */
export const name = (text, limit) => textIn("bdi", text, limit);

export const prose = (text) => h("p.description", plain(text) && h("bdi", revealed(plain(text).slice(0, 20_000))));

export const lines = (text) => h("pre.text", { tabindex: "0" }, revealed(text));

/** A link if the address is http or https, else text. */
export function link(address, text = address, kind = "") {
  const url = URL.parse(plain(address));
  if (!/^https?:$/.test(url?.protocol)) return h("span", visible(text, 2000));
  return h("a", { class: kind, href: url.href, target: "_blank", rel: "noopener noreferrer" }, visible(text, 2000));
}

/** A button; instead of properties, its classes. */
export function button(text, onclick, props) {
  return h("button", { type: "button", onclick, ...(typeof props === "string" ? { class: props } : props) }, text);
}

export const linkButton = (text, href) => h("a.button", { href }, text);

/**
 * Buttons of [value, text] pairs, the first of which is pressed. If `onchange` returns false, all stays as it was.
 * With a `key` the choice survives a reload, and is made at once.
 */
export function segments(label, pairs, onchange, key) {
  const box = h("div.segments", { role: "group", "aria-label": label });
  const value = (key && memory.get(key)) ?? pairs[0][0];
  for (const [one, text] of pairs) {
    box.append(button(text, (event) => {
      if (onchange(one) === false) return;
      if (key) memory.set(key, one);
      for (const other of box.children) other.ariaPressed = other === event.target;
    }, { "aria-pressed": one === value }));
  }
  if (key) onchange(value);
  return box;
}

export const chip = (text, kind = "") => textIn("span", text, 80, { class: `chip ${kind}` });

export const eraChip = (era) => chip(era, `era-${era}`);

const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });

export const clock = (at) => (Number.isFinite(at) ? TIME.format(at) : "");

export function duration(ms) {
  if (!Number.isFinite(ms)) return "";
  if (ms < 999.5) return `${Number(ms.toPrecision(ms < 100 ? 2 : 3))} ms`;
  return `${(ms / 1000).toFixed(2)} s`;
}

export function bytes(count) {
  if (!Number.isFinite(count)) return "";
  if (count < 1024) return `${count} B`;
  return count < 1048576 ? `${(count / 1024).toFixed(1)} KiB` : `${(count / 1048576).toFixed(1)} MiB`;
}

export const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

export const number = (value) => (typeof value === "number" ? value.toLocaleString("en-US") : "");

/** JSON text, also of what JSON.stringify refuses. */
export function stringify(value, indent = 2) {
  try { return JSON.stringify(value, null, indent) ?? "undefined"; } catch (error) { return String(error); }
}

/** The value if it is an object that is no array, else an empty one. */
export const record = (value) => (value !== null && typeof value === "object" && !Array.isArray(value) ? value : {});

export const list = (value) => (Array.isArray(value) ? value : []);

export const has = Object.hasOwn;

export const own = (object, key) => (has(object, key) ? object[key] : undefined);

export function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

let ids = 0;
export const freshId = () => `id-${++ids}`;

export function announce(text) {
  byId("announcements").textContent = visible(text, 200);
}

export function toast(text, kind = "") {
  const region = byId("toasts");
  while (region.children.length > 3) region.firstChild.remove();
  const item = h("div", { class: `toast ${kind}` }, visible(text, 400));
  region.append(item);
  setTimeout(() => item.remove(), kind === "bad" ? 9000 : 3500);
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    toast("Copied");
  } catch {
    toast("The browser did not allow the copy.", "bad");
  }
}

export const labelled = (text, control) => h("label.labelled", h("span", text), control);

export const check = (text, box) => h("label.inline", box, " ", text);

/** Replace the options of a select by [value, text] pairs or texts; its value stays if it can. */
export function setOptions(element, choices, value = element.value) {
  const pairs = choices.map((one) => (Array.isArray(one) ? one : [one, one]));
  show(element, pairs.map(([key, text]) => h("option", { value: key }, visible(text, 100))));
  if (pairs.some(([key]) => key === value)) element.value = value;
}

/** A select of choices; its value survives a reload under `key`. */
export function select(label, pairs, onchange, key) {
  const element = h("select", { "aria-label": label, onchange() {
    if (key) memory.set(key, element.value);
    onchange?.(element.value);
  } });
  setOptions(element, pairs, key && memory.get(key));
  return element;
}

/** A field to filter by a text. `accepts(text)` says whether the text has what is typed. */
export function filterField(what, onchange) {
  const key = `filter:${what}`;
  const element = h("input.filter", {
    type: "search", placeholder: `Filter ${what}  (/)`, "aria-label": `Filter ${what}`, value: memory.get(key, ""),
    oninput() {
      memory.set(key, element.value);
      onchange();
    },
  });
  element.accepts = (text) => text.toLowerCase().includes(element.value.toLowerCase());
  return element;
}

/** A closed part of the page; its content is made when it is first opened. */
export function details(summary, content, kind = "") {
  const fill = (event) => { if (event.target.children.length === 1) put(event.target, content()); };
  return h("details", { class: kind, ontoggle: fill }, h("summary", summary));
}

/** A table that scrolls by keyboard as well; `heads` are texts or th. */
export function table(label, heads, rows) {
  const head = (one) => (typeof one === "string" ? h("th", { scope: "col" }, one) : one);
  return h("div.table-box", { tabindex: "0", role: "region", "aria-label": label },
    h("table", h("thead", h("tr", heads.map(head))), h("tbody", rows.map((cells) => h("tr", cells)))));
}

export const rowHead = (...content) => h("th", { scope: "row" }, content);

/** Pairs of a term and its text; those without a value are left out. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => plain(value) !== "");
  return h("dl.facts", known.map(([key, value]) => h("div", h("dt", key), h("dd", name(value)))));
}

/** Replace all children; the focus stays on the control with the same `data-key` or text, or goes to what is around. */
export function redraw(parent, ...children) {
  const keyOf = (element) => element.dataset.key ?? element.textContent;
  const before = document.activeElement;
  const isFocused = parent.contains(before);
  show(parent, ...children);
  if (!isFocused) return;
  const same = [...parent.querySelectorAll("button, a")].find((one) => keyOf(one) === keyOf(before));
  (same ?? parent.closest("[tabindex]"))?.focus({ preventScroll: true });
}

export const memory = {
  get(key, otherwise = null) {
    try { return JSON.parse(sessionStorage.getItem(`gemel:${key}`)) ?? otherwise; } catch { return otherwise; }
  },
  set(key, value) {
    try { sessionStorage.setItem(`gemel:${key}`, JSON.stringify(value)); } catch { /* full: what is there stays */ }
  },
};
