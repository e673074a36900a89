// The same call in both eras, side by side: what was sent, how many rounds, what differs in the results.
import { CallPanel } from "./call.js";
import { button, bytes, chip, duration, eraChip, facts, h, labelled, memory, name, own, plain, plural, record, refresh, rowHead, select, setOptions, show, stringify, table, visible } from "./dom.js";
import { promptRunner } from "./prompts.js";
import { resourceRunner } from "./resources.js";
import { toolRunner } from "./tools.js";
import { argumentsOf, ERAS, isFinal, store, subject } from "./store.js";
import { hash, View } from "./view.js";
import { conversation } from "./wire.js";

/** What can be called, by its section: the method, the parameter that names an item, what calls it. */
const KINDS = {
  tools: ["tools/call", "name", toolRunner],
  prompts: ["prompts/get", "name", promptRunner],
  resources: ["resources/read", "uri", resourceRunner],
};
const SAME = " Both eras answer the same. What only one era has (result type, cache hints, wrapped lists) is left out.";

export default class CompareView extends View {
  topics = ["calls", "messages", "questions", "offers"];

  build() {
    this.item = select("What to call", [], () => this.drawEditor(), "compare");
    this.start = h("div.fields");
    this.pairs = h("div.recent");
    this.body = h("div");
    this.page("One call in both eras of the protocol, at the same time.", [labelled("What to call", this.item)], this.start, this.body, this.pairs);
  }

  route([pair = ""]) {
    const calls = pair.split("+");
    this.calls = calls.length === 2 ? calls : store.pairs.find((one) => one.every((call) => store.calls.has(call)));
    this.sides = null;
    const call = store.calls.get(this.calls?.[0]);
    const [section, [, member]] = Object.entries(KINDS).find(([, [method]]) => method === call?.method) ?? ["", []];
    const before = this.item.value;
    const key = `${section} ${plain(record(call?.params)[member])}`;
    if ([...this.item.options].some((one) => one.value === key)) this.item.value = key;
    if (this.item.value !== before) this.drawEditor();
    this.drawPair();
  }

  update(dirty) {
    if (dirty.has("offers")) {
      setOptions(this.item, this.choices(), this.item.value || memory.get("compare"));
      if (this.item.value !== this.drawnItem) this.drawEditor();
    }
    this.drawPair();
  }

  choices() {
    const keysOf = ([section, [, member]]) => ERAS.flatMap((era) => store.offers(era, section)).map((item) => `${section} ${plain(item[member])}`);
    return [...new Set(Object.entries(KINDS).flatMap(keysOf))].slice(0, 3000).map((key) => [key, key.replace("s ", ": ")]);
  }

  drawEditor() {
    this.drawnItem = this.item.value;
    const [section, ...key] = this.item.value.split(" ");
    const [, member, runnerOf] = KINDS[section] ?? [];
    const item = ERAS.flatMap((era) => store.offers(era, section)).find((one) => plain(one[member]) === key.join(" "));
    const runner = item && runnerOf(item);
    show(this.start, runner && [runner.editor?.element, h("div.actions", button("Run in both eras", () => runner.start(true), "primary"))]);
  }

  drawPair() {
    const calls = (this.calls ?? []).map((id) => store.calls.get(id)).filter(Boolean).sort((a, b) => (a.era < b.era ? -1 : 1));
    this.drawEarlier();
    if (calls.length !== 2) {
      this.sides = null;
      return show(this.body, h("p.empty", "Run a call in both eras to see them here."));
    }
    if (!this.sides) {
      this.verdict = h("div.verdict", { role: "status" });
      this.sides = calls.map((call) => this.side(call));
      show(this.body, this.verdict, h("div.columns", this.sides.map((one) => one.element)));
    }
    for (const side of this.sides) side.update();
    refresh(this.verdict, calls.map((call) => call.version).join(), () => verdictOf(...calls));
  }

  side(call) {
    const panel = new CallPanel({ title: false, label: `Call in ${call.era}` });
    const about = h("div");
    const talk = h("div");
    panel.show(call.call);
    const title = h("h2", eraChip(call.era), " ", name(subject(call)));
    const element = h("section.compare-side", { "aria-label": `Era ${call.era}` }, title, about, panel.element, h("h3", "Messages"), talk);
    const update = () => {
      panel.update();
      const messages = store.messagesOf(call.call);
      const now = store.calls.get(call.call);
      show(about, facts([["Time", duration(now.ms)], ["Messages", messages.length], ["Rounds", now.rounds],
        ["Bytes", bytes(messages.reduce((total, one) => total + (one.size ?? 0), 0))]]));
      refresh(talk, messages.length, () => conversation(messages));
    };
    return { element, update };
  }

  drawEarlier() {
    const known = store.pairs.filter((pair) => pair.every((call) => store.calls.has(call))).slice(0, 10);
    const row = (pair) => {
      const call = store.calls.get(pair[0]);
      return h("li", h("a", { href: hash("compare", pair.join("+")) }, name(subject(call)), " ", argumentsOf(call)));
    };
    refresh(this.pairs, known.join(), () => known.length > 0 && [h("h2", "Earlier comparisons"), h("ul.recent-list", known.map(row))]);
  }
}

/** What differs between two JSON values: [path, left, right] triples, at most `limit`. */
function differences(left, right, limit = 200) {
  const found = [];
  const isObject = (value) => value !== null && typeof value === "object";
  const walk = (a, b, path, depth) => {
    if (found.length >= limit || Object.is(a, b)) return;
    const alike = isObject(a) && isObject(b) && Array.isArray(a) === Array.isArray(b);
    if (alike && depth < 60) {
      for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) walk(own(a, key), own(b, key), path ? `${path}.${key}` : key, depth + 1);
    } else if (!alike || stringify(a) !== stringify(b)) found.push([path || "(all)", a, b]);
  };
  walk(left, right, "", 0);
  return found;
}

function verdictOf(old, recent) {
  if (!isFinal(old) || !isFinal(recent)) return chip("Running", "busy");
  const found = differences(essence(old), essence(recent));
  if (found.length === 0) return [chip("Same result", "good"), SAME];
  const cell = (value) => h("td", h("code", value === undefined ? "–" : visible(stringify(value, 0), 300)));
  return [chip(plural(found.length, "difference"), "bad"),
    table("Differences", ["Where", "2025", "2026"], found.map(([path, left, right]) => [rowHead(name(path)), cell(left), cell(right)]))];
}

/** What a call ended with, without the members that only one era has. */
function essence({ error, state, result }) {
  if (error || record(result) !== result) return { error, state, result };
  const { resultType, ttlMs, cacheScope, _meta, isError, ...others } = result;
  const inner = others.structuredContent; // the handshake era wraps what is not an object
  if (inner && Object.keys(inner).join() === "result") others.structuredContent = inner.result;
  return isError === false ? others : { ...others, isError };
}
