// What known hosts don't support in a server.
import { chip, h, link, name, number, plain, select, setOptions, show, visible } from "./dom.js";
import { store } from "./store.js";
import { View } from "./view.js";

const SEVERITIES = ["breaks", "degrades", "note"];
const KINDS = { breaks: "bad", degrades: "ask" };

export default class FindingsView extends View {
  topics = ["findings"];

  build() {
    const changed = () => this.update();
    this.least = select("Severity", [["degrades", "Degrades and breaks"], ["breaks", "Breaks"], ["note", "All"]], changed, "findings");
    this.host = select("Host", [["", "All hosts"]], changed);
    this.body = h("div");
    this.page("What known hosts don't support in this server, with the report or documentation behind each rule.", [this.least, this.host], this.body);
  }

  update() {
    const hosts = Object.groupBy(store.findings, (one) => plain(one.host));
    setOptions(this.host, [["", "All hosts"], ...Object.keys(hosts).sort()]);
    const severities = SEVERITIES.slice(0, SEVERITIES.indexOf(this.least.value) + 1);
    const shown = Object.entries(hosts).filter(([host]) => !this.host.value || host === this.host.value)
      .map(([host, found]) => [host, found.filter((one) => severities.includes(one.severity))]).filter(([, found]) => found.length);
    this.count.textContent = `${number(shown.flatMap(([, found]) => found).length)} of ${number(store.findings.length)}`;
    const nothing = store.findings.length ? "Nothing of this severity." : "Nothing found: all known hosts take this server.";
    const section = ([host, found]) => h("section", h("h2", name(host)), h("ul.cards", found.slice(0, 300).map(card)));
    show(this.body, shown.length ? shown.map(section) : h("p.empty", nothing));
  }
}

function card({ severity, place, message, effect, source }) {
  return h("li.card", h("p", chip(severity, KINDS[severity]), " ", h("strong", name(place))),
    h("p", name(message, 1000), effect && h("span.muted", "; ", visible(effect, 600))), h("p.minor", source && link(source)));
}
