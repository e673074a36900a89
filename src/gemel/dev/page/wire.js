// The wire: every message of both directions as it comes, filtered, with details, and the rounds of one call.
import { jsonView, loader, textView } from "./result.js";
import { SLICE, tryCommand } from "./inspector.js";
import { button, bytes, check, chip, clock, code, details, duration, eraChip, facts, filterField, h, lines, linkButton, memory, name, number, own, plural, record, rowHead, segments, select, setOptions, show, stringify, table } from "./dom.js";
import { ERAS, store, subject } from "./store.js";
import { go, hash, rename, View } from "./view.js";

const DIRECTIONS = { client: ["→", "client → server"], server: ["←", "server → client"] };

function arrow({ sender }) {
  const [sign, title] = DIRECTIONS[sender];
  return h(`span.arrow.${sender}`, { role: "img", "aria-label": title, title }, sign);
}

/** The method of a message; of an answer, that of its request. */
function titleOf({ kind, method, answers, wrong }) {
  if (kind === "bytes") return "not JSON";
  return [name(method ?? "message"), answers && h("span", { class: wrong ? "bad" : "muted" }, wrong ? " error" : " result")];
}

function messageRow(message) {
  return [h("span.w-time", clock(message.at)), arrow(message), h(`span.dot.era-${message.era}`, message.era), h("span.w-method", titleOf(message)),
    message.round > 1 && chip(`round ${message.round}`, "ask"),
    h("span", { class: `w-about ${message.wrong ? "bad" : ""}` }, name(message.summary)), h("span.row-side", bytes(message.size))];
}

function messageDetail(message) {
  const full = JSON.parse(message.raw);
  const headers = Object.entries(record(full.headers));
  const decoded = record(full.decoded);
  const draw = (data) => {
    const place = h("div");
    const choose = (kind) => show(place, kind === "tree" ? jsonView(data, "Message", 4) : textView(stringify(data)));
    return [segments("Show as", [["tree", "Tree"], ["raw", "Raw"]], choose, "message"), place];
  };
  const cell = (value) => h("td", code(value, 2000));
  return h("div.message",
    facts([["Time", clock(message.at)], ["Direction", DIRECTIONS[message.sender][1]], ["Size", bytes(message.size)],
      ["Id", message.id], ["Round", message.round]]),
    headers.length > 0 && h("section", h("h3", "HTTP headers"), table("HTTP headers", ["Header", "Value", "Decoded"],
      headers.map(([key, value]) => [rowHead(name(key)), cell(value), cell(own(decoded, key))]))),
    h("div.message-body", full.data === undefined ? loader(message.n, lines(full.preview), "Load the whole message", draw) : draw(full.data)));
}

export function conversation(messages) {
  const box = h("ol.conversation");
  let round = 0;
  let before = null;
  for (const message of messages.slice(0, 500)) {
    if (message.round && message.round !== round) {
      round = message.round;
      box.append(h("li.round", `Round ${round}`));
    }
    const gap = before === null ? "" : ` · +${duration(Math.max(0, message.at - before))}`;
    before = message.at;
    const title = [arrow(message), " ", h("strong", titleOf(message))];
    const line = [title, h("span.muted", ` ${bytes(message.size)}${gap}`), h("span.w-about", name(message.summary))];
    box.append(h(`li.bubble.${message.sender}`, details(line, () => messageDetail(message))));
  }
  if (messages.length > 500) box.append(h("li.round", `${messages.length - 500} more messages`));
  return box;
}

export default class WireView extends View {
  topics = ["messages", "calls"];

  build() {
    const changed = () => this.filterAgain();
    this.text = filterField("messages", changed);
    const directions = [["", "Both directions"], ["client", "From the client"], ["server", "From the server"]];
    this.direction = select("Direction", directions, changed, "wire-direction");
    this.era = select("Era", [["", "Both eras"], ...ERAS], changed, "wire-era");
    this.method = select("Method", [["", "All methods"]], changed, "wire-method");
    this.methods = new Set();
    this.pause = h("input", { type: "checkbox", onchange: () => { if (!this.pause.checked) changed(); } });
    this.only = h("span");
    const clear = async () => {
      if (!await tryCommand({ do: "clear" })) return;
      store.clearMessages();
      this.filterAgain();
    };
    this.split({
      label: "Messages", one: "Message",
      controls: [this.text, this.direction, this.method, this.era, check("Pause", this.pause), button("Clear", clear),
        h("a.button", { href: "/api/export", download: "" }, "Export"), this.only],
      rowHeight: 28, key: (message) => message.n, render: messageRow, follow: true,
      onselect: (message) => {
        this.drawMessage(message);
        rename(...(this.call ? ["wire", "call", this.call, message.n] : ["wire", message.n]));
      },
    });
    this.classList.add("wide");
    this.filterAgain();
  }

  route([first, ...rest]) {
    const [call, n] = first === "call" ? rest : [undefined, first];
    if (call !== this.call) {
      this.call = call;
      show(this.only, call && [chip(`call ${call}`, "ask"), button("All messages", () => go("wire"), "small")]);
      this.filterAgain();
    }
    if (call && !n) this.drawCall(call);
    if (first === undefined) this.classList.remove("chosen");
    const message = n && Number(n) !== this.selected && store.messages.find((one) => one.n === Number(n));
    if (message) {
      this.rows.setSelected(message.n);
      this.drawMessage(message);
    }
  }

  update(dirty) {
    if (dirty.has("messages")) this.more();
    if (this.shownCall && store.messagesOf(this.shownCall).length !== this.shownCount) this.drawCall(this.shownCall);
  }

  filterAgain() {
    this.found = [];
    this.seen = 0;
    this.more();
  }

  /** Filter what has come since, in slices; `seen` counts the messages that were looked at. */
  more() {
    if (this.pause.checked && this.seen > 0) return;
    clearTimeout(this.timer);
    const { messages, dropped } = store;
    const oldest = messages[0]?.n ?? Infinity;
    if (this.found[0]?.n < oldest) this.found = this.found.filter((one) => one.n >= oldest);
    const keep = this.keep();
    const end = performance.now() + SLICE;
    let at = Math.max(0, this.seen - dropped);
    while (at < messages.length) {
      const message = messages[at++];
      if (message.method && this.methods.size < 200) this.methods.add(message.method);
      if (!keep || keep(message)) this.found.push(message);
      if ((at & 63) === 0 && performance.now() > end) break;
    }
    this.seen = dropped + at;
    this.rows.setItems(this.found, messages.length ? "No message matches." : "No message yet.");
    const lost = store.lost ? ` · ${number(store.lost)} dropped` : "";
    this.count.textContent = (keep ? `${number(this.found.length)} of ${number(messages.length)}` : number(messages.length)) + lost;
    if (at < messages.length) this.timer = setTimeout(() => this.more(), 0);
    if (this.methods.size < this.method.options.length) return;
    const before = this.method.value;
    setOptions(this.method, [["", "All methods"], ...[...this.methods].sort()], before || memory.get("wire-method"));
    if (this.method.value !== before) this.filterAgain();
  }

  /** Whether a message passes the filters, or null if there are none. */
  keep() {
    const { call } = this;
    const [text, direction, era, method] = [this.text, this.direction, this.era, this.method].map((control) => control.value);
    if (!text && !direction && !era && !method && !call) return null;
    const pattern = text && new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
    return (message) => (!direction || message.sender === direction) && (!era || message.era === era) && (!method || message.method === method)
      && (!call || message.call === call) && (!pattern || pattern.test(message.raw) || pattern.test(message.method ?? ""));
  }

  drawMessage(message) {
    const { call } = message;
    this.selected = message.n;
    this.shownCall = null;
    const whole = call && linkButton("The whole call", hash("wire", "call", call));
    this.show(h("h2", arrow(message), " ", titleOf(message)), [eraChip(message.era), whole], messageDetail(message));
  }

  drawCall(id) {
    const call = store.calls.get(id);
    const messages = store.messagesOf(id);
    this.shownCall = id;
    this.shownCount = messages.length;
    this.selected = null;
    const counts = [chip(plural(messages.length, "message")), call?.rounds && chip(plural(call.rounds, "round"))];
    this.show(h("h2", call ? name(subject(call)) : "Call"), [eraChip(call?.era), counts, linkButton("Result", hash("history", id))],
      messages.length ? conversation(messages) : h("p.empty", "Its messages are not known any more."));
  }

  show(title, chips, content) {
    this.classList.add("chosen");
    this.showDetail(h("header.item-head", title, h("div.chips", chips)), content);
  }
}
