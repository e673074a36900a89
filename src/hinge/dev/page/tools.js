// Tools: a list with a filter, and for each tool its form, its calls and its definition.
import { Runner } from "./call.js";
import { chip, filterField, h, list, memory, name, number, plain, record, select, show, visible } from "./dom.js";
import { jsonView } from "./json.js";
import { VirtualList } from "./list.js";
import { store } from "./store.js";
import { go, hash, ui, View } from "./view.js";

/** A list on the left and one item on the right; what is selected stands in the address. */
export class ItemsView extends View {
  get topics() { return ["offers", "calls", "questions", "connection"]; }

  build() {
    this.filter = filterField(this.title.toLowerCase(), () => this.fillList(), `filter:${this.place}`);
    this.sort = select(this.orders, memory.get(`sort:${this.place}`, "listed"), () => this.fillList(), { "aria-label": "Order" });
    this.count = h("span.muted.count", { role: "status" });
    this.rows = new VirtualList({
      label: this.title, rowHeight: 52, key: (item) => this.keyOf(item), render: (item) => this.row(item), version: (item) => item,
      onselect: (item) => go(this.place, this.keyOf(item)), onopen: () => this.detail.focus(),
    });
    this.filter.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown") return;
      event.preventDefault();
      this.rows.box.focus();
    });
    this.detail = h("section.detail", { tabindex: "-1", "aria-label": this.one });
    this.className = "split";
    this.append(h("section.side", { "aria-label": `List of ${this.title.toLowerCase()}` },
      h("h2.view-title", this.title, " ", this.count), h("div.toolbar", this.filter, this.sort), this.rows.element), this.detail);
  }

  get orders() { return [["listed", "As listed"], ["name", "By name"], ["weight", "By weight"]]; }

  /** The items of the era, each with the name under which it is selected. */
  items() { return store.offers(ui.era, this.section); }

  keyOf(item) { return plain(item.name); }

  textOf(item) { return [item.name, item.title, item.description].map(plain).join(" "); }

  row(item) {
    return [h("div.row-main", h("div.row-name", name(item.name)), h("div.row-about", name(item.title ?? item.description ?? ""))),
      item.weight ? h("span.row-side", { title: "Tokens of its description, about" }, `${number(item.weight)} tok`) : null];
  }

  fillList() {
    const text = this.filter.value.toLowerCase();
    memory.set(`filter:${this.place}`, this.filter.value);
    memory.set(`sort:${this.place}`, this.sort.value);
    const all = this.items();
    let shown = text ? all.filter((item) => this.textOf(item).toLowerCase().includes(text)) : [...all];
    if (this.sort.value === "name") shown.sort((a, b) => (this.keyOf(a) < this.keyOf(b) ? -1 : 1));
    if (this.sort.value === "weight") shown.sort((a, b) => (b.weight ?? 0) - (a.weight ?? 0));
    const { connection, errors } = store.era(ui.era);
    const why = errors[this.section] ? `Listing failed: ${visible(errors[this.section])}`
      : connection.state !== "ready" ? `Not connected in ${ui.era}.` : all.length ? "Nothing matches the filter." : `The server has no ${this.title.toLowerCase()}.`;
    this.rows.setItems(shown, why);
    this.count.textContent = text ? `${number(shown.length)} of ${number(all.length)}` : number(all.length);
    const weight = all.reduce((sum, item) => sum + (Number(item.weight) || 0), 0);
    if (weight) this.count.textContent += ` · ${number(weight)} tokens`;
  }

  route([key, action, call]) {
    if (key === undefined) {
      this.classList.remove("chosen");
      if (this.key !== undefined && !matchMedia("(max-width: 700px)").matches) return history.replaceState(null, "", hash(this.place, this.key));
      const first = this.rows.items[0];
      if (this.key === undefined && first && !matchMedia("(max-width: 700px)").matches) {
        history.replaceState(null, "", hash(this.place, this.keyOf(first)));
        key = this.keyOf(first);
      } else return;
    }
    this.classList.add("chosen");
    this.key = key;
    this.rows.setSelected(key);
    this.drawDetail();
    if (action === "edit" && store.calls.has(call)) {
      this.runner?.edit(store.calls.get(call));
      history.replaceState(null, "", hash(this.place, key));
    }
  }

  update(dirty) {
    if (dirty.has("offers") || dirty.has("era") || dirty.has("connection")) {
      this.fillList();
      if (this.key === undefined) this.route([]); else this.drawDetail();
    }
    if (dirty.has("calls") || dirty.has("questions")) this.runner?.update();
  }

  drawDetail() {
    const item = this.items().find((one) => this.keyOf(one) === this.key) ?? this.unlisted?.(this.key);
    if (item && item === this.drawn && ui.era === this.drawnEra) return;
    const held = this.detail.contains(document.activeElement);
    this.drawn = item;
    this.drawnEra = ui.era;
    this.runner = null;
    const back = h("a.back", { href: hash(this.place) }, `← ${this.title}`);
    if (!item) return show(this.detail, back, h("p.empty", this.key === undefined ? `Choose one of the ${this.title.toLowerCase()}.` : ["There is no ", name(this.key), ` in ${ui.era}.`]));
    show(this.detail, back, this.detailOf(item));
    if (held) this.detail.focus();
  }

  /** What stands above an item. */
  head(item, chips) {
    const other = ui.era === "2026" ? "2025" : "2026";
    const alone = store.era(other).connection.state === "ready" && !store.offers(other, this.section).some((one) => this.keyOf(one) === this.keyOf(item));
    return [
      h("header.item-head", h("h2", name(this.keyOf(item))),
        h("div.chips", chips, alone ? chip(`only in ${ui.era}`, "ask") : null, item.weight ? chip(`about ${number(item.weight)} tokens`) : null)),
      item.title && item.title !== item.name ? h("p.item-title", name(item.title)) : null,
      item.description ? h("p.description", h("bdi", plain(item.description).slice(0, 20_000))) : null,
    ];
  }

  definition(item) {
    const { weight, ...wire } = item;
    return h("details.definition", { ontoggle: (event) => { if (event.target.open && !event.target.querySelector(".json")) event.target.append(jsonView(wire, { label: "Definition" })); } },
      h("summary", "Definition on the wire"));
  }
}

const HINTS = [["readOnlyHint", "read only", "good"], ["destructiveHint", "destructive", "bad"], ["idempotentHint", "idempotent", ""], ["openWorldHint", "open world", ""]];

/** The address of the page that a host shows for a tool, if there is one. */
export const pageOf = (tool) => {
  const meta = record(tool._meta);
  const uri = record(meta.ui).resourceUri ?? meta["ui/resourceUri"];
  return typeof uri === "string" ? uri : null;
};

class ToolsView extends ItemsView {
  get place() { return "tools"; }
  get section() { return "tools"; }
  get title() { return "Tools"; }
  get one() { return "Tool"; }

  detailOf(tool) {
    const marks = record(tool.annotations);
    const chips = HINTS.filter(([key]) => marks[key] === true).map(([, text, kind]) => chip(text, kind));
    const audience = list(record(record(tool._meta).ui).visibility);
    if (audience.length === 1) chips.push(chip(`for the ${visible(audience[0], 20)}`));
    const support = record(tool.execution).taskSupport;
    if (support && support !== "forbidden") chips.push(chip(`task ${visible(support, 20)}`));
    this.runner = new Runner({
      key: `tool:${this.keyOf(tool)}`, method: "tools/call", schema: record(tool.inputSchema), runText: `Run in ${ui.era}`,
      params: (value) => ({ name: tool.name, arguments: value }), subject: (params) => params.name === tool.name,
    });
    return [this.head(tool, chips), this.runner.element,
      pageOf(tool) ? h("p", h("a.button", { href: hash("apps", tool.name) }, "Open its app")) : null, this.definition(tool)];
  }
}

customElements.define("hinge-tools", ToolsView);
