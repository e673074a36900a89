// Elements from data. Text of a server always becomes a text node or an attribute that can't run, never markup.

/** Create an element: `h("p.note", {onclick: f}, "text", child)`. Properties may be left out, empty children are. */
export function h(tag, props, ...children) {
  const [type, ...classes] = tag.split(".");
  const element = document.createElement(type);
  if (classes.length) element.className = classes.join(" ");
  return props?.constructor === Object ? fill(element, props, children) : put(element, props, ...children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("aria-")) element.setAttribute(name, value);
    else if (value === false) continue;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, ...children);
  return element;
}

/** Append children; strings become text nodes. */
export function put(parent, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child !== undefined && child !== null && child !== false) parent.append(child);
  }
  return parent;
}

/** Replace all children. */
export function show(parent, ...children) {
  parent.textContent = "";
  return put(parent, ...children);
}

/** Create an SVG element. */
export function svg(tag, props, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

const ICONS = {
  tools: "M10.5 2.5a3.5 3.5 0 0 0-3.3 4.6L2.4 11.9l1.7 1.7 4.8-4.8a3.5 3.5 0 0 0 4.4-4.4l-2 2-1.7-1.7 2-2a3.5 3.5 0 0 0-1.1-.2z",
  resources: "M4 2.5h5l3 3v8H4zM9 2.5v3h3",
  prompts: "M2.5 3.5h11v7h-6l-3 3v-3h-2z",
  wire: "M2.5 5.5h10m-3-3 3 3-3 3M13.5 10.5h-10m3-3-3 3 3 3",
  compare: "M2.5 3.5h4.5v9h-4.5zM9 3.5h4.5v9h-4.5z",
  history: "M8 2.5a5.5 5.5 0 1 1-5.2 3.7M2.5 2.8v3.4h3.4M8 5v3.2l2.2 1.4",
  logs: "M3 4h10M3 8h10M3 12h6",
  measures: "M3 13V8m3.3 5V3m3.4 10V6m3.3 7v-3",
  contract: "M4 2.5h8v11H4zM6 6h4M6 8.5h4M6 11h2",
  findings: "M8 2.8 14 13H2zM8 6.5v3M8 11.2v.3",
  connection: "M6 2.5v3m4-3v3M4.5 5.5h7v2a3.5 3.5 0 0 1-7 0zM8 11v2.5",
  apps: "M2.5 3.5h11v9h-11zM2.5 6h11M4.5 4.8h.1",
  theme: "M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
};

/** A decorative icon by name. */
export function icon(name) {
  return svg("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, svg("path", { d: ICONS[name] ?? "" }));
}

// Controls, marks of direction and characters without width: what makes one name look like another.
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]/g;

/** Any JSON value as text; an object may have a member `toString` that is no function. */
export function plain(value) {
  if (typeof value === "string") return value;
  return value === undefined || value === null ? "" : typeof value === "object" ? stringify(value, 0) : String(value);
}

/** A name as one line in which invisible characters are shown as escapes; long names are cut. */
export function visible(text, limit = 300) {
  const line = plain(text).slice(0, limit + 1)
    .replace(INVISIBLE, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
  return line.length > limit ? line.slice(0, limit) + "…" : line;
}

/** A name of the server, isolated from the text around it. */
export function name(text, kind = "") {
  return h("bdi", { class: kind || null }, visible(text));
}

/** A link if the address is http or https, else text. */
export function link(address, text = address, props = {}) {
  let url = null;
  try { url = new URL(plain(address)); } catch { /* not an address */ }
  if (!url || !/^https?:$/.test(url.protocol)) return h("span", props, visible(text, 2000));
  return h("a", { ...props, href: url.href, target: "_blank", rel: "noopener noreferrer" }, visible(text, 2000));
}

/** A button; instead of properties, its classes. */
export function button(text, onclick, props = {}) {
  return h("button", { type: "button", onclick, ...(typeof props === "string" ? { class: props } : props) }, text);
}

/** A small label, such as a state. */
export function chip(text, kind = "", props = {}) {
  return h("span", { class: `chip ${kind}`, ...props }, visible(text, 80));
}

/** The name of an era as a chip of its colour. */
export function eraChip(era) {
  return h("span", { class: `chip era-${era === "2026" ? "2026" : "2025"}` }, visible(era, 8));
}

const pad = (number, digits = 2) => String(number).padStart(digits, "0");

/** The time of day of milliseconds since the epoch. */
export function clock(at) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return "";
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
}

export function duration(ms) {
  if (typeof ms !== "number" || !Number.isFinite(ms)) return "";
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 60000 ? `${(ms / 1000).toFixed(2)} s` : `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
}

export function bytes(count) {
  if (typeof count !== "number" || !Number.isFinite(count)) return "";
  if (count < 1024) return `${count} B`;
  return count < 1048576 ? `${(count / 1024).toFixed(1)} KiB` : `${(count / 1048576).toFixed(1)} MiB`;
}

export const number = (value) => (typeof value === "number" ? value.toLocaleString("en-US") : "");

/** JSON text, also of what JSON.stringify refuses. */
export function stringify(value, indent = 2) {
  try { return JSON.stringify(value, null, indent) ?? "undefined"; } catch (error) { return String(error); }
}

/** The value if it is an object that is no array, else an empty one. */
export function record(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
}

export const list = (value) => (Array.isArray(value) ? value : []);

/** Whether the object has the member itself, whatever its name is. */
export const has = (object, key) => Object.prototype.hasOwnProperty.call(object, key);

let ids = 0;
export const freshId = (prefix = "i") => `${prefix}-${++ids}`;

/** Say something to screen readers, politely. */
export function announce(text) {
  const region = document.getElementById("announcements");
  if (region) region.textContent = visible(text, 200);
}

/** Show a short message that disappears. */
export function toast(text, kind = "") {
  const region = document.getElementById("toasts");
  if (!region) return;
  while (region.children.length > 3) region.firstChild.remove();
  const item = h("div", { class: `toast ${kind}` }, visible(text, 400));
  region.append(item);
  setTimeout(() => item.remove(), kind === "bad" ? 9000 : 3500);
}

/** Copy text to the clipboard and say so. */
export async function copyText(text, what = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
    toast(what);
  } catch {
    toast("The browser did not allow the copy.", "bad");
  }
}

/** Tabs: `tabs("Result", [["form", "Form", element or () => element], …], first, onchange)`. */
export function tabs(label, entries, first, onchange) {
  const bar = h("div.tabs", { role: "tablist", "aria-label": label });
  const panel = h("div.tab-panel", { role: "tabpanel", id: freshId("panel"), tabindex: "-1" });
  const made = new Map();
  const box = h("div.tabbed", bar, panel);
  box.select = (key, focus = false) => {
    if (!entries.some(([one]) => one === key)) key = entries[0][0];
    box.selected = key;
    for (const tab of bar.children) {
      const on = tab.dataset.key === key;
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
      if (on) panel.setAttribute("aria-labelledby", tab.id);
      if (on && focus) tab.focus();
    }
    const content = entries.find(([one]) => one === key)[2];
    if (!made.has(key)) made.set(key, typeof content === "function" ? content() : content);
    show(panel, made.get(key));
    onchange?.(key);
  };
  for (const [key, text] of entries) {
    bar.append(h("button", {
      type: "button", role: "tab", id: freshId("tab"), "data-key": key, "aria-controls": panel.id,
      onclick: () => box.select(key),
    }, text));
  }
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = entries.findIndex(([key]) => key === box.selected);
    box.select(entries[(at + step + entries.length) % entries.length][0], true);
  });
  box.select(first ?? entries[0][0]);
  return box;
}

/** A labelled control in one line. */
export function labelled(text, control, props = {}) {
  return h("label.labelled", { ...props }, h("span", text), control);
}

/** A select of [value, text] pairs. */
export function select(pairs, value, onchange, props = {}) {
  const element = h("select", { ...props, onchange: () => onchange?.(element.value) });
  for (const [key, text] of pairs) element.append(h("option", { value: key }, visible(text, 80)));
  if (value !== undefined) element.value = value;
  return element;
}

/** The field that filters a list; its text survives a reload under `key`. */
export function filterField(what, oninput, key, value = memory.get(key, "")) {
  return h("input", { type: "search", class: "filter", placeholder: `Filter ${what}  (/)`, "aria-label": `Filter ${what}`, oninput, value });
}

/** A table that scrolls by keyboard as well; `rows` are made of th and td. */
export function table(label, heads, rows, kind = "") {
  return h("div.table-box", { tabindex: "0", role: "region", "aria-label": label }, h("table", { class: kind },
    h("thead", h("tr", heads.map((head) => (typeof head === "string" ? h("th", { scope: "col" }, head) : head)))), h("tbody", rows.map((cells) => h("tr", cells)))));
}

/** Pairs of a term and its text; those without a value are left out. */
export function facts(pairs) {
  return h("dl.facts", pairs.filter(([, value]) => value !== undefined && value !== null && value !== "").map(([key, value]) => h("div", h("dt", key), h("dd", name(value)))));
}

/** Values that survive a reload of the page. */
export const memory = {
  get(key, otherwise = null) {
    try { return JSON.parse(sessionStorage.getItem(`hinge:${key}`)) ?? otherwise; } catch { return otherwise; }
  },
  set(key, value) {
    try { sessionStorage.setItem(`hinge:${key}`, JSON.stringify(value)); } catch { /* full: what is there stays */ }
  },
};
