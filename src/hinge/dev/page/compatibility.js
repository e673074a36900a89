// What breaks clients: saved edits of the server, and what known hosts can't take.
import { chip, clock, code, h, lines, link, list, name, number, plain, record, select, setOptions, show, visible } from "./dom.js";
import { store } from "./store.js";
import { View } from "./view.js";

const VERDICTS = { breaking: ["breaks clients", "bad"], "may break": ["may break clients", "ask"] };
const CONTRACT = "What each saved edit changes for clients, and what differs from the lock file beside the server.";

class ContractView extends View {
  heading = "Contract";
  topics = ["contracts", "restarts"];

  build() {
    this.body = h("div");
    this.page(CONTRACT, [], this.body);
  }

  update() {
    const events = [...store.contracts, ...store.restarts].sort((a, b) => b.n - a.n).slice(0, 100);
    if (!events.length) return show(this.body, h("p.empty", "Save a change of the server to see what it changes for clients."));
    show(this.body, h("ol.cards", events.map((event) => h("li.card", event.kind === "contract" ? contract(event) : restart(event)))));
  }
}

function contract(event) {
  const { lock } = event;
  return [compared(event, clock(event.at)), lock && compared(lock, ["Against ", name(lock.path ?? "hinge.lock")])];
}

function compared({ differences, summary }, title) {
  const found = list(differences).map(record);
  const worst = ["breaking", "may break"].find((severity) => found.some((one) => one.severity === severity));
  const verdict = VERDICTS[worst] ?? [found.length ? "compatible" : "no change", "good"];
  const row = (one) => h("li", chip(one.severity, VERDICTS[one.severity]?.[1]), " ", code(`${plain(one.name)} ${plain(one.place)}`.trim()), " ", name(one.message ?? one.text, 1000));
  return [h("p", h("span.muted", title), " ", chip(...verdict), " ", h("strong", name(summary, 500))), h("ul", found.slice(0, 300).map(row))];
}

function restart({ at, error, reason, files }) {
  return [h("p", h("span.muted", clock(at)), " ", chip(...(error ? ["restart failed", "bad"] : ["restarted"])), " ", name(reason), " ", h("span.muted", name(list(files).join(", ")))),
    error && lines(plain(error).slice(0, 20_000))];
}

customElements.define("hinge-contract", ContractView);

const SEVERITIES = ["breaks", "degrades", "note"];
const KINDS = { breaks: "bad", degrades: "ask" };
const FINDINGS = "What known hosts can't take of this server, with the report or documentation behind each rule.";

class FindingsView extends View {
  heading = "Findings";
  topics = ["findings"];

  build() {
    const changed = () => this.update();
    this.least = select("Severity", [["degrades", "Degrades and breaks"], ["breaks", "Breaks"], ["note", "All"]], changed, "findings");
    this.host = select("Host", [["", "All hosts"]], changed);
    this.body = h("div");
    this.page(FINDINGS, [this.least, this.host], this.body);
  }

  update() {
    const hosts = Object.groupBy(store.findings, (one) => plain(one.host));
    setOptions(this.host, [["", "All hosts"], ...Object.keys(hosts).sort().map((host) => [host, host])]);
    const severities = SEVERITIES.slice(0, SEVERITIES.indexOf(this.least.value) + 1);
    const shown = Object.entries(hosts).filter(([host]) => !this.host.value || host === this.host.value)
      .map(([host, found]) => [host, found.filter((one) => severities.includes(one.severity))]).filter(([, found]) => found.length);
    this.count.textContent = `${number(shown.flatMap(([, found]) => found).length)} of ${number(store.findings.length)}`;
    const nothing = store.findings.length ? "Nothing of this severity." : "Nothing found: all known hosts take this server.";
    show(this.body, shown.length ? null : h("p.empty", nothing), shown.map(([host, found]) => h("section", h("h2", name(host)), h("ul.cards", found.slice(0, 300).map(card)))));
  }
}

function card({ severity, place, message, effect, source }) {
  return h("li.card", h("p", chip(severity, KINDS[severity]), " ", h("strong", name(place))),
    h("p", name(message, 1000), effect && h("span.muted", "; ", visible(effect, 600))), h("p.minor", source && link(source)));
}

customElements.define("hinge-findings", FindingsView);
