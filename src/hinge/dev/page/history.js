// All calls of this session: again, edit, copy.
import { CallPanel, stateChip } from "./call.js";
import { clock, duration, eraChip, filterField, h, memory, name, number, record, select, show, stringify, visible } from "./dom.js";
import { jsonView } from "./json.js";
import { VirtualList } from "./list.js";
import { store, subject } from "./store.js";
import { go, hash, View } from "./view.js";

const QUIET = new Set(["completion/complete"]);

class HistoryView extends View {
  get topics() { return ["calls", "questions"]; }

  build() {
    const changed = () => this.fill();
    this.filter = filterField("calls", changed, "filter:history");
    this.state = select([["", "All states"], ["running", "Running"], ["waiting", "Waiting"], ["done", "Done"], ["failed", "Failed"], ["cancelled", "Cancelled"]], "", changed, { "aria-label": "State" });
    this.count = h("span.muted.count", { role: "status" });
    this.rows = new VirtualList({
      label: "Calls", rowHeight: 52, key: (call) => call.call, version: (call) => call.version, onselect: (call) => go("history", call.call), onopen: () => this.detail.focus(),
      empty: "No call yet.",
      render: (call) => [h("div.row-main", h("div.row-name", name(subject(call))), h("div.row-about", visible(stringify(record(call.params).arguments ?? {}, 0), 120))),
        h("div.row-side.stack", h("span", stateChip(call), eraChip(call.era)), h("span.muted", `${clock(call.at).slice(0, 8)}  ${duration(call.ms)}`))],
    });
    this.panel = new CallPanel({ onagain: (call) => go("history", call) });
    this.params = h("div");
    this.detail = h("section.detail", { tabindex: "-1", "aria-label": "Chosen call" });
    this.className = "split";
    this.append(h("section.side", { "aria-label": "List of calls" }, h("h2.view-title", "History ", this.count), h("div.toolbar", this.filter, this.state), this.rows.element), this.detail);
    show(this.detail, h("p.empty", "Choose a call."));
  }

  fill() {
    memory.set("filter:history", this.filter.value);
    const text = this.filter.value.toLowerCase();
    const all = [...store.calls.values()].filter((call) => !QUIET.has(call.method)).reverse();
    const shown = all.filter((call) => (!this.state.value || call.state === this.state.value) && (!text || `${subject(call)} ${call.method} ${stringify(call.params, 0)}`.toLowerCase().includes(text)));
    this.rows.setItems(shown, all.length ? "No call matches." : "No call yet.");
    this.count.textContent = number(shown.length);
  }

  route([id]) {
    this.classList.toggle("chosen", Boolean(id));
    if (!id) return;
    this.rows.setSelected(id);
    const call = store.calls.get(id);
    if (!call) { this.waiting = id; return show(this.detail, h("a.back", { href: hash("history") }, "← History"), h("p.empty", "This call is not known any more.")); }
    this.waiting = null;
    this.panel.show(id);
    show(this.params, h("h2", h("code", visible(call.method, 80))), jsonView(call.params, { label: "Parameters" }));
    show(this.detail, h("a.back", { href: hash("history") }, "← History"), this.params, this.panel.element);
  }

  update() {
    this.fill();
    if (this.waiting && store.calls.has(this.waiting)) this.route([this.waiting]);
    this.panel.update();
  }
}

customElements.define("hinge-history", HistoryView);
