// What has happened: all calls, log lines, latencies and spans.
import { jsonView, textView } from "./result.js";
import { tryCommand } from "./inspector.js";
import { CallPanel, stateChip } from "./call.js";
import { bytes, chip, clock, code, details, duration, eraChip, filterField, h, labelled, list, name, number, record, rowHead, select, setOptions, show, stringify, svg, table, visible } from "./dom.js";
import { VirtualList } from "./list.js";
import { argumentsOf, store, subject } from "./store.js";
import { go, hash, ui, View } from "./view.js";



const STATES = [["", "All states"], ["running", "Running"], ["waiting", "Waiting"], ["done", "Done"], ["failed", "Failed"], ["cancelled", "Cancelled"]];

class HistoryView extends View {
  heading = "History";
  topics = ["calls", "questions"];

  build() {
    this.filter = filterField("calls", () => this.fill());
    this.state = select("State", STATES, () => this.fill());
    this.split({
      label: "Calls", one: "Chosen call", controls: [this.filter, this.state],
      rowHeight: 52, key: (call) => call.call, version: (call) => call.version, onselect: (call) => go("history", call.call),
      render: (call) => [h("div.row-main", h("div.row-name", name(subject(call))), h("div.row-about", argumentsOf(call))),
        h("div.row-side", h("p", stateChip(call), eraChip(call.era)), h("p", `${clock(call.at).slice(0, 8)}  ${duration(call.ms)}`))],
    });
    this.panel = new CallPanel({ onagain: (call) => go("history", call) });
    this.params = h("div");
  }

  fill() {
    const text = this.filter.value.toLowerCase();
    const all = [...store.calls.values()].filter((call) => call.method !== "completion/complete").reverse();
    const shown = all.filter((call) => (!this.state.value || call.state === this.state.value) && `${subject(call)} ${call.method} ${stringify(call.params, 0)}`.toLowerCase().includes(text));
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

  update() {
    this.fill();
    if (store.calls.has(this.missing)) this.route([this.missing]);
    this.panel.update();
  }
}

customElements.define("hinge-history", HistoryView);

const LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];
const SOURCES = [["", "Everything"], ["stderr", "Standard error"], ["log", "Log messages"], ["change", "Changes"]];

class LogsView extends View {
  heading = "Logs";
  topics = ["logs"];

  build() {
    const changed = () => this.update();
    this.filter = filterField("lines", changed);
    this.source = select("Source", SOURCES, changed);
    this.least = select("Least level", [["", "All levels"], ...LEVELS.map((level) => [level, `${level} and above`])], changed);
    const level = select("Level of the server", [["", "–"], ...LEVELS.map((one) => [one, one])], () => {
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
    const text = this.filter.value.toLowerCase();
    const source = this.source.value;
    const least = LEVELS.indexOf(this.least.value);
    const shown = store.logs.filter((line) => (!source || line.source === source) && LEVELS.indexOf(line.level) >= least && line.text.toLowerCase().includes(text));
    this.rows.setItems(shown, store.logs.length ? "No line matches." : "Nothing was logged.");
    this.count.textContent = number(shown.length);
  }
}

function logRow({ at, era, source, level, logger, text }) {
  const kind = LEVELS.indexOf(level) >= 4 ? "bad" : level === "warning" || source === "change" ? "ask" : "";
  return [h("span.w-time", clock(at)), eraChip(era), chip(source === "log" ? level : source, kind),
    h("span.muted", visible(logger, 60)), h("span.log-text", name(text, 400))];
}

customElements.define("hinge-logs", LogsView);

const WIDTH = 160;
const HEIGHT = 34;
const COLUMNS = ["Calls", "Errors", "p50", "p95", "Max"];

const picture = (label, props, ...children) => svg("svg", { role: "img", "aria-label": label, ...props }, ...children);

function histogram(pairs) {
  const most = Math.max(1, ...pairs.map(([, count]) => count));
  const wide = WIDTH / pairs.length;
  const texts = pairs.map(([upper, count]) => `${count} ${upper === null ? "above" : `up to ${duration(upper)}`}`);
  const bars = pairs.map(([, count], index) => {
    const high = count ? Math.max(2, (count / most) * (HEIGHT - 2)) : 0.5;
    return svg("rect", { x: index * wide + 0.5, y: HEIGHT - high, width: Math.max(1, wide - 1), height: high }, svg("title", {}, texts[index]));
  });
  return picture(`Latencies: ${texts.filter((_, index) => pairs[index][1]).join(", ")}`, { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "histogram" }, bars);
}

function line(label, values, format) {
  const known = values.filter(Number.isFinite);
  if (!known.length) return h("p.muted", `No ${label} known for this target.`);
  const [most, least, last] = [Math.max(...known), Math.min(...known), format(known.at(-1))];
  const points = [known[0], ...known].map((value, index) => `${(index / known.length) * 300},${58 - ((value - least) / (most - least || 1)) * 52}`);
  return h("figure.card", h("figcaption", `${label} `, h("strong", last), h("span.muted", ` from ${format(least)} to ${format(most)}`)),
    picture(`${label}: now ${last}`, { viewBox: "0 0 300 60", preserveAspectRatio: "none" }, svg("polyline", { points: points.join(" ") })));
}

class MeasuresView extends View {
  heading = "Measures";
  topics = ["measures", "spans"];

  build() {
    this.tools = h("div");
    this.process = h("div.cards.columns");
    this.trace = select("Trace", [], () => this.drawTrace());
    this.waterfall = h("div");
    this.page(null, [], h("h2", "Latency"), this.tools, h("h2", "Process of the server"), this.process, h("h2", "Spans"), h("div.toolbar", this.trace), this.waterfall);
  }

  update(dirty) {
    if (dirty.has("spans")) this.drawSpans();
    if (!dirty.has("measures")) return;
    const { tools, samples } = store.measures;
    const heads = ["Tool", ...COLUMNS.map((text) => h("th.number", { scope: "col" }, text)), "Histogram"];
    const rows = Object.entries(tools).slice(0, 500).map(([tool, { count, errors, p50, p95, max, histogram: pairs }]) => [
      rowHead(h("a", { href: hash("tools", tool) }, name(tool))), h("td.number", number(count)), h(errors ? "td.number.bad-text" : "td.number", number(errors)),
      [p50, p95, max].map((one) => h("td.number", duration(one))), h("td", histogram(list(pairs)))]);
    show(this.tools, rows.length ? table("Latency of each tool", heads, rows) : h("p.empty", "Call a tool to see how long it takes."));
    show(this.process, line("Memory", samples.map((one) => one.memory), bytes), line("CPU", samples.map((one) => one.cpu), (value) => `${value.toFixed(1)} %`));
  }

  drawSpans() {
    this.traces = Map.groupBy(store.spans, (span) => span.trace);
    const isFollowing = !this.trace.value || this.trace.value === this.newest;
    const pairs = [...this.traces].slice(-100).reverse().map(([key, spans]) => {
      const root = spans.find((span) => !parentOf(span, spans)) ?? spans[0];
      return [key, `${clock(root.start).slice(0, 8)}  ${root.name}  ${duration(root.ms)}`];
    });
    this.newest = pairs[0]?.[0];
    setOptions(this.trace, pairs, isFollowing ? this.newest : this.trace.value);
    this.trace.hidden = pairs.length === 0;
    this.drawTrace();
  }

  drawTrace() {
    const spans = (this.traces.get(this.trace.value) ?? []).slice(0, 300).sort((a, b) => a.start - b.start);
    if (!spans.length) return show(this.waterfall, h("p.empty", "Call something to see where its time goes."));
    const start = spans[0].start;
    const whole = Math.max(0.001, ...spans.map((span) => span.start + span.ms - start));
    const row = (span) => {
      const bar = h("span", { class: `bar ${span.side} ${span.status}` });
      bar.style.left = `${((span.start - start) / whole) * 100}%`;
      bar.style.width = `${Math.max(0.4, (span.ms / whole) * 100)}%`;
      const title = h("span.span-name", name(span.name));
      title.style.paddingLeft = `${depthOf(span, spans) * 14}px`;
      return h("li", details([title, h("span.track", bar), h("span.row-side", duration(span.ms))], () => jsonView(record(span.attributes), "Attributes")));
    };
    show(this.waterfall, h("ol.waterfall.card", spans.map(row)), h("p.muted", `${spans.length} spans, ${duration(whole)} in all `, chip("of the server", "good"), " ", chip("error", "bad")));
  }
}

const parentOf = (span, spans) => span.parent && spans.find((one) => one.span === span.parent);

function depthOf(span, spans) {
  let depth = 0;
  for (let parent = parentOf(span, spans); parent && depth < 20; parent = parentOf(parent, spans)) depth++;
  return depth;
}

customElements.define("hinge-measures", MeasuresView);
