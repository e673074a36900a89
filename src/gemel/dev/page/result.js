// Values as trees, tables, texts, pictures, sound. Closed branches of trees cost nothing, large ones open in pieces.
import { getMessage } from "./inspector.js";
import { button, bytes, chip, code, copyText, details, facts, h, lines, list, name, number, own, plain, plural, put, record, revealed, segments, show, stringify, table, visible } from "./dom.js";

const PIECE = 100;
const LONG_STRING = 2000;

export function jsonView(value, label = "JSON", open = 2) {
  return h("div.json", { role: "group", "aria-label": label },
    button("Copy", () => copyText(stringify(value)), "small copy"),
    node(value, null, open));
}

function node(value, key, open) {
  if (value === null || typeof value !== "object") return h("div.leaf", keyOf(key), scalar(value));
  const isArray = Array.isArray(value);
  const keys = isArray ? value : Object.keys(value);
  const size = keys.length;
  const [first, last] = isArray ? "[]" : "{}";
  if (size === 0) return h("div.leaf", keyOf(key), h("span.t-mark", `${first} ${last}`));
  const inner = h("div.branch");
  let at = 0;
  const more = () => {
    const end = Math.min(size, at + PIECE);
    for (; at < end; at++) inner.append(isArray ? node(value[at], at, open - 1) : node(value[keys[at]], keys[at], open - 1));
    if (at === size) return;
    const next = button(`${Math.min(PIECE, size - at)} more of ${size - at}`, () => { next.remove(); more(); }, "small");
    inner.append(next);
  };
  const element = h("details", { ontoggle: () => { if (element.open && at === 0) more(); } },
    h("summary", keyOf(key), h("span.t-mark", `${first} ${plural(size, isArray ? "item" : "member")} ${last}`)), inner);
  if (open > 0 && size <= PIECE) {
    more();
    element.open = true;
  }
  return element;
}

const keyOf = (key) => (key === null ? null : [h(typeof key === "number" ? "bdi.t-mark" : "bdi.t-key", visible(key)), h("span.t-mark", ": ")]);

function scalar(value) {
  if (typeof value !== "string") return h(`span.t-${typeof value}`, String(value));
  const text = h("bdi.t-string", JSON.stringify(value.slice(0, LONG_STRING)));
  if (value.length <= LONG_STRING) return text;
  const rest = button(`all ${value.length} characters`, () => { text.textContent = JSON.stringify(value); rest.remove(); }, "small");
  return [text, " ", rest];
}

const PICTURES = /^image\/(png|jpeg|gif|webp|avif|bmp|svg\+xml)$/;
const SOUNDS = /^audio\/(x-wav|wave?|mpeg|mp3|mp4|ogg|flac|webm|aac)$/;
const LONG = 20_000;
const MOST_ROWS = 200;
const MOST_COLUMNS = 30;
const MOST_BLOCKS = 200;
const objectUrls = [];

/** An address for data of a checked type; the oldest of many are given up. */
function objectUrl(data, type) {
  const url = URL.createObjectURL(new Blob([data], { type }));
  objectUrls.push(url);
  if (objectUrls.length > 100) URL.revokeObjectURL(objectUrls.shift());
  return url;
}

/** A preview, with a button that shows the whole message in its place. */
export function loader(number, preview, text, view) {
  const box = h("div", preview, button(text, async () => {
    try { show(box, view(await getMessage(number))); } catch (error) { show(box, h("p.bad", error.message)); }
  }));
  return box;
}

export function resultView(method, result) {
  const { content, structuredContent, contents: read, messages, description, isError, resultType, ...others } = record(result);
  let shown = null;
  if (method === "tools/call" && (Array.isArray(content) || structuredContent !== undefined)) shown = toolResult(content, structuredContent);
  else if (method === "resources/read" && list(read).length) shown = several(read, contents);
  else if (method === "prompts/get" && list(messages).length) shown = [h("p.muted", name(description)), several(messages, promptMessage)];
  return h("div", shown ? [shown, otherMembers("Other members of the result", others)] : jsonView(result, "Result"));
}

function several(items, view) {
  const more = list(items).length - MOST_BLOCKS;
  return h("div.blocks", list(items).slice(0, MOST_BLOCKS).map((one) => view(record(one))),
    more > 0 && h("p.muted", `${more} more are in the message.`));
}

export const otherMembers = (title, others) => Object.keys(others).length > 0 && details(title, () => jsonView(others), "rest");

function toolResult(content, structured) {
  const blocks = several(content, block);
  if (content?.length === 0) put(blocks, h("p.muted", "No content."));
  if (structured === undefined) return blocks;
  return h("div.columns", h("section", h("h3.minor", "Structured content"), valueView(structured)), h("section", h("h3.minor", "Content"), blocks));
}

/** A value as a table if it is a list of objects, else as a tree. */
function valueView(value) {
  const { result, ...others } = record(value);
  const rows = Array.isArray(result) && Object.keys(others).length === 0 ? result : value;
  const shown = tableOf(list(rows));
  return shown ? h("div", shown, details("As JSON", () => jsonView(value))) : jsonView(value, "Value");
}

function tableOf(all) {
  const rows = all.slice(0, MOST_ROWS);
  const columns = [...new Set(rows.flatMap((row) => Object.keys(record(row))))].slice(0, MOST_COLUMNS);
  if (columns.length === 0 || all.some((row) => record(row) !== row)) return null;
  const kind = (row, key) => (typeof own(row, key) === "number" ? ".number" : "");
  const heads = columns.map((key) => h(`th${kind(rows[0], key)}`, { scope: "col" }, name(key)));
  const cell = (row, key) => (own(row, key) === undefined ? h("td.muted", "–") : h(`td${kind(row, key)}`, name(row[key] ?? "null")));
  return [table("Table", heads, rows.map((row) => columns.map((key) => cell(row, key)))),
    all.length > MOST_ROWS && h("p.muted", `${all.length - MOST_ROWS} more rows.`)];
}

function block(item) {
  const shown = {
    text: () => textView(plain(item.text)),
    image: () => mediaView(item.data, item.mimeType),
    audio: () => mediaView(item.data, item.mimeType),
    resource: () => contents(record(item.resource)),
    resource_link: () => [
      h("a", { href: `#/resources/${encodeURIComponent(plain(item.uri))}`, title: "Read this resource" },
        name(item.title ?? item.name ?? item.uri)), " ", place(item), h("p.muted", name(item.description)),
    ],
    tool_use: () => [h("p.muted", "calls ", name(item.name)), jsonView(item.input)],
  };
  return h("div.block", (own(shown, plain(item.type)) ?? (() => jsonView(item)))(), annotations(record(item.annotations)));
}

const annotations = ({ audience, priority, lastModified }) =>
  facts([["For", list(audience).map(plain).join(", ")], ["Priority", priority], ["Modified", lastModified]]);

export function textView(text) {
  const pre = lines(text.slice(0, LONG));
  const tools = h("div.actions", button("Copy", () => copyText(text), "small"));
  const box = h("div", tools, pre);
  if (text.length > LONG) {
    const more = button(`Show all ${number(text.length)} characters`, () => { pre.textContent = revealed(text); more.remove(); }, "small");
    tools.append(more);
  }
  const value = parsed(text);
  if (value !== undefined) {
    const tree = h("div");
    box.append(tree);
    tools.append(segments("Show as", [["text", "Text"], ["tree", "Tree"]], (kind) => {
      pre.hidden = kind === "tree";
      show(tree, pre.hidden && valueView(value));
    }));
  }
  return box;
}

function parsed(text) {
  try { return /^\s*[[{]/.test(text) && text.length < 2_000_000 ? JSON.parse(text) : undefined; } catch { /* not JSON */ }
}

function mediaView(base64, mimeType) {
  let data;
  try { data = Uint8Array.from(atob(plain(base64)), (c) => c.charCodeAt(0)); } catch { return h("p.bad", "The data is not base64."); }
  const type = plain(mimeType).toLowerCase().split(";")[0].trim();
  const about = `${visible(mimeType, 60)}, ${bytes(data.length)}`;
  const figure = (element) => h("figure", element, h("figcaption", about));
  if (PICTURES.test(type)) {
    const onerror = () => image.replaceWith(h("p.bad", "The browser can't show this picture."));
    const image = h("img", { src: objectUrl(data, type), alt: `Picture of the result (${about})`, onerror });
    return figure(image);
  }
  if (SOUNDS.test(type)) return figure(h("audio", { controls: true, src: objectUrl(data, type), "aria-label": "Sound of the result" }));
  const save = h("a", { href: objectUrl(data, "application/octet-stream"), download: "content.bin" }, "Save");
  return h("div", h("p.muted", about, " ", save), lines(visible(new TextDecoder("latin1").decode(data.subarray(0, 500)), 400)));
}

const place = (item) => [code(item.uri), " ", chip(item.mimeType)];

function contents(item) {
  const shown = typeof item.text === "string" ? textView(item.text) : item.blob !== undefined ? mediaView(item.blob, item.mimeType) : jsonView(item);
  return h("div", h("p", place(item)), shown);
}

export function promptMessage({ role, content }) {
  return h(role === "assistant" ? "div.said.assistant" : "div.said",
    h("p.minor", visible(role ?? "?", 40)), several(Array.isArray(content) ? content : [content], block));
}
