// What each saved edit changes for clients, and whether it breaks them.
import { chip, clock, h, list, name, plain, record, show, visible } from "./dom.js";
import { store } from "./store.js";
import { View } from "./view.js";

const KINDS = { breaking: "bad", "may break": "ask" };

class ContractView extends View {
  get topics() { return ["contract", "restarts"]; }

  build() {
    this.className = "page";
    this.body = h("div");
    this.append(h("h2.view-title", "Contract"), h("p.lead", "After each saved edit: what differs for clients from before, and from the lock file beside the server if there is one."), this.body);
  }

  update() {
    const events = [...store.contracts.map((one) => ["contract", one]), ...store.restarts.map((one) => ["restart", one])].sort((a, b) => b[1].n - a[1].n);
    if (!events.length) return show(this.body, h("p.empty", "Save a change of the server to see what it changes for clients."));
    show(this.body, h("ol.timeline", events.slice(0, 100).map(([kind, event]) => h("li", kind === "contract" ? this.contract(event) : this.restart(event)))));
  }

  contract(event) {
    const lock = event.lock ? record(event.lock) : null;
    return [this.compared(event, h("span.muted", clock(event.at))),
      lock ? this.compared(lock, h("span.muted", "Against ", name(lock.path ?? "hinge.lock"))) : null];
  }

  compared(event, title) {
    const found = list(event.differences).map(record);
    const worst = ["breaking", "may break"].find((severity) => found.some((one) => one.severity === severity));
    const text = { breaking: "breaks clients", "may break": "may break clients" }[worst] ?? (found.length ? "compatible" : "no change");
    return [h("p.event-head", title, " ", chip(text, KINDS[worst] ?? "good"), " ", h("strong", h("bdi", visible(event.summary ?? "", 500)))),
      found.length ? h("ul.differences", found.slice(0, 300).map((one) => h("li", chip(one.severity ?? "", KINDS[one.severity] ?? ""), " ", h("code", visible(`${one.name ?? ""} ${one.place ?? ""}`.trim())), " ", h("bdi", visible(one.message ?? one.text ?? "", 1000))))) : null];
  }

  restart(event) {
    const files = list(event.files).map((file) => visible(file)).join(", ");
    return [h("p.event-head", h("span.muted", clock(event.at)), " ", chip(event.error ? "restart failed" : "restarted", event.error ? "bad" : ""), " ", h("bdi", visible(event.reason ?? "", 300)), " ", files ? name(files, "muted") : null),
      event.error ? h("pre.text", { tabindex: "0" }, plain(event.error).slice(0, 20_000)) : null];
  }
}

customElements.define("hinge-contract", ContractView);
