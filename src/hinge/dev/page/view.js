// What all views share: when they draw, the era that is looked at, and addresses in the page.
import { memory, plain } from "./dom.js";
import { ERAS, store } from "./store.js";

export const ui = {
  era: memory.get("era", "2026"),

  /** Look at this era from now on. */
  setEra(era) {
    this.era = ERAS.includes(era) ? era : "2026";
    memory.set("era", this.era);
    store.changed("era");
  },
};

/** The address in this page of these parts. */
export const hash = (...parts) => `#/${parts.map((part) => encodeURIComponent(plain(part))).join("/")}`;

export function go(...parts) {
  location.hash = hash(...parts);
}

/** A view is built when it is first shown, and draws only while it is shown. */
export class View extends HTMLElement {
  #shown = false;
  #stale = new Set();
  #built = false;

  /** The topics of the store that it draws. */
  get topics() { return []; }

  build() {}

  route() {}

  update() {}

  enter(parts) {
    this.#shown = true;
    this.hidden = false;
    if (!this.#built) {
      this.#built = true;
      this.build();
      store.watch([...this.topics, "era"], (dirty) => {
        if (this.#shown) this.update(dirty); else for (const topic of dirty) this.#stale.add(topic);
      });
      this.update(new Set([...this.topics, "era"]));
    } else if (this.#stale.size) {
      this.update(this.#stale);
    }
    this.#stale = new Set();
    this.route(parts);
  }

  leave() {
    this.#shown = false;
    this.hidden = true;
  }
}
