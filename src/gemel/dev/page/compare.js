// The same call in both eras, side by side: what was sent, how many rounds, what differs in the results.
import { CallPanel, start } from "./call.js";
import { button, bytes, chip, facts, h, name, own, plural, record, refresh, rowHead, show, stringify, table, visible } from "./dom.js";
import { argumentsOf, isFinal, store, subject } from "./store.js";
import { hash, View } from "./view.js";
import { conversation } from "./wire.js";

export default class CompareView extends View {
  topics = ["calls", "messages", "questions", "logs", "spans"];

  build() {
    this.pairs = h("div.recent");
    this.body = h("div");
    this.again = button("Again in both eras", () => start(null, this.call.method, this.call.params, true));
    this.page("One call in both eras of the protocol, at the same time.", [this.again], this.body, this.pairs);
  }

  route([pair = ""]) {
    const calls = pair.split("+");
    this.calls = calls.length === 2 ? calls : store.pairs.find((one) => one.every((call) => store.calls.has(call)));
    this.sides = null;
    this.update();
  }

  update() {
    const calls = (this.calls ?? []).map((id) => store.calls.get(id)).filter(Boolean).sort((a, b) => (a.era < b.era ? -1 : 1));
    [this.call] = calls;
    this.again.hidden = calls.length !== 2;
    this.drawEarlier();
    if (this.again.hidden) {
      this.sides = null;
      return show(this.body, h("p.empty", "“Run in both eras” at a tool, resource or prompt shows its calls here."));
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
    const panel = new CallPanel({ label: `Call in ${call.era}` });
    const about = h("div");
    const talk = h("div");
    panel.show(call.call);
    const element = h("section", { "aria-label": `Era ${call.era}` }, about, panel.element, h("h3", "Messages"), talk);
    const update = () => {
      panel.update();
      const messages = store.messagesOf(call.call);
      show(about, facts([["Messages", messages.length], ["Rounds", store.calls.get(call.call).rounds],
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
  if (found.length === 0) return [chip("Same result", "good"), " Members that only one era has are left out."];
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
