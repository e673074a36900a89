// A tree of a JSON value: closed branches cost nothing, large ones open in pieces.
import { button, copyText, h, put, stringify, visible } from "./dom.js";

const PIECE = 100;
const LONG = 2000;

/** A tree with a button that copies the value. */
export function jsonView(value, { open = 2, label = "JSON" } = {}) {
  return h("div.json", { role: "group", "aria-label": label },
    button("Copy", () => copyText(stringify(value)), { class: "small copy", title: "Copy as JSON" }),
    h("div.tree", node(value, null, open)));
}

function node(value, key, open) {
  if (value === null || typeof value !== "object") return h("div.leaf", keyOf(key), scalar(value));
  const isArray = Array.isArray(value);
  const keys = isArray ? null : Object.keys(value);
  const size = isArray ? value.length : keys.length;
  if (size === 0) return h("div.leaf", keyOf(key), h("span.t-mark", isArray ? "[ ]" : "{ }"));
  const inner = h("div.branch");
  const unit = isArray ? "item" : "member";
  const details = h("details",
    h("summary", keyOf(key), h("span.t-mark", isArray ? "[" : "{"), h("span.t-count", ` ${size} ${unit}${size === 1 ? "" : "s"} `), h("span.t-mark", isArray ? "]" : "}")),
    inner);
  let at = 0;
  const more = () => {
    const end = Math.min(size, at + PIECE);
    for (; at < end; at++) put(inner, isArray ? node(value[at], at, open - 1) : node(value[keys[at]], keys[at], open - 1));
    if (at < size) {
      const next = button(`${Math.min(PIECE, size - at)} more of ${size - at}`, () => { next.remove(); more(); }, "small");
      inner.append(next);
    }
  };
  details.addEventListener("toggle", () => { if (details.open && at === 0) more(); });
  if (open > 0 && size <= PIECE) {
    more();
    details.open = true;
  }
  return details;
}

function keyOf(key) {
  if (key === null) return null;
  return [h("bdi", { class: typeof key === "number" ? "t-index" : "t-key" }, visible(key)), h("span.t-mark", ": ")];
}

function scalar(value) {
  if (typeof value !== "string") return h("span", { class: value === null ? "t-null" : `t-${typeof value}` }, String(value));
  if (value.length <= LONG) return h("bdi.t-string", JSON.stringify(value));
  const text = h("bdi.t-string", JSON.stringify(value.slice(0, LONG)));
  const rest = button(`all ${value.length} characters`, () => { text.textContent = JSON.stringify(value); rest.remove(); }, "small");
  return [text, " ", rest];
}

/** What differs between two JSON values: [path, left, right] triples, at most `limit`. */
export function differences(left, right, limit = 200) {
  const found = [];
  const walk = (a, b, path, depth) => {
    if (found.length >= limit || Object.is(a, b)) return;
    const objects = a !== null && b !== null && typeof a === "object" && typeof b === "object" && Array.isArray(a) === Array.isArray(b);
    if (!objects || depth > 60) {
      if (!objects || stringify(a) !== stringify(b)) found.push([path || "(all)", a, b]);
      return;
    }
    for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
      walk(own(a, key), own(b, key), path ? `${path}.${key}` : key, depth + 1);
    }
  };
  walk(left, right, "", 0);
  return found;
}

const own = (object, key) => (Object.prototype.hasOwnProperty.call(object, key) ? object[key] : undefined);
