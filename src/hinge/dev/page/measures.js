// Latencies of each tool, memory, and spans as a waterfall.
import { bytes, chip, duration, h, list, name, number, record, select, show, svg, table, visible } from "./dom.js";
import { jsonView } from "./json.js";
import { store } from "./store.js";
import { hash, View } from "./view.js";

const WIDTH = 160;
const HEIGHT = 34;

const bound = (upper) => (upper === null ? "above" : `up to ${duration(upper)}`);

/** Bars of a histogram of [upper bound in ms, count] pairs. */
function histogram(pairs) {
  const bars = list(pairs).filter((pair) => Array.isArray(pair) && Number.isFinite(pair[1])).slice(0, 60);
  if (!bars.length) return null;
  const most = Math.max(1, ...bars.map(([, count]) => count));
  const wide = WIDTH / bars.length;
  const about = bars.filter(([, count]) => count).map(([upper, count]) => `${count} ${bound(upper)}`).join(", ");
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "histogram", role: "img", "aria-label": `Latencies: ${about}` }, bars.map(([upper, count], index) => {
    const high = count ? Math.max(2, (count / most) * (HEIGHT - 2)) : 0.5;
    return svg("rect", { x: index * wide + 0.5, y: HEIGHT - high, width: Math.max(1, wide - 1), height: high }, svg("title", {}, `${count} ${bound(upper)}`));
  }));
}

/** A line of values over time. */
function line(values, format, label) {
  const known = values.filter((value) => typeof value === "number");
  if (known.length < 1) return h("p.note", `No ${label.toLowerCase()} known for this target.`);
  const most = Math.max(...known);
  const least = Math.min(...known);
  const points = known.map((value, index) => `${((index / Math.max(1, known.length - 1)) * 300).toFixed(1)},${(58 - ((value - least) / (most - least || 1)) * 52).toFixed(1)}`);
  return h("figure.line-chart", h("figcaption", h("span", label), h("strong", format(known.at(-1))), h("span.muted", `from ${format(least)} to ${format(most)}`)),
    svg("svg", { viewBox: "0 0 300 60", preserveAspectRatio: "none", role: "img", "aria-label": `${label}: now ${format(known.at(-1))}` }, svg("polyline", { points: points.length > 1 ? points.join(" ") : `0,30 300,30` })));
}

class MeasuresView extends View {
  get topics() { return ["measures", "spans"]; }

  build() {
    this.className = "page";
    this.tools = h("div");
    this.process = h("div.charts");
    this.trace = select([], undefined, () => this.drawTrace(), { "aria-label": "Trace" });
    this.waterfall = h("div");
    this.append(h("h2.view-title", "Measures"), h("h2", "Latency"), this.tools, h("h2", "Process of the server"), this.process,
      h("h2", "Spans"), h("div.toolbar", this.trace), this.waterfall);
  }

  update(dirty) {
    if (dirty.has("measures") || dirty.has("era")) this.drawTools();
    if (dirty.has("spans") || dirty.has("era")) this.drawSpans();
  }

  drawTools() {
    const tools = Object.entries(record(store.measures.tools)).slice(0, 500);
    const heads = ["Calls", "Errors", "p50", "p95", "Max"].map((text) => h("th.number", { scope: "col" }, text));
    show(this.tools, tools.length ? table("Latency of each tool", ["Tool", ...heads, "Histogram"], tools.map(([tool, one]) => [
      h("th", { scope: "row" }, h("a", { href: hash("tools", tool) }, name(tool))), h("td.number", number(one.count)), h("td", { class: `number ${one.errors ? "bad-text" : ""}` }, number(one.errors)),
      ["p50", "p95", "max"].map((key) => h("td.number", duration(one[key]))), h("td", histogram(one.histogram))]), "measures") : h("p.empty", "Call a tool to see how long it takes."));
    const { samples } = store.measures;
    show(this.process, line(samples.map((one) => one.memory), bytes, "Memory"), line(samples.map((one) => one.cpu), (value) => `${value.toFixed(1)} %`, "CPU"));
  }

  drawSpans() {
    const traces = new Map();
    for (const span of store.spans) {
      if (!traces.has(span.trace)) traces.set(span.trace, []);
      traces.get(span.trace).push(span);
    }
    this.traces = traces;
    const before = this.trace.value;
    const last = [...traces.keys()].slice(-100).reverse();
    const followed = !before || before === this.newest;
    this.newest = last[0];
    show(this.trace, last.map((key) => {
      const spans = traces.get(key);
      const root = spans.find((span) => !span.parent || !spans.some((one) => one.span === span.parent)) ?? spans[0];
      return h("option", { value: key }, visible(`${new Date(root.start).toLocaleTimeString("en-GB")}  ${root.name}  ${duration(root.ms)}`, 100));
    }));
    this.trace.hidden = last.length === 0;
    if (!followed && traces.has(before)) this.trace.value = before;
    this.drawTrace();
  }

  drawTrace() {
    const spans = [...(this.traces.get(this.trace.value) ?? [])].slice(0, 300).sort((a, b) => a.start - b.start);
    if (!spans.length) return show(this.waterfall, h("p.empty", "Call something to see where its time goes."));
    const start = Math.min(...spans.map((span) => span.start));
    const whole = Math.max(0.001, ...spans.map((span) => span.start + span.ms - start));
    const depth = (span, hops = 0) => {
      const parent = hops < 20 && span.parent && spans.find((one) => one.span === span.parent);
      return parent ? 1 + depth(parent, hops + 1) : 0;
    };
    show(this.waterfall, h("ol.waterfall", spans.map((span) => {
      const bar = h("span", { class: `bar ${span.side === "server" ? "server" : ""} ${span.status === "error" ? "bad" : ""}` });
      bar.style.left = `${((span.start - start) / whole) * 100}%`;
      bar.style.width = `${Math.max(0.4, (span.ms / whole) * 100)}%`;
      const title = h("span.span-name", name(span.name));
      title.style.paddingLeft = `${depth(span) * 14}px`;
      const details = h("details", { ontoggle: () => { if (details.open && details.children.length === 1) details.append(jsonView(record(span.attributes), { label: "Attributes" })); } },
        h("summary", title, h("span.track", bar), h("span.span-time", duration(span.ms))));
      return h("li", details);
    })), h("p.note", `${spans.length} spans, ${duration(whole)} in all `, chip("of the server", "good"), " ", chip("error", "bad")));
  }
}

customElements.define("hinge-measures", MeasuresView);
