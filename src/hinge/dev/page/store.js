// What the page knows, made from events alone. Everything is bounded: the oldest is dropped first.
import { list, memory, plain, record, visible } from "./dom.js";

const MOST = { messages: 100_000, characters: 64 * 1024 * 1024, calls: 5_000, logs: 20_000, spans: 5_000, samples: 600, methods: 20_000 };
const FINAL = new Set(["done", "failed", "cancelled"]);
export const ERAS = ["2026", "2025"];
export const SECTIONS = ["tools", "resources", "templates", "prompts"];

const emptyEra = (era) => ({
  connection: { era, state: "off", without: [] }, offers: {}, coming: {}, errors: {}, listening: { on: false, uris: [] }, login: [],
});

class Store {
  target = "";
  apps = null;
  eras = { 2025: emptyEra("2025"), 2026: emptyEra("2026") };
  messages = [];
  calls = new Map();
  questions = new Map();
  logs = [];
  spans = [];
  measures = { tools: {}, samples: [] };
  contracts = [];
  findings = [];
  restarts = [];
  pairs = memory.get("pairs", []);
  lost = 0;
  online = "waiting";
  #characters = 0;
  #byCall = new Map();
  #methods = new Map();
  #watchers = new Set();
  #dirty = new Set();
  #scheduled = false;
  #last = 0;

  /** Call `update(topics)` at most once per frame after one of these topics changed. Returns a function that ends it. */
  watch(topics, update) {
    const watcher = { topics, update };
    this.#watchers.add(watcher);
    return () => this.#watchers.delete(watcher);
  }

  changed(topic) {
    this.#dirty.add(topic);
    if (this.#scheduled) return;
    this.#scheduled = true;
    if (document.hidden) setTimeout(() => this.#tell(), 200);
    else requestAnimationFrame(() => this.#tell());
  }

  #tell() {
    this.#scheduled = false;
    const dirty = this.#dirty;
    this.#dirty = new Set();
    for (const watcher of this.#watchers) {
      if (!watcher.topics.some((topic) => dirty.has(topic))) continue;
      try { watcher.update(dirty); } catch (error) { console.error(error); }
    }
  }

  setOnline(state) {
    this.online = state;
    this.changed("online");
  }

  lose(count) {
    this.lost += count;
    this.changed("messages");
  }

  /** The state of one era. */
  era(era) {
    return this.eras[era] ?? this.eras[2026];
  }

  offers(era, section) {
    return this.era(era).offers[section] ?? [];
  }

  /** The messages that belong to a call, oldest first. */
  messagesOf(call) {
    return this.#byCall.get(call) ?? [];
  }

  /** A message with all that the event said. */
  full(message) {
    try { return JSON.parse(message.raw); } catch { return {}; }
  }

  openQuestions() {
    return [...this.questions.values()].filter((one) => one.state === "open");
  }

  rememberPair(calls) {
    this.pairs.unshift(calls);
    this.pairs.length = Math.min(this.pairs.length, 50);
    memory.set("pairs", this.pairs);
    this.changed("calls");
  }

  clearMessages() {
    this.messages = [];
    this.#byCall.clear();
    this.#characters = 0;
    this.changed("messages");
  }

  /** Take in one event; `raw` is its JSON text. */
  apply(event, raw) {
    const take = this[`_${event.kind}`];
    if (typeof take === "function") take.call(this, event, raw);
  }

  _connection(event) {
    const era = this.eras[event.era];
    if (!era) return;
    era.connection = { without: [], ...event };
    this.changed("connection");
  }

  _offers(event) {
    const era = this.eras[event.era];
    if (!era || !SECTIONS.includes(event.section)) return;
    const { section } = event;
    const items = list(event.items).map(record);
    if (event.parts > 1) {
      if (event.part === 0 || event.part === undefined) era.coming[section] = [];
      const coming = (era.coming[section] ??= []);
      coming.push(...items);
      if (event.part < event.parts - 1) return;
      era.offers[section] = coming;
      delete era.coming[section];
    } else {
      era.offers[section] = items;
    }
    era.errors[section] = event.error ?? null;
    this.changed("offers");
  }

  _message(event, raw) {
    if (event.n <= this.#last) return;
    this.#last = event.n;
    const data = record(event.data);
    const side = `${event.era} ${event.channel} `;
    let method = event.method ?? null;
    let answers = false;
    if (event.id !== undefined && event.id !== null) {
      if (method) {
        if (this.#methods.size > MOST.methods) this.#methods.clear();
        this.#methods.set(`${side}${event.sender} ${event.id}`, method);
      } else {
        const key = `${side}${event.sender === "client" ? "server" : "client"} ${event.id}`;
        answers = true;
        method = this.#methods.get(key) ?? null;
        this.#methods.delete(key);
      }
    }
    const message = {
      n: event.n, at: event.at, kind: event.kind, era: event.era, sender: event.sender, id: event.id, size: event.size,
      call: event.call, round: event.round, channel: event.channel, method, answers, summary: summaryOf(event, data, answers),
      wrong: event.kind === "bytes" || "error" in data || record(data.result).isError === true, raw,
    };
    this.messages.push(message);
    this.#characters += raw.length;
    if (message.call) {
      const those = this.#byCall.get(message.call);
      if (those) those.push(message); else this.#byCall.set(message.call, [message]);
    }
    if (this.messages.length > MOST.messages + 1000 || this.#characters > MOST.characters) this.#dropMessages();
    this.changed("messages");
  }

  _bytes(event, raw) {
    this._message(event, raw);
  }

  #dropMessages() {
    const count = Math.max(this.messages.length - MOST.messages, Math.min(1000, this.messages.length));
    for (const gone of this.messages.splice(0, count)) {
      this.#characters -= gone.raw.length;
      const those = gone.call && this.#byCall.get(gone.call);
      if (!those) continue;
      if (those[0] === gone) those.shift();
      if (those.length === 0) this.#byCall.delete(gone.call);
    }
  }

  _call(event) {
    const before = this.calls.get(event.call);
    const call = Object.assign(before ?? { at: event.at, state: "running" }, event, { at: before?.at ?? event.at });
    call.version = (call.version ?? 0) + 1;
    this.calls.set(event.call, call);
    if (this.calls.size > MOST.calls) this.calls.delete(this.calls.keys().next().value);
    this.changed("calls");
  }

  _question(event) {
    const before = this.questions.get(event.question);
    this.questions.set(event.question, Object.assign(before ?? {}, event));
    if (this.questions.size > MOST.calls) this.questions.delete(this.questions.keys().next().value);
    this.changed("questions");
  }

  #log(entry) {
    this.logs.push(entry);
    if (this.logs.length > MOST.logs + 500) this.logs.splice(0, 500);
    this.changed("logs");
  }

  _stderr(event) {
    for (const line of plain(event.text ?? "").replace(/\n$/, "").split("\n")) {
      this.#log({ n: event.n, at: event.at, source: "stderr", level: "", text: line });
    }
  }

  _log(event) {
    const text = typeof event.data === "string" ? event.data : JSON.stringify(event.data) ?? "";
    this.#log({ n: event.n, at: event.at, source: "log", era: event.era, level: plain(event.level ?? ""), logger: event.logger, text });
  }

  _change(event) {
    const what = `changed: ${visible(event.what, 40)}${event.uri ? ` ${visible(event.uri)}` : ""}`;
    this.#log({ n: event.n, at: event.at, source: "change", era: event.era, level: "", text: what });
    this.lastChange = event;
    this.changed("changes");
  }

  _listening(event) {
    const era = this.eras[event.era];
    if (era) era.listening = event;
    this.changed("connection");
  }

  _restarted(event) {
    this.restarts.push(event);
    if (this.restarts.length > 200) this.restarts.shift();
    this.changed("restarts");
  }

  _contract(event) {
    if (this.contracts.some((one) => one.n === event.n)) return;
    this.contracts.push(event);
    if (this.contracts.length > 200) this.contracts.shift();
    this.changed("contract");
  }

  _findings(event) {
    this.findings = list(event.items).map(record);
    this.changed("findings");
  }

  _measures(event) {
    this.measures.tools = record(event.tools);
    this.measures.samples.push({ at: event.at, memory: event.memory, cpu: event.cpu });
    if (this.measures.samples.length > MOST.samples) this.measures.samples.shift();
    this.changed("measures");
  }

  _span(event) {
    this.spans.push(event);
    if (this.spans.length > MOST.spans + 200) this.spans.splice(0, 200);
    this.changed("spans");
  }

  _login(event) {
    const era = this.eras[event.era];
    if (!era) return;
    era.login.push(event);
    if (era.login.length > 100) era.login.shift();
    this.changed("connection");
  }

  _lost(event) {
    this.lose(Number(event.count) || 0);
  }
}

/** One short line that says what a message is about. */
function summaryOf(event, data, answers) {
  if (event.kind === "bytes" || !event.data) return visible(event.preview ?? event.text ?? "", 160);
  if (data.error) return visible(`error ${plain(record(data.error).code)}: ${plain(record(data.error).message)}`, 160);
  if (answers) {
    const result = record(data.result);
    if (result.isError) return visible(`tool error: ${textOf(result)}`, 160);
    if (result.resultType === "input_required") return "input required: " + visible(Object.keys(record(result.inputRequests)).join(", "), 120);
    if (result.action) return visible(result.action, 40);
    return visible(textOf(result) || Object.keys(result).join(", ") || "{}", 160);
  }
  const params = record(data.params);
  const about = params.name ?? params.uri ?? params.message ?? params.data ?? params.progress ?? params.requestId ?? record(params.ref).name ?? "";
  return visible(typeof about === "object" ? JSON.stringify(about) : about, 160);
}

const textOf = (result) => list(result.content).map((block) => record(block).text).find((text) => typeof text === "string") ?? "";

export const isFinal = (call) => FINAL.has(call?.state);

/** What a call is about: the name of its tool or prompt, the address of its resource, else its method. */
export function subject(call) {
  const params = record(call.params);
  return visible(params.name ?? params.uri ?? call.method ?? call.call);
}

export const store = new Store();
