// The same call in both eras, side by side: what was sent, how many rounds, what differs in the results.
import { CallPanel, start } from "./call.js";
import { button, bytes, chip, duration, eraChip, facts, h, labelled, memory, name, plain, record, select, show, stringify, table, visible } from "./dom.js";
import { Editor } from "./form.js";
import { differences } from "./json.js";
import { isFinal, store, subject } from "./store.js";
import { go, hash, View } from "./view.js";
import { conversation } from "./wire.js";

const KINDS = { tools: ["tools/call", "name"], prompts: ["prompts/get", "name"], resources: ["resources/read", "uri"] };

class CompareView extends View {
  get topics() { return ["calls", "messages", "questions", "offers"]; }

  build() {
    this.className = "page";
    this.item = select([], undefined, () => this.drawEditor(), {});
    this.editorBox = h("div");
    this.pairs = h("div.recent");
    this.body = h("div.compare");
    this.append(h("h2.view-title", "Compare"), h("p.lead", "One call in both eras of the protocol, at the same time."),
      h("div.compare-start", labelled("What to call", this.item), this.editorBox, h("div.actions", button("Run in both eras", () => this.run(), "primary"))),
      this.body, this.pairs);
  }

  route([pair]) {
    const calls = String(pair ?? "").split("+").filter(Boolean);
    if (calls.length !== 2) {
      const last = store.pairs.find((one) => one.every((call) => store.calls.has(call)));
      this.calls = last ?? null;
    } else this.calls = calls;
    const call = store.calls.get(this.calls?.[0]);
    const kind = Object.entries(KINDS).find(([, [method]]) => method === call?.method);
    const key = kind && `${kind[0]} ${call.params?.[kind[1][1]]}`;
    if (key && key !== this.item.value && [...this.item.options].some((one) => one.value === key)) {
      this.item.value = key;
      this.drawEditor();
    }
    this.panels = null;
    this.drawPair();
  }

  update(dirty) {
    if (dirty.has("offers")) this.fillItems();
    this.drawPair();
  }

  fillItems() {
    const pairs = [];
    for (const section of Object.keys(KINDS)) {
      const keys = new Set();
      for (const era of ["2026", "2025"]) for (const item of store.offers(era, section)) keys.add(plain(item[KINDS[section][1]]));
      for (const key of keys) pairs.push([`${section} ${key}`, `${section.slice(0, -1)}: ${key}`]);
      if (pairs.length > 3000) break;
    }
    const before = this.item.value || memory.get("compare", "");
    show(this.item, pairs.map(([key, text]) => h("option", { value: key }, visible(text, 100))));
    if (pairs.some(([key]) => key === before)) this.item.value = before;
    if (this.item.value !== this.drawnItem || this.drawnItem === undefined) this.drawEditor();
  }

  chosen() {
    const [section, ...rest] = this.item.value.split(" ");
    const key = rest.join(" ");
    const find = (era) => store.offers(era, section).find((one) => plain(one[KINDS[section]?.[1]]) === key);
    return { section, key, item: find("2026") ?? find("2025") };
  }

  drawEditor() {
    this.drawnItem = this.item.value;
    memory.set("compare", this.item.value);
    const { section, key, item } = this.chosen();
    this.editor = null;
    if (!item || section === "resources") return show(this.editorBox);
    const schema = section === "tools" ? record(item.inputSchema) : {
      type: "object", properties: Object.fromEntries((item.arguments ?? []).map((one) => [one.name, { type: "string", description: one.description }])),
    };
    const saved = `values:${section === "tools" ? "tool" : "prompt"}:${key}`;
    this.editor = new Editor(schema, { value: memory.get(saved, {}), tab: memory.get("tab", "form"), onchange: (value) => { if (value !== undefined) memory.set(saved, value); } });
    show(this.editorBox, this.editor.element);
  }

  async run() {
    const { section, key, item } = this.chosen();
    if (!item) return;
    const value = this.editor ? this.editor.value : {};
    if (value === undefined) return this.editor.text.focus();
    const [method, member] = KINDS[section];
    const params = section === "resources" ? { uri: key } : { [member]: key, arguments: value };
    const made = await start("2026", method, params, true);
    if (made) go("compare", made.join("+"));
  }

  drawPair() {
    const calls = (this.calls ?? []).map((id) => store.calls.get(id));
    if (calls.length !== 2 || !calls[0] || !calls[1]) {
      if (this.panels || !this.body.hasChildNodes()) show(this.body, h("p.empty", "Run a call in both eras to see them here."));
      this.panels = null;
      return this.drawRecent();
    }
    calls.sort((a, b) => (a.era < b.era ? -1 : 1));
    if (!this.panels) {
      this.verdict = h("div.verdict", { role: "status" });
      this.panels = calls.map((call) => {
        const panel = new CallPanel({ title: false, label: `Call in ${call.era}` });
        const box = h("div");
        const talk = h("div");
        panel.show(call.call);
        return { id: call.call, panel, facts: box, talk, count: -1, element: h("section.compare-side", { "aria-label": `Era ${call.era}` }, h("h2", eraChip(call.era), " ", name(subject(call))), box, panel.element, h("h3", "Messages"), talk) };
      });
      show(this.body, this.verdict, h("div.compare-sides", this.panels.map((one) => one.element)));
      this.mark = null;
    }
    for (const side of this.panels) {
      side.panel.update();
      const call = store.calls.get(side.id);
      const messages = store.messagesOf(side.id);
      const mark = `${call.version} ${messages.length}`;
      if (mark === side.mark) continue;
      side.mark = mark;
      const sum = messages.reduce((total, one) => total + (one.size ?? 0), 0);
      show(side.facts, facts([["Time", isFinal(call) ? duration(call.ms) : "…"], ["Messages", messages.length], ["Rounds", Math.max(1, ...messages.map((one) => one.round ?? 1))], ["Bytes", bytes(sum)]]));
      if (side.count !== messages.length) {
        side.count = messages.length;
        show(side.talk, conversation(messages, { compact: true }));
      }
    }
    this.drawVerdict(calls);
    this.drawRecent();
  }

  drawVerdict([old, recent]) {
    const mark = `${old.version} ${recent.version}`;
    if (mark === this.mark) return;
    this.mark = mark;
    if (!isFinal(old) || !isFinal(recent)) return show(this.verdict, chip("Running", "busy"));
    const shown = (call) => (call.error ? { error: call.error } : call.state === "cancelled" ? { cancelled: true } : essence(call.result));
    const found = differences(shown(old), shown(recent));
    if (found.length === 0) return show(this.verdict, chip("Same result", "good"), " Both eras answer the same. What only one era has (result type, cache hints, wrapped lists) is left out.");
    const cell = (value) => h("td", h("code", value === undefined ? "–" : visible(stringify(value, 0), 300)));
    show(this.verdict, chip(`${found.length} ${found.length === 1 ? "difference" : "differences"}`, "bad"),
      table("Differences", ["Where", "2025", "2026"], found.map(([path, a, b]) => [h("th", { scope: "row" }, name(path)), cell(a), cell(b)])));
  }

  drawRecent() {
    const known = store.pairs.filter((pair) => pair.every((call) => store.calls.has(call))).slice(0, 10);
    const mark = known.map((pair) => pair.join("+")).join();
    if (mark === this.recentMark) return;
    this.recentMark = mark;
    show(this.pairs, known.length ? [h("h2", "Earlier comparisons"), h("ul.recent-list", known.map((pair) => {
      const call = store.calls.get(pair[0]);
      return h("li", h("a", { href: hash("compare", pair.join("+")) }, name(subject(call)), " ", visible(stringify(record(call.params).arguments ?? {}, 0), 120)));
    }))] : null);
  }
}

/** A result without the members that only one era has. */
function essence(result) {
  if (result === null || typeof result !== "object" || Array.isArray(result)) return result;
  const { resultType, ttlMs, cacheScope, _meta, ...others } = result;
  if (others.isError === false) delete others.isError;
  const inner = others.structuredContent; // the handshake era wraps what is not an object
  if (inner && Object.keys(inner).join() === "result") others.structuredContent = inner.result;
  return others;
}

customElements.define("hinge-compare", CompareView);
