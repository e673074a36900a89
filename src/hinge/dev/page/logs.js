// Standard error, log messages and change notifications, in the order in which they came.
import { tryCommand } from "./api.js";
import { button, chip, clock, copyText, eraChip, filterField, h, labelled, memory, number, plain, select, show, visible } from "./dom.js";
import { VirtualList } from "./list.js";
import { store } from "./store.js";
import { ui, View } from "./view.js";

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

class LogsView extends View {
  get topics() { return ["logs"]; }

  build() {
    const changed = () => this.update();
    this.filter = filterField("lines", changed, "filter:logs");
    this.source = select([["", "Everything"], ["stderr", "Standard error"], ["log", "Log messages"], ["change", "Changes"]], "", changed, { "aria-label": "Source" });
    this.least = select([["", "All levels"], ...LEVELS.map((level) => [level, `${level} and above`])], "", changed, { "aria-label": "Least level" });
    this.count = h("span.muted.count", { role: "status" });
    this.rows = new VirtualList({
      label: "Log lines", rowHeight: 26, key: (line) => line, follow: true, empty: "Nothing was logged.",
      render: (line) => [h("span.w-time", clock(line.at)), line.era ? eraChip(line.era) : null,
        line.source === "log" ? chip(line.level, levelKind(line.level)) : chip(line.source === "stderr" ? "stderr" : "change", line.source === "change" ? "ask" : ""),
        line.logger ? h("span.muted", visible(line.logger, 60)) : null, h("span.log-text", h("bdi", visible(line.text, 400)))],
      onselect: (line) => show(this.whole, h("div.text-tools", button("Copy", () => copyText(line.text), "small copy")), h("pre.text", { tabindex: "0" }, plain(line.text).slice(0, 200_000))),
      onopen: () => this.whole.querySelector("pre")?.focus(),
    });
    this.whole = h("section.whole.text-box", { "aria-label": "Whole line" });
    this.className = "page column";
    this.append(h("h2.view-title", "Logs ", this.count),
      h("div.toolbar", this.filter, this.source, this.least,
        labelled("Level of the server", select([["", "–"], ...LEVELS.map((one) => [one, one])], "", (level) => { if (level) tryCommand({ do: "log_level", era: ui.era, level }, `The server logs from ${level} on.`); }))),
      this.rows.element, this.whole);
  }

  update() {
    memory.set("filter:logs", this.filter.value);
    const text = this.filter.value.toLowerCase();
    const least = LEVELS.indexOf(this.least.value);
    const keep = (line) => (!this.source.value || line.source === this.source.value) && (least < 0 || LEVELS.indexOf(line.level) >= least) && (!text || line.text.toLowerCase().includes(text));
    const shown = !text && least < 0 && !this.source.value ? store.logs : store.logs.filter(keep);
    this.rows.setItems(shown, store.logs.length ? "No line matches." : "Nothing was logged.");
    this.count.textContent = number(shown.length);
  }
}

const levelKind = (level) => (LEVELS.indexOf(level) >= 4 ? "bad" : level === "warning" ? "ask" : "");

customElements.define("hinge-logs", LogsView);
