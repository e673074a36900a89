// A list that draws only the rows in sight: a hundred thousand rows scroll like ten.
import { freshId, h } from "./dom.js";

const OVERSCAN = 8;

/**
 * A list box of rows of one height. `render(item, index)` makes a row's content, `key(item)` names the item,
 * `version(item)` changes when the row must be drawn again.
 */
export class VirtualList {
  #items = [];
  #rows = new Map();
  #drawing = false;
  #selected = null;
  #reveal = false;

  constructor({ label, rowHeight, render, key, version = () => 0, onselect, onopen, follow = false, empty = "Nothing here yet." }) {
    Object.assign(this, { rowHeight, render, key, version, onselect, onopen, follow, emptyText: empty });
    this.prefix = freshId("row");
    this.space = h("div.list-space", { role: "presentation" });
    this.empty = h("p.empty", empty);
    this.box = h("div.list-box", { role: "listbox", tabindex: "0", "aria-label": label }, this.space);
    this.element = h("div.list", this.box, this.empty);
    this.box.addEventListener("scroll", () => {
      this.atEnd = this.box.scrollTop + this.box.clientHeight >= this.box.scrollHeight - this.rowHeight;
      this.#schedule();
    }, { passive: true });
    this.box.addEventListener("keydown", (event) => this.#keys(event));
    this.space.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (!row) return;
      this.select(this.#items[Number(row.dataset.index)], false);
      this.onopen?.(this.selected);
    });
    this.atEnd = true;
    new ResizeObserver(() => this.#schedule()).observe(this.box);
  }

  get items() { return this.#items; }

  /** The selected item itself, if it is in the list. */
  get selected() { return this.#items.find((item) => this.key(item) === this.#selected) ?? null; }

  setItems(items, empty) {
    this.#items = items;
    if (empty !== undefined) this.empty.textContent = empty;
    this.refresh();
  }

  refresh() {
    this.box.hidden = this.#items.length === 0;
    this.empty.hidden = this.#items.length > 0;
    this.#schedule();
  }

  setSelected(key) {
    if (key !== this.#selected) this.#reveal = true;
    this.#selected = key;
    this.#schedule();
  }

  select(item, scroll = true) {
    if (!item) return;
    this.#selected = this.key(item);
    if (scroll) this.scrollTo(this.#items.indexOf(item));
    this.#schedule();
    this.onselect?.(item);
  }

  scrollTo(index) {
    const top = index * this.rowHeight;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + this.rowHeight > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + this.rowHeight - this.box.clientHeight;
  }

  #keys(event) {
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.rowHeight) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      const at = this.#items.findIndex((item) => this.key(item) === this.#selected);
      const to = at < 0 && steps[event.key] > 0 && steps[event.key] !== Infinity ? 0 : at + steps[event.key];
      this.select(this.#items[Math.max(0, Math.min(this.#items.length - 1, to))]);
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      if (this.selected) this.onopen?.(this.selected);
    }
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
    const height = this.box.clientHeight;
    if (height === 0) return;
    const count = this.#items.length;
    this.space.style.height = `${count * this.rowHeight}px`;
    if (this.#reveal && count) {
      this.#reveal = false;
      const at = this.#items.findIndex((item) => this.key(item) === this.#selected);
      if (at >= 0) this.scrollTo(at);
    }
    if (this.follow && this.atEnd) this.box.scrollTop = count * this.rowHeight;
    const top = this.box.scrollTop;
    const first = Math.max(0, Math.floor(top / this.rowHeight) - OVERSCAN);
    const last = Math.min(count, Math.ceil((top + height) / this.rowHeight) + OVERSCAN);
    const keep = new Map();
    let active = null;
    for (let index = first; index < last; index++) {
      const item = this.#items[index];
      const key = this.key(item);
      const version = this.version(item);
      let row = this.#rows.get(key);
      if (!row || row.version !== version || keep.has(key)) {
        if (row && !keep.has(key)) row.remove();
        row = h("div.row", { role: "option", id: freshId(this.prefix) }, this.render(item, index));
        row.version = version;
        row.style.height = `${this.rowHeight}px`;
        this.space.append(row);
      }
      if (row.dataset.index !== String(index)) {
        row.dataset.index = index;
        row.style.transform = `translateY(${index * this.rowHeight}px)`;
        row.setAttribute("aria-posinset", index + 1);
      }
      if (row.ariaSetSize !== String(count)) row.setAttribute("aria-setsize", count);
      const on = key === this.#selected;
      if (row.getAttribute("aria-selected") !== String(on)) row.setAttribute("aria-selected", on);
      if (on) active = row.id;
      keep.set(key, row);
    }
    for (const [key, row] of this.#rows) if (keep.get(key) !== row) row.remove();
    this.#rows = keep;
    if (active) this.box.setAttribute("aria-activedescendant", active); else this.box.removeAttribute("aria-activedescendant");
  }
}
