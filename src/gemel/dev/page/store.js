// What the page knows, made from events alone. Everything is bounded: the oldest is dropped first.
import { list, memory, plain, record, stringify, visible } from "./dom.js";

const MOST = { messages: 100_000, characters: 64 * 1024 * 1024, calls: 5_000, logs: 20_000, spans: 5_000, measures: 600, others: 200 };
const FINAL = ["done", "failed", "cancelled"];
const SECTIONS = ["tools", "resources", "templates", "prompts"];
export const ERAS = ["2026", "2025"];

const emptyEra = () => ({ connection: { state: "off" }, offers: {}, coming: {}, errors: {}, listening: {}, login: [] });

class Store {
  target = "";
  apps = null;
  eras = { 2025: emptyEra(), 2026: emptyEra() };
  messages = [];
  dropped = 0; // messages that were here
  lost = 0; // events that never came
  calls = new Map();
  questions = new Map();
  logs = [];
  spans = [];
  measures = { tools: {}, samples: [] };
  contracts = [];
  findings = [];
  restarts = [];
  pairs = memory.get("pairs", []);
  online = "online";
  #characters = 0;
  #watchers = new Set();
  #dirty = new Set();

  /** Call `update(topics)` at most once per frame after one of these topics changed. Returns a function that ends it. */
  watch(topics, update) {
    const watcher = { topics, update };
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  ended(id) {
    return new Promise((resolve) => {
      const stop = this.watch(["calls"], () => {
        if (!isFinal(this.calls.get(id))) return;
        stop();
        resolve(this.calls.get(id));
      });
      this.changed("calls"); // it may have ended before
    });
  }

  changed(topic) {
    if (this.#dirty.size === 0) {
      if (document.hidden) setTimeout(() => this.#tell(), 200);
      else requestAnimationFrame(() => this.#tell());
    }
    this.#dirty.add(topic);
  }

  #tell() {
    const dirty = this.#dirty;
    this.#dirty = new Set();
    for (const { topics, update } of this.#watchers) {
      if (!topics.some((topic) => dirty.has(topic))) continue;
      try { update(dirty); } catch (error) { console.error(error); }
    }
  }

  set(topic, value) {
    this[topic] = value;
    this.changed(topic);
  }

  /** The last lines that the server wrote in a time: often the reason of what happened. */
  written(era, from, to = Infinity) {
    const lines = this.logs.filter((one) => one.era === era && one.at >= from && one.at <= to).slice(-30);
    return lines.map(({ source, text }) => (source === "stderr" ? text : `${source}: ${text}`)).join("\n");
  }

  offers(era, section) {
    return this.eras[era].offers[section] ?? [];
  }

  callsThat(test) {
    return [...this.calls.values()].filter(test);
  }

  messagesOf(call) {
    return this.messages.filter((one) => one.call === call);
  }

  rememberPair(calls) {
    this.pairs = [calls, ...this.pairs].slice(0, 50);
    memory.set("pairs", this.pairs);
    this.changed("calls");
  }

  clearMessages() {
    this.#dropMessages(this.messages.length);
    this.changed("messages");
  }

  /** Take in one event; `raw` is its JSON text. */
  apply(event, raw) {
    this[`_${event.kind}`]?.(event, this.eras[event.era], raw);
  }

  #append(topic, item, items = this[topic]) {
    const most = MOST[topic] ?? MOST.others;
    items.push(item);
    if (items.length > most) items.splice(0, Math.ceil(most / 40));
    this.changed(topic);
  }

  #merge(topic, key, event) {
    const items = this[topic];
    const { at = event.at, version = 0, ...before } = items.get(key) ?? {};
    items.set(key, { ...before, ...event, at, version: version + 1 });
    if (items.size > MOST.calls) items.delete(items.keys().next().value);
    this.changed(topic);
  }

  _connection(event, era) {
    era.connection = event;
    if (event.state === "connecting") era.since = event.at;
    era.wasReady ||= event.state === "ready";
    this.changed("connection");
  }

  _listening(event, era) {
    era.listening = event;
    this.changed("connection");
  }

  _login(event, era) {
    this.#append("connection", event, era.login);
  }

  _offers({ section, items, part = 0, parts = 1, error = null }, { offers, coming, errors }) {
    if (!SECTIONS.includes(section)) return;
    if (part === 0) coming[section] = [];
    coming[section]?.push(...list(items).map(record));
    if (part < parts - 1) return;
    offers[section] = coming[section] ?? [];
    errors[section] = error;
    this.changed("offers");
  }

  _message(event, era, raw) {
    const data = record(event.data);
    const { data: _, headers, decoded, preview, ...message } = event;
    Object.assign(message, {
      raw, method: event.method ?? event.answers, summary: visible(summaryOf(event, data), 160),
      wrong: event.kind === "bytes" || "error" in data || record(data.result).isError === true,
    });
    this.messages.push(message);
    this.#characters += raw.length;
    if (this.messages.length > MOST.messages + 1000 || this.#characters > MOST.characters) this.#dropMessages(1000);
    this.changed("messages");
  }

  _bytes(event, era, raw) {
    this._message(event, era, raw);
    if (event.sender === "server") this.#log(event, "not JSON", plain(event.preview));
  }

  #dropMessages(count) {
    const gone = this.messages.splice(0, count);
    this.dropped += gone.length;
    for (const { raw } of gone) this.#characters -= raw.length;
  }

  _call(event) {
    this.#merge("calls", event.call, event);
  }

  _question(event) {
    this.#merge("questions", event.question, event);
  }

  #log(event, source, text) {
    const { n, at, era, level = "", logger } = event;
    this.#append("logs", { n, at, era, source, level: plain(level), logger, text });
  }

  _stderr(event) {
    for (const line of plain(event.text).replace(/\n$/, "").split("\n")) this.#log(event, "stderr", line);
  }

  _log(event) {
    this.#log(event, "log", plain(event.data));
  }

  _change(event) {
    this.#log(event, "change", `changed: ${visible(event.what, 40)} ${visible(event.uri)}`);
  }

  _restarted(event) {
    this.#append("restarts", event);
  }

  _contract(event) {
    this.#append("contracts", event);
  }

  _findings(event) {
    this.set("findings", list(event.items).map(record));
  }

  _measures({ tools, memory, cpu }) {
    this.measures.tools = record(tools);
    this.#append("measures", { memory, cpu }, this.measures.samples);
  }

  _span(event) {
    this.#append("spans", event);
  }

  _lost(event) {
    this.lost += Number(event.count) || 0;
    this.changed("messages");
  }
}

/** What a message says, in a few words. */
function summaryOf(event, { error, result, params }) {
  if (!event.data) return event.preview;
  if (error) return `error ${plain(record(error).code)}: ${plain(record(error).message)}`;
  const { _meta, resultType, ttlMs, cacheScope, ...members } = record(result);
  if (members.isError) return `tool error: ${textOf(members)}`;
  if (resultType === "input_required") return `input required: ${Object.keys(record(members.inputRequests)).join(", ")}`;
  if (result) return members.action ?? (textOf(members) || Object.keys(members).join(", ") || "{}");
  const { name, uri, message, data, progress, requestId, ref } = record(params);
  return name ?? uri ?? message ?? data ?? progress ?? requestId ?? record(ref).name;
}

const textOf = (result) => list(result.content).map((block) => record(block).text).find((text) => typeof text === "string") ?? "";

export const isFinal = (call) => FINAL.includes(call?.state);

export function subject(call) {
  const params = record(call.params);
  return visible(params.name ?? params.uri ?? call.method ?? call.call);
}

/** The arguments of a call as one line, or its method if it has none. */
export function argumentsOf({ method, params }) {
  const { arguments: values } = record(params);
  return visible(values ? stringify(values, 0) : method, 200);
}

export const store = new Store();
