// What known hosts can't take of this server, each with its source.
import { chip, h, link, memory, name, number, plain, select, show, visible } from "./dom.js";
import { store } from "./store.js";
import { View } from "./view.js";

const KINDS = { breaks: "bad", degrades: "ask", note: "" };

class FindingsView extends View {
  get topics() { return ["findings"]; }

  build() {
    this.className = "page";
    const changed = () => this.update();
    this.least = select([["note", "All"], ["degrades", "Degrades and breaks"], ["breaks", "Breaks"]], memory.get("findings", "degrades"), (value) => { memory.set("findings", value); changed(); }, { "aria-label": "Severity" });
    this.host = select([["", "All hosts"]], "", changed, { "aria-label": "Host" });
    this.count = h("span.muted.count", { role: "status" });
    this.body = h("div");
    this.append(h("h2.view-title", "Findings ", this.count), h("p.lead", "What known hosts can't take of this server, with the report or documentation behind each rule."), h("div.toolbar", this.least, this.host), this.body);
  }

  update() {
    const order = ["breaks", "degrades", "note"];
    const least = order.indexOf(this.least.value);
    const hosts = [...new Set(store.findings.map((one) => plain(one.host)))].sort();
    const before = this.host.value;
    show(this.host, h("option", { value: "" }, "All hosts"), hosts.map((host) => h("option", { value: host }, visible(host, 60))));
    if (hosts.includes(before)) this.host.value = before;
    const shown = store.findings.filter((one) => order.indexOf(one.severity) <= least && (!this.host.value || one.host === this.host.value));
    this.count.textContent = `${number(shown.length)} of ${number(store.findings.length)}`;
    if (!shown.length) return show(this.body, h("p.empty", store.findings.length ? "Nothing of this severity." : "Nothing found: all known hosts take this server."));
    const groups = new Map();
    for (const one of shown) groups.set(one.host, [...(groups.get(one.host) ?? []), one]);
    show(this.body, [...groups].map(([host, those]) => h("section.finding-group", h("h2", name(host)),
      h("ul.findings", those.slice(0, 300).map((one) => h("li", h("p", chip(one.severity, KINDS[one.severity]), " ", name(one.place ?? "", "place")),
        h("p", h("bdi", visible(one.message ?? "", 1000)), one.effect ? h("span.muted", "; ", visible(one.effect, 600)) : null), one.source ? h("p.source", link(one.source)) : null))))));
  }
}

customElements.define("hinge-findings", FindingsView);
