// Standard error, log messages and changes, as they come.
import { chip, clock, eraChip, filterField, h, labelled, name, number, select, show, visible } from "./dom.js";
import { tryCommand } from "./inspector.js";
import { VirtualList } from "./list.js";
import { textView } from "./result.js";
import { store } from "./store.js";
import { ui, View } from "./view.js";

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
const SOURCES = [["", "Everything"], ["stderr", "Standard error"], ["log", "Log messages"], ["change", "Changes"], ["not JSON", "Not JSON"]];

export default class LogsView extends View {
  topics = ["logs"];

  build() {
    const changed = () => this.update();
    this.filter = filterField("lines", changed);
    this.source = select("Source", SOURCES, changed);
    this.least = select("Least level", [["", "All levels"], ...LEVELS.map((level) => [level, `${level} and above`])], changed);
    const level = select("Level of the server", [["", "–"], ...LEVELS], () => {
      if (level.value) tryCommand({ do: "log_level", era: ui.era, level: level.value }, `The server logs from ${level.value} on.`);
    });
    this.whole = h("section.whole", { "aria-label": "Whole line" });
    this.rows = new VirtualList({
      label: "Log lines", rowHeight: 26, key: (line) => line, follow: true, render: logRow,
      onselect: ({ text }) => show(this.whole, textView(text)),
      onopen: () => this.whole.querySelector("pre")?.focus(),
    });
    this.page(null, [this.filter, this.source, this.least, labelled("Level of the server", level)], this.rows.element, this.whole);
    this.classList.add("column");
  }

  update() {
    const source = this.source.value;
    const least = LEVELS.indexOf(this.least.value);
    const shown = store.logs.filter((line) => (!source || line.source === source) && LEVELS.indexOf(line.level) >= least && this.filter.accepts(line.text));
    this.rows.setItems(shown, store.logs.length ? "No line matches." : "Nothing was logged.");
    this.count.textContent = number(shown.length);
  }
}

function logRow({ at, era, source, level, logger, text }) {
  const kind = LEVELS.indexOf(level) >= 4 ? "bad" : level === "warning" || source === "change" ? "ask" : "";
  return [h("span.w-time", clock(at)), eraChip(era), chip(source === "log" ? level : source, kind),
    h("span.muted", visible(logger, 60)), h("span.log-text", name(text, 400))];
}
