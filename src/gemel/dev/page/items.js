// What the views of tools, resources and prompts share: a list with a filter, and the form, calls and definition of an item.
import { chip, details, filterField, h, name, number, plain, prose, select, stringify, visible } from "./dom.js";
import { rowTexts } from "./list.js";
import { jsonView } from "./result.js";
import { store } from "./store.js";
import { go, isNarrow, rename, ui, View } from "./view.js";

const ORDERS = [["listed", "As listed"], ["name", "By name"], ["weight", "By weight"]];

export class ItemsView extends View {
  topics = ["offers", "calls", "questions", "connection", "logs", "spans"];

  build() {
    this.filter = filterField(this.view, () => this.fillList());
    this.order = select("Order", ORDERS, () => this.fillList(), `order:${this.view}`);
    this.split({
      label: this.heading, one: this.heading.slice(0, -1), controls: [this.filter, this.order],
      rowHeight: 52, key: (item) => this.keyOf(item), render: (item) => this.row(item), version: (item) => item,
      onselect: (item) => go(this.view, this.keyOf(item)),
    });
    this.filter.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown") return;
      event.preventDefault();
      this.rows.box.focus();
    });
  }

  items(era = ui.era) { return store.offers(era, this.view); }

  keyOf(item) { return plain(item.name); }

  row(item) {
    return [rowTexts(name(item.name), name(item.title ?? item.description)),
      item.weight > 0 && h("span.row-side", { title: "Tokens of its description, about" }, `${number(item.weight)} tok`)];
  }

  fillList() {
    const all = this.items();
    const textOf = (item) => [this.keyOf(item), item.name, item.title, item.description].map(plain).join(" ");
    const shown = all.filter((item) => this.filter.accepts(textOf(item)));
    if (this.order.value === "name") shown.sort((a, b) => (this.keyOf(a) < this.keyOf(b) ? -1 : 1));
    if (this.order.value === "weight") shown.sort((a, b) => (b.weight ?? 0) - (a.weight ?? 0));
    const { connection, errors } = store.eras[ui.era];
    let empty = all.length ? "Nothing matches the filter." : `The server has no ${this.view}.`;
    if (connection.state !== "ready") empty = `${connection.state === "connecting" ? "Connecting" : "Not connected"} in ${ui.era}.`;
    if (errors[this.view]) empty = `Listing failed: ${visible(errors[this.view])}`;
    this.rows.setItems(shown, empty);
    const weight = all.reduce((sum, item) => sum + (Number(item.weight) || 0), 0);
    const count = this.filter.value ? `${number(shown.length)} of ${number(all.length)}` : number(all.length);
    this.count.textContent = count + (weight ? ` · ${number(weight)} tokens` : "");
  }

  route([key, action, call]) {
    this.classList.toggle("chosen", key !== undefined);
    if (key === undefined) {
      const [first] = this.rows.items;
      key = this.key ?? (first && this.keyOf(first));
      if (key === undefined || isNarrow()) return;
      rename(this.view, key);
      this.classList.add("chosen");
    }
    this.key = key;
    this.rows.setSelected(key);
    this.drawDetail();
    if (action === "edit" && store.calls.has(call)) {
      this.runner?.edit(store.calls.get(call));
      rename(this.view, key);
    }
  }

  update(dirty) {
    if (["offers", "era", "connection"].some((topic) => dirty.has(topic))) {
      this.fillList();
      if (this.key === undefined) this.route([]); else this.drawDetail();
    }
    this.runner?.update();
  }

  drawDetail() {
    const item = this.items().find((one) => this.keyOf(one) === this.key) ?? this.unlisted?.(this.key);
    const drawn = ui.era + stringify(item);
    if (item && drawn === this.drawn) return; // listed again as it was: what is typed keeps the focus
    const isFocused = this.detail.contains(document.activeElement);
    this.drawn = drawn;
    this.runner = null;
    if (!item) return this.showDetail(h("p.empty", "There is no ", name(this.key), ` in ${ui.era}.`));
    this.showDetail(this.detailOf(item));
    if (isFocused) this.detail.focus();
  }

  itemHead(item, title, chips) {
    const other = ui.era === "2026" ? "2025" : "2026";
    const isAlone = this.items().includes(item) && store.eras[other].connection.state === "ready"
      && !this.items(other).some((one) => this.keyOf(one) === this.keyOf(item));
    return [
      h("header.item-head", h("h2", name(title)),
        h("div.chips", chips, isAlone && chip(`only in ${ui.era}`, "ask"), item.weight > 0 && chip(`about ${number(item.weight)} tokens`))),
      item.title !== title && h("h3", name(item.title)),
      prose(item.description),
    ];
  }

  definition({ weight, ...wire }) {
    return details("Definition on the wire", () => jsonView(wire, "Definition"), "rest");
  }
}
