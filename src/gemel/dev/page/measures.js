// Latency of each tool, memory and processor time of the server, spans of a call.
import { bytes, chip, clock, details, duration, h, list, name, number, record, rowHead, select, setOptions, show, svg, table } from "./dom.js";
import { jsonView } from "./result.js";
import { store } from "./store.js";
import { hash, View } from "./view.js";

const WIDTH = 160;
const HEIGHT = 34;

const picture = (label, props, ...children) => svg("svg", { role: "img", "aria-label": label, ...props }, ...children);

function histogram(pairs) {
  const most = Math.max(1, ...pairs.map(([, count]) => count));
  const wide = WIDTH / pairs.length;
  const texts = pairs.map(([upper, count]) => `${count} ${upper === null ? "above" : `up to ${duration(upper)}`}`);
  const bars = pairs.map(([, count], index) => {
    const high = count ? Math.max(2, (count / most) * (HEIGHT - 2)) : 0.5;
    const box = { x: index * wide + 0.5, y: HEIGHT - high, width: Math.max(1, wide - 1), height: high };
    return svg("rect", box, svg("title", {}, texts[index]));
  });
  const label = `Latencies: ${texts.filter((_, index) => pairs[index][1]).join(", ")}`;
  return picture(label, { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "histogram" }, bars);
}

function line(label, values, format) {
  const known = values.filter(Number.isFinite);
  if (!known.length) return h("p.muted", `${label} is not known for this target.`);
  const [most, least, last] = [Math.max(...known), Math.min(...known), format(known.at(-1))];
  const points = [known[0], ...known].map((value, index) => `${(index / known.length) * 300},${58 - ((value - least) / (most - least || 1)) * 52}`);
  return h("figure.card", h("figcaption", `${label} `, h("strong", last), h("span.muted", ` from ${format(least)} to ${format(most)}`)),
    picture(`${label}: now ${last}`, { viewBox: "0 0 300 60", preserveAspectRatio: "none" }, svg("polyline", { points: points.join(" ") })));
}

export default class MeasuresView extends View {
  topics = ["measures", "spans"];

  build() {
    this.tools = h("div");
    this.process = h("div.cards.columns");
    this.trace = select("Trace", [], () => this.drawTrace());
    this.waterfall = h("div");
    this.page(null, [],
      h("h2", "Latency"), this.tools,
      h("h2", "Process of the server"), this.process,
      h("h2", "Spans"), h("div.toolbar", this.trace), this.waterfall);
  }

  update(dirty) {
    if (dirty.has("spans")) this.drawSpans();
    if (!dirty.has("measures")) return;
    const { tools, samples } = store.measures;
    const heads = ["Tool", ...["Calls", "Errors", "p50", "p95", "Max"].map((text) => h("th.number", { scope: "col" }, text)), "Histogram"];
    const rows = Object.entries(tools).slice(0, 500).map(([tool, { count, errors, p50, p95, max, histogram: pairs }]) => [
      rowHead(h("a", { href: hash("tools", tool) }, name(tool))),
      h("td.number", number(count)), h(errors ? "td.number.bad" : "td.number", number(errors)),
      [p50, p95, max].map((one) => h("td.number", duration(one))), h("td", histogram(list(pairs)))]);
    show(this.tools, rows.length ? table("Latency of each tool", heads, rows) : h("p.empty", "Call a tool to see how long it takes."));
    show(this.process,
      line("Memory", samples.map((one) => one.memory), bytes),
      line("CPU", samples.map((one) => one.cpu), (value) => `${value.toFixed(1)} %`));
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
      const line = [title, h("span.track", bar), h("span.row-side", duration(span.ms))];
      return h("li", details(line, () => jsonView(record(span.attributes), "Attributes")));
    };
    const sides = [chip("client", "busy"), " ", chip("server", "good"), " ", chip("error", "bad")];
    show(this.waterfall, h("ol.waterfall.card", spans.map(row)), h("p.muted", `Spans: ${spans.length}, ${duration(whole)} in all `, sides));
  }
}

const parentOf = (span, spans) => span.parent && spans.find((one) => one.span === span.parent);

function depthOf(span, spans) {
  let depth = 0;
  for (let parent = parentOf(span, spans); parent && depth < 20; parent = parentOf(parent, spans)) depth++;
  return depth;
}
