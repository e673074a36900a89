// The wire: every message of both directions as it comes, filtered, with details, and the rounds of one call.
import { getMessage, tryCommand } from "./api.js";
import { button, bytes, chip, clock, copyText, duration, eraChip, facts, filterField, h, has, memory, name, number, plain, record, select, show, stringify, table, tabs, visible } from "./dom.js";
import { jsonView } from "./json.js";
import { VirtualList } from "./list.js";
import { store, subject } from "./store.js";
import { go, hash, View } from "./view.js";

const SLICE = 8; // milliseconds

const arrow = (message) => h("span", { class: `arrow ${message.sender}`, title: message.sender === "client" ? "from the client to the server" : "from the server to the client" },
  message.sender === "client" ? "→" : "←", h("span.sr", message.sender === "client" ? " client to server " : " server to client "));

const titleOf = (message) => (message.kind === "bytes" ? "not JSON" : message.answers ? `${message.method ?? "?"} ` : message.method ?? "message");

/** One line about a message. */
export function messageRow(message) {
  return [h("span.w-time", clock(message.at)), arrow(message), h("span", { class: `dot era-${message.era}` }, visible(message.era, 4)),
    h("span", { class: `w-method ${message.answers ? "answer" : ""}` }, name(titleOf(message)), message.answers ? h("span.muted", message.wrong ? "error" : "result") : null),
    message.round > 1 ? chip(`round ${message.round}`, "ask") : null,
    h("span", { class: `w-about ${message.wrong ? "bad-text" : ""}` }, h("bdi", message.summary)), h("span.w-size", bytes(message.size))];
}

/** Everything about one message. */
export function messageDetail(message) {
  const full = store.full(message);
  const headers = record(full.headers);
  const decoded = record(full.decoded);
  const names = Object.keys(headers);
  const body = h("div.message-body");
  const draw = (data) => show(body, tabs("Message", [
    ["tree", "Tree", () => jsonView(data, { open: 4, label: "Message" })],
    ["raw", "Raw", () => h("div.text-box", h("div.text-tools", button("Copy", () => copyText(stringify(data, 0)), "small copy")), h("pre.text", { tabindex: "0" }, stringify(data)))],
  ], memory.get("message-tab", "tree"), (key) => memory.set("message-tab", key)));
  if (full.data !== undefined) draw(full.data);
  else {
    show(body, h("pre.text", { tabindex: "0" }, plain(full.preview ?? full.text ?? "")), button("Load the whole message", async () => {
      try { draw(await getMessage(message.n)); } catch (error) { show(body, h("p.bad-text", error.message)); }
    }));
  }
  return h("div.message",
    facts([["Time", clock(message.at)], ["Direction", message.sender === "client" ? "client → server" : "server → client"], ["Era", message.era], ["Size", bytes(message.size)],
      ["Id", message.id], ["Channel", message.channel], ["Round", message.round]]),
    names.length ? h("section", h("h3", "HTTP headers"), table("HTTP headers", ["Header", "Value", "Decoded"], names.map((key) => [
      h("th", { scope: "row" }, name(key)), h("td", h("code", visible(headers[key], 2000))), h("td", has(decoded, key) ? h("code", visible(decoded[key], 2000)) : null)]), "headers")) : null,
    body);
}

/** The messages of a call as a conversation, with its rounds. */
export function conversation(messages, { compact = false } = {}) {
  const box = h("ol", { class: `conversation ${compact ? "compact" : ""}` });
  let round = 0;
  let before = null;
  for (const message of messages.slice(0, 500)) {
    if (message.round && message.round !== round) {
      round = message.round;
      box.append(h("li.round", `Round ${round}`));
    }
    const gap = before === null ? null : message.at - before;
    before = message.at;
    const tree = h("details", { ontoggle: () => { if (tree.open && tree.children.length === 1) tree.append(messageDetail(message)); } },
      h("summary", arrow(message), " ", h("strong", name(titleOf(message))), " ", message.answers ? h("span", { class: message.wrong ? "bad-text" : "muted" }, message.wrong ? "error" : "result") : null,
        h("span.muted", ` ${bytes(message.size)}${gap === null ? "" : ` · +${duration(Math.max(0, gap))}`}`), h("span.w-about", h("bdi", message.summary))));
    box.append(h("li", { class: `bubble ${message.sender}` }, tree));
  }
  if (messages.length > 500) box.append(h("li.round", `${messages.length - 500} more messages`));
  return box;
}

class WireView extends View {
  get topics() { return ["messages", "calls"]; }

  build() {
    const saved = memory.get("wire", {});
    const changed = () => this.filterAgain();
    this.text = filterField("messages", changed, "", saved.text ?? "");
    this.direction = select([["", "Both directions"], ["client", "From the client"], ["server", "From the server"]], saved.direction ?? "", changed, { "aria-label": "Direction" });
    this.era = select([["", "Both eras"], ["2026", "2026"], ["2025", "2025"]], saved.era ?? "", changed, { "aria-label": "Era" });
    this.method = select([["", "All methods"]], "", changed, { "aria-label": "Method" });
    this.methods = new Set();
    this.wanted = saved.method ?? "";
    this.count = h("span.muted.count", { role: "status" });
    this.pause = button("Pause", () => {
      const on = this.pause.getAttribute("aria-pressed") !== "true";
      this.pause.setAttribute("aria-pressed", on);
      if (!on) this.filterAgain();
    }, { "aria-pressed": "false" });
    this.only = h("span.only");
    this.rows = new VirtualList({
      label: "Messages", rowHeight: 28, key: (message) => message.n, render: messageRow, follow: true,
      onselect: (message) => { this.selected = message.n; this.drawDetail(message); this.classList.add("chosen"); history.replaceState(null, "", this.call ? hash("wire", "call", this.call, message.n) : hash("wire", message.n)); },
      onopen: () => this.detail.focus(), empty: "No message yet.",
    });
    this.detail = h("section.detail", { tabindex: "-1", "aria-label": "Message" }, h("p.empty", "Choose a message."));
    this.className = "split wide";
    this.append(h("section.side", { "aria-label": "List of messages" }, h("h2.view-title", "Wire ", this.count),
      h("div.toolbar", this.text, this.direction, this.method, this.era, this.pause,
        button("Clear", async () => { if (await tryCommand({ do: "clear" })) { store.clearMessages(); this.filterAgain(); } }),
        h("a.button", { href: "/api/export", download: "" }, "Export"), this.only), this.rows.element), this.detail);
    this.found = [];
    this.seen = 0;
  }

  route([first, second, third]) {
    const call = first === "call" ? second : null;
    const n = Number(first === "call" ? third : first);
    if (call !== this.call) {
      this.call = call;
      show(this.only, call ? [chip(`call ${call}`, "ask"), button("All messages", () => go("wire"), "small")] : null);
      this.filterAgain();
      if (call && !n) { this.drawCall(call); this.classList.add("chosen"); }
    }
    if (first === undefined) this.classList.remove("chosen");
    if (n && n !== this.selected) {
      const message = store.messages.find((one) => one.n === n);
      if (message) { this.selected = n; this.rows.setSelected(n); this.drawDetail(message); this.classList.add("chosen"); }
    }
  }

  update(dirty) {
    if (dirty.has("messages")) this.more();
    if (this.shownCall && (dirty.has("messages") || dirty.has("calls"))) {
      const mark = store.messagesOf(this.shownCall).length;
      if (mark !== this.shownMark) this.drawCall(this.shownCall);
    }
  }

  filterAgain() {
    memory.set("wire", { text: this.text.value, direction: this.direction.value, era: this.era.value, method: this.method.value || this.wanted });
    this.found = [];
    this.seen = 0;
    this.more();
  }

  /** Filter what has come since, in slices. */
  more() {
    if (this.pause.getAttribute("aria-pressed") === "true" && this.seen > 0) return;
    clearTimeout(this.timer);
    const all = store.messages;
    const first = all[0]?.n ?? Infinity;
    if (this.found.length && this.found[0].n < first) {
      let gone = 0;
      while (gone < this.found.length && this.found[gone].n < first) gone++;
      this.found.splice(0, gone);
    }
    // The numbers rise, so the first that is not looked at yet is found by halving.
    let low = 0;
    let high = all.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (all[middle].n <= this.seen) low = middle + 1; else high = middle;
    }
    const keep = this.keep();
    const end = performance.now() + SLICE;
    let at = low;
    for (; at < all.length; at++) {
      const message = all[at];
      if (message.method && !this.methods.has(message.method) && this.methods.size < 200) this.addMethod(message.method);
      if (!keep || keep(message)) this.found.push(message);
      this.seen = message.n;
      if ((at & 63) === 0 && performance.now() > end) { at++; break; }
    }
    if (all.length === 0) this.found = [];
    this.rows.setItems(this.found, store.messages.length ? "No message matches." : "No message yet.");
    const lost = store.lost ? ` · ${number(store.lost)} dropped` : "";
    this.count.textContent = (keep ? `${number(this.found.length)} of ${number(all.length)}` : number(all.length)) + lost;
    if (at < all.length) this.timer = setTimeout(() => this.more(), 0);
  }

  addMethod(method) {
    this.methods.add(method);
    const option = h("option", { value: method }, visible(method, 60));
    const after = [...this.method.options].slice(1).find((one) => one.value > method);
    this.method.insertBefore(option, after ?? null);
    if (method === this.wanted) { this.method.value = method; this.wanted = ""; setTimeout(() => this.filterAgain(), 0); }
  }

  keep() {
    const text = this.text.value;
    const direction = this.direction.value;
    const era = this.era.value;
    const method = this.method.value;
    const { call } = this;
    if (!text && !direction && !era && !method && !call) return null;
    const pattern = text && new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
    return (message) => (!direction || message.sender === direction) && (!era || message.era === era) && (!method || message.method === method)
      && (!call || message.call === call) && (!pattern || pattern.test(message.raw) || pattern.test(message.method ?? ""));
  }

  drawDetail(message) {
    this.shownCall = null;
    const related = message.call ? h("a.button", { href: hash("wire", "call", message.call), onclick: () => { if (this.call === message.call) this.drawCall(message.call); } }, "The whole call") : null;
    show(this.detail, h("a.back", { href: hash("wire") }, "← Wire"),
      h("header.item-head", h("h2", arrow(message), " ", name(titleOf(message)), message.answers ? h("span.muted", message.wrong ? "error" : "result") : null), h("div.chips", eraChip(message.era), related)), messageDetail(message));
  }

  drawCall(id) {
    const call = store.calls.get(id);
    const messages = store.messagesOf(id);
    this.shownCall = id;
    this.shownMark = messages.length;
    const rounds = Math.max(1, ...messages.map((one) => one.round ?? 1));
    show(this.detail, h("a.back", { href: hash("wire") }, "← Wire"),
      h("header.item-head", h("h2", call ? name(subject(call)) : "Call"), h("div.chips", call ? eraChip(call.era) : null, chip(`${messages.length} messages`), chip(`${rounds} ${rounds === 1 ? "round" : "rounds"}`),
        h("a.button", { href: hash("history", id) }, "Result"))),
      messages.length ? conversation(messages) : h("p.empty", "Its messages are not known any more."));
  }
}

customElements.define("hinge-wire", WireView);
