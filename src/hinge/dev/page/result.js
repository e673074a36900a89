// Results as a person wants to see them: text, tables, pictures, sound, trees.
import { button, bytes, chip, copyText, h, has, list, name, plain, put, record, stringify, table, visible } from "./dom.js";
import { jsonView } from "./json.js";

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp", "image/svg+xml"]);
const SOUNDS = new Set(["audio/wav", "audio/x-wav", "audio/wave", "audio/mpeg", "audio/mp3", "audio/ogg", "audio/flac", "audio/webm", "audio/aac", "audio/mp4"]);
const LONG = 20_000;
const MOST_ROWS = 200;
const MOST_COLUMNS = 30;
const MOST_BLOCKS = 200;
const objectUrls = [];

/** The bytes of base64 text, or null. */
function decode(base64) {
  try { return Uint8Array.from(atob(plain(base64)), (c) => c.charCodeAt(0)); } catch { return null; }
}

/** An address for data of a checked type; the oldest of many are given up. */
function objectUrl(data, type) {
  const url = URL.createObjectURL(new Blob([data], { type }));
  objectUrls.push(url);
  if (objectUrls.length > 100) URL.revokeObjectURL(objectUrls.shift());
  return url;
}

/** The result of a call, by its method. */
export function resultView(method, result) {
  const value = record(result);
  if (method === "tools/call") return toolResult(value, result);
  if (method === "resources/read" && list(value.contents).length) return h("div.result", list(value.contents).slice(0, MOST_BLOCKS).map((one) => contents(record(one))), rest(value, ["contents"]));
  if (method === "prompts/get" && list(value.messages).length) {
    return h("div.result",
      value.description ? h("p.about", name(value.description)) : null,
      list(value.messages).slice(0, MOST_BLOCKS).map((one) => promptMessage(record(one))), rest(value, ["messages", "description"]));
  }
  return h("div.result", jsonView(result, { label: "Result" }));
}

function toolResult(value, result) {
  const blocks = Array.isArray(value.content) ? value.content : null;
  if (!blocks && value.structuredContent === undefined) return h("div.result", jsonView(result, { label: "Result" }));
  const structured = value.structuredContent;
  const left = h("div.blocks", list(blocks).slice(0, MOST_BLOCKS).map((one) => block(record(one))));
  if (blocks?.length === 0) put(left, h("p.note", "No content."));
  if (blocks?.length > MOST_BLOCKS) put(left, h("p.note", `${blocks.length - MOST_BLOCKS} more blocks are in the message.`));
  const right = structured === undefined ? null : h("section.structured", h("h3.minor", "Structured content"), valueView(structured));
  return h("div.result",
    h("div", { class: right ? "columns" : "" }, right, right ? h("section", h("h3.minor", "Content"), left) : left),
    rest(value, ["content", "structuredContent", "isError", "resultType"]));
}

/** Members that have no view of their own. */
function rest(value, known) {
  const others = Object.fromEntries(Object.entries(value).filter(([key]) => !known.includes(key)));
  if (Object.keys(others).length === 0) return null;
  return h("details.rest", h("summary", "Other members of the result"), jsonView(others, { label: "Other members" }));
}

/** A value as a table if it is a list of objects, else as a tree. */
export function valueView(value) {
  const inner = Array.isArray(value) ? value : Array.isArray(record(value).result) && Object.keys(value).length === 1 ? value.result : null;
  const shown = tableOf(inner);
  if (!shown) return jsonView(value, { label: "Value" });
  return h("div", shown, h("details", h("summary", "As JSON"), jsonView(value, { label: "Value" })));
}

function tableOf(rows) {
  if (!Array.isArray(rows) || rows.length === 0) return null;
  if (!rows.every((row) => row !== null && typeof row === "object" && !Array.isArray(row))) return null;
  const columns = new Set();
  for (const row of rows.slice(0, MOST_ROWS)) for (const key of Object.keys(row)) if (columns.size < MOST_COLUMNS) columns.add(key);
  if (columns.size === 0) return null;
  const heads = [...columns].map((key) => h("th", { scope: "col", class: typeof cellOf(rows[0], key) === "number" ? "number" : null }, name(key)));
  return [table("Table", heads, rows.slice(0, MOST_ROWS).map((row) => [...columns].map((key) => cell(row, key)))),
    rows.length > MOST_ROWS ? h("p.note", `${rows.length - MOST_ROWS} more rows.`) : null];
}

const cellOf = (row, key) => (has(row, key) ? row[key] : undefined);

function cell(row, key) {
  const value = cellOf(row, key);
  if (value === undefined) return h("td.none", "–");
  const text = typeof value === "string" ? value : stringify(value, 0);
  return h("td", { class: typeof value === "number" ? "number" : "" }, name(text));
}

function annotations(item) {
  const notes = record(item.annotations);
  const parts = [];
  if (Array.isArray(notes.audience)) parts.push(`for ${notes.audience.map((one) => visible(one, 20)).join(", ")}`);
  if (typeof notes.priority === "number") parts.push(`priority ${notes.priority}`);
  if (notes.lastModified) parts.push(`modified ${visible(notes.lastModified, 40)}`);
  return parts.length ? h("p.note", parts.join(" · ")) : null;
}

/** One content block. */
export function block(item) {
  const notes = annotations(item);
  switch (item.type) {
    case "text": return h("div.block", textView(plain(item.text ?? "")), notes);
    case "image": case "audio": return h("div.block", mediaView(item.data, item.mimeType), notes);
    case "resource": return h("div.block", contents(record(item.resource)), notes);
    case "resource_link": return h("div.block.link-block",
      h("a", { href: resourceHash(item.uri), title: "Read this resource" }, name(item.title ?? item.name ?? item.uri)), " ",
      h("code", visible(item.uri)), item.mimeType ? chip(item.mimeType) : null,
      item.description ? h("p.about", name(item.description)) : null, notes);
    case "tool_use": return h("div.block", h("p.note", "calls ", name(item.name)), jsonView(item.input));
    default: return h("div.block", jsonView(item));
  }
}

export const resourceHash = (uri) => `#/resources/${encodeURIComponent(plain(uri ?? ""))}`;

/** Text; what is JSON can be looked at as a tree or a table. */
export function textView(text) {
  const pre = h("pre.text", { tabindex: "0" });
  const short = text.length > LONG ? text.slice(0, LONG) : text;
  pre.textContent = short;
  const box = h("div.text-box", pre);
  const tools = h("div.text-tools", button("Copy", () => copyText(text), "small copy"));
  if (text.length > LONG) {
    const more = button(`Show all ${text.length.toLocaleString("en-US")} characters`, () => { pre.textContent = text; more.remove(); }, "small");
    tools.append(more);
  }
  const value = parsed(text);
  if (value !== undefined) {
    let tree = null;
    const toggle = button("As a tree", () => {
      tree ??= valueView(value);
      const on = toggle.getAttribute("aria-pressed") !== "true";
      toggle.setAttribute("aria-pressed", on);
      pre.hidden = on;
      if (on) box.append(tree); else tree.remove();
    }, { class: "small", "aria-pressed": "false" });
    tools.append(toggle);
  }
  box.prepend(tools);
  return box;
}

function parsed(text) {
  if (!/^\s*[[{]/.test(text) || text.length > 2_000_000) return undefined;
  try { return JSON.parse(text); } catch { return undefined; }
}

function mediaView(base64, mimeType) {
  const type = plain(mimeType ?? "").toLowerCase().split(";")[0].trim();
  const data = decode(base64);
  if (!data) return h("p.note.bad-text", "The data is not base64.");
  const about = `${visible(mimeType, 60)}, ${bytes(data.length)}`;
  if (PICTURES.has(type)) {
    const image = h("img", { src: objectUrl(data, type), alt: `Picture of the result (${about})` });
    image.addEventListener("error", () => image.replaceWith(h("p.note.bad-text", "The browser can't show this picture.")));
    return h("figure", image, h("figcaption", about));
  }
  if (SOUNDS.has(type)) return h("figure", h("audio", { controls: true, src: objectUrl(data, type), "aria-label": "Sound of the result" }), h("figcaption", about));
  return binary(data, about);
}

function binary(data, about) {
  const rows = [];
  for (let at = 0; at < Math.min(data.length, 256); at += 16) {
    const part = [...data.subarray(at, at + 16)];
    rows.push(`${at.toString(16).padStart(8, "0")}  ${part.map((b) => b.toString(16).padStart(2, "0")).join(" ").padEnd(47)}  ${part.map((b) => (b > 31 && b < 127 ? String.fromCharCode(b) : ".")).join("")}`);
  }
  return h("div", h("p.note", about, " ", h("a", { href: objectUrl(data, "application/octet-stream"), download: "content.bin" }, "Save")),
    h("pre.text.hex", { tabindex: "0" }, rows.join("\n") + (data.length > 256 ? "\n…" : "")));
}

/** The contents of a resource. */
function contents(item) {
  const head = h("p.contents-head", h("code", visible(item.uri)), item.mimeType ? chip(item.mimeType) : null);
  return h("div.contents", head, typeof item.text === "string" ? textView(item.text) : item.blob !== undefined ? mediaView(item.blob, item.mimeType) : jsonView(item));
}

export function promptMessage(message) {
  const content = Array.isArray(message.content) ? message.content : [message.content];
  return h("div", { class: `said ${message.role === "assistant" ? "assistant" : "user"}` },
    h("p.who", visible(message.role ?? "?", 40)), content.slice(0, MOST_BLOCKS).map((one) => block(record(one))));
}
