// A list that draws only the rows in sight.
import { fill, freshId, h } from "./dom.js";

const OVERSCAN = 8;

/** A row of two lines. */
export const rowTexts = (title, about) => h("div.row-main", h("div.row-name", title), h("div.row-about", about));

/**
 * A list box of rows of one height. `render(item)` makes a row's content, `key(item)` names the item,
 * `version(item)` changes when the row must be drawn again. A list that follows stays at its end.
 */
export class VirtualList {
  #items = [];
  #rows = new Map();
  #drawing = false;
  #selected = null;
  #reveal = false;
  #atEnd = true;
  #end = 0; // its scroll position at the end when it was drawn: the box may be smaller now

  constructor({ label, rowHeight, render, key, version = () => 0, onselect, onopen, follow = false }) {
    Object.assign(this, { rowHeight, render, key, version, onselect, onopen, follow });
    this.space = h("div.list-space", { role: "presentation", onclick: (event) => this.#click(event) });
    this.empty = h("p.empty");
    const listeners = { onscroll: () => this.#scrolled(), onkeydown: (event) => this.#keys(event) };
    this.box = h("div.list-box", { role: "listbox", tabindex: "0", "aria-label": label, ...listeners }, this.space);
    this.element = h("div.list", this.box, this.empty);
    new ResizeObserver(() => this.#schedule()).observe(this.box);
  }

  get items() { return this.#items; }

  get #at() { return this.#items.findIndex((item) => this.key(item) === this.#selected); }

  setItems(items, empty) {
    this.#items = items;
    this.empty.textContent = empty;
    this.box.hidden = items.length === 0;
    this.empty.hidden = items.length > 0;
    this.#schedule();
  }

  setSelected(key) {
    this.#reveal ||= key !== this.#selected;
    this.#selected = key;
    this.#schedule();
  }

  #select(index) {
    this.setSelected(this.key(this.#items[index]));
    this.onselect?.(this.#items[index]);
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.box;
    this.#atEnd = scrollTop >= Math.min(this.#end, scrollHeight - clientHeight) - this.rowHeight;
    this.#schedule();
  }

  #click(event) {
    const row = event.target.closest(".row");
    if (!row) return;
    this.#select(Number(row.dataset.index));
    this.onopen?.();
  }

  #keys(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.rowHeight) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (step && !event.ctrlKey && !event.metaKey && !event.altKey) this.#select(Math.max(0, Math.min(this.#items.length - 1, this.#at + step)));
    else if (event.key === "Enter" || event.key === " ") {
      if (this.#at < 0) this.#select(0);
      this.onopen?.();
    }
    else return;
    event.preventDefault();
  }

  #schedule() {
    if (this.#drawing) return;
    this.#drawing = true;
    requestAnimationFrame(() => {
      this.#drawing = false;
      this.#draw();
    });
  }

  #draw() {
    const { box, rowHeight } = this;
    const height = box.clientHeight;
    const count = this.#items.length;
    if (height === 0) return;
    this.space.style.height = `${count * rowHeight}px`;
    this.#end = count * rowHeight - height;
    if (this.follow && this.#atEnd) box.scrollTop = count * rowHeight;
    const at = this.#reveal ? this.#at : -1;
    if (at >= 0) box.scrollTop = Math.max((at + 1) * rowHeight - height, Math.min(at * rowHeight, box.scrollTop));
    this.#reveal = false;
    const first = Math.max(0, Math.floor(box.scrollTop / rowHeight) - OVERSCAN);
    const last = Math.ceil((box.scrollTop + height) / rowHeight) + OVERSCAN;
    const before = this.#rows;
    this.#rows = new Map();
    box.removeAttribute("aria-activedescendant");
    this.#items.slice(first, last).forEach((item, offset) => {
      const [key, version, index] = [this.key(item), this.version(item), first + offset];
      let row = before.get(key);
      if (row?.version !== version) {
        row = h("div.row", { role: "option", id: freshId() }, this.render(item));
        row.version = version;
        this.space.append(row);
      } else before.delete(key);
      fill(row, { "data-index": index, "aria-posinset": index + 1, "aria-setsize": count, "aria-selected": key === this.#selected });
      row.style.height = `${rowHeight}px`;
      row.style.transform = `translateY(${index * rowHeight}px)`;
      if (key === this.#selected) box.setAttribute("aria-activedescendant", row.id);
      this.#rows.set(this.#rows.has(key) ? row.id : key, row); // names may be there twice
    });
    for (const row of before.values()) row.remove();
  }
}
