// What all views share: when they draw, their frame, the era that is looked at, and addresses in the page.
import { h, memory, plain, put, show } from "./dom.js";
import { VirtualList } from "./list.js";
import { store } from "./store.js";

export const ui = {
  era: memory.get("era", "2026"),

  setEra(era) {
    this.era = era;
    memory.set("era", era);
    store.changed("era");
  },
};

export const hash = (...parts) => `#/${parts.map((part) => encodeURIComponent(plain(part))).join("/")}`;

export function go(...parts) {
  location.hash = hash(...parts);
}

/** Change the address without a new entry in the history of the browser. */
export const rename = (...parts) => history.replaceState(null, "", hash(...parts));

export const titleOf = (key) => key[0].toUpperCase() + key.slice(1);

/** "light" or "dark", as chosen in the page or else in the system. */
export const getLook = () => document.documentElement.style.colorScheme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");

export const isNarrow = () => matchMedia("(max-width: 800px)").matches;

/** A view is built when it is first shown, and draws only while it is shown. */
export class View extends HTMLElement {
  #stale = null;

  /** The name of the view in addresses: of `gemel-tools` it is "tools". */
  get view() { return this.localName.slice(6); }

  get heading() { return titleOf(this.view); }

  route() {}

  enter(parts) {
    this.hidden = false;
    if (this.#stale === null) {
      this.build();
      this.#stale = new Set([...this.topics, "era"]);
      store.watch([...this.#stale], (dirty) => {
        if (this.hidden) for (const topic of dirty) this.#stale.add(topic); else this.update(dirty);
      });
    }
    if (this.#stale.size) this.update(this.#stale);
    this.#stale = new Set();
    this.route(parts);
  }

  leave() {
    this.hidden = true;
  }

  head(...controls) {
    this.count = h("span.minor", { role: "status" });
    return [h("h2.view-title", this.heading, " ", this.count), h("div.toolbar", controls)];
  }

  page(lead, controls, ...content) {
    this.className = "page";
    const [title, toolbar] = this.head(...controls);
    put(this, title, h("p.muted", lead), toolbar, content);
  }

  /** Lay the view out as a list and one item of it. */
  split({ label, one, controls, ...list }) {
    this.className = "split";
    this.rows = new VirtualList({ label, onopen: () => this.detail.focus(), ...list });
    this.detail = h("section.detail", { tabindex: "-1", "aria-label": one });
    this.append(h("section.side", this.head(...controls), this.rows.element), this.detail);
    this.detail.append(h("p.empty", `Choose one of the ${label.toLowerCase()}.`));
  }

  showDetail(...content) {
    show(this.detail, h("a.back", { href: hash(this.view) }, `← ${this.heading}`), content);
  }
}
