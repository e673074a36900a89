// All calls, and one of them with its parameters and its result.
import { CallPanel, stateChip, STATES } from "./call.js";
import { clock, code, duration, eraChip, filterField, h, name, number, select, show, stringify } from "./dom.js";
import { rowTexts } from "./list.js";
import { jsonView } from "./result.js";
import { argumentsOf, store, subject } from "./store.js";
import { go, View } from "./view.js";

const CHOICES = [["", "All states"], ...Object.entries(STATES).map(([state, [text]]) => [state, text])];

export default class HistoryView extends View {
  topics = ["calls", "questions", "logs", "spans"];

  build() {
    this.filter = filterField("calls", () => this.fill());
    this.state = select("State", CHOICES, () => this.fill());
    this.split({
      label: "Calls", one: "Chosen call", controls: [this.filter, this.state],
      rowHeight: 52, key: (call) => call.call, version: (call) => call.version, onselect: (call) => go("history", call.call),
      render: (call) => [rowTexts(name(subject(call)), argumentsOf(call)),
        h("div.row-side", h("p", stateChip(call), eraChip(call.era)), h("p", `${clock(call.at).slice(0, 8)}  ${duration(call.ms)}`))],
    });
    this.panel = new CallPanel({ onagain: (call) => go("history", call) });
    this.params = h("div");
  }

  fill() {
    const all = store.callsThat((call) => call.method !== "completion/complete").reverse();
    const shown = all.filter((call) => (!this.state.value || call.state === this.state.value)
      && this.filter.accepts(`${subject(call)} ${call.method} ${stringify(call.params, 0)}`));
    this.rows.setItems(shown, all.length ? "No call matches." : "No call yet.");
    this.count.textContent = number(shown.length);
  }

  route([id]) {
    this.classList.toggle("chosen", Boolean(id));
    if (!id) return;
    this.rows.setSelected(id);
    const call = store.calls.get(id);
    this.missing = call ? null : id;
    if (!call) return this.showDetail(h("p.empty", "This call is not known any more."));
    this.panel.show(id);
    show(this.params, h("h2", code(call.method, 80)), jsonView(call.params, "Parameters"));
    this.showDetail(this.params, this.panel.element);
  }

  update(dirty) {
    if (dirty.has("calls")) this.fill();
    if (store.calls.has(this.missing)) this.route([this.missing]);
    this.panel.update();
  }
}
