// What each saved edit of the server changes for clients.
import { chip, clock, code, h, lines, list, name, plain, record, show } from "./dom.js";
import { store } from "./store.js";
import { View } from "./view.js";

const VERDICTS = { breaking: ["breaks clients", "bad"], "may break": ["may break clients", "ask"] };

export default class ContractView extends View {
  topics = ["contracts", "restarts"];

  build() {
    this.body = h("div");
    this.page("What each saved edit changes for clients, and what differs from the lock file beside the server.", [], this.body);
  }

  update() {
    const events = [...store.contracts, ...store.restarts].sort((a, b) => b.n - a.n).slice(0, 100);
    if (!events.length) return show(this.body, h("p.empty", "Save a change of the server to see what it changes for clients."));
    show(this.body, h("ol.cards", events.map((event) => h("li.card", event.kind === "contract" ? contract(event) : restart(event)))));
  }
}

function contract(event) {
  const { lock } = event;
  return [compared(event, clock(event.at)), lock && compared(lock, ["Against ", name(lock.path ?? "gemel.lock")])];
}

function compared({ differences, summary }, title) {
  const found = list(differences).map(record);
  const worst = ["breaking", "may break"].find((severity) => found.some((one) => one.severity === severity));
  const verdict = VERDICTS[worst] ?? [found.length ? "compatible" : "no change", "good"];
  const row = (one) => h("li", chip(one.severity, VERDICTS[one.severity]?.[1]), " ",
    code(`${plain(one.name)} ${plain(one.place)}`.trim()), " ", name(one.message ?? one.text, 1000));
  return [h("p", h("span.muted", title), " ", chip(...verdict), " ", h("strong", name(summary, 500))), h("ul", found.slice(0, 300).map(row))];
}

function restart({ at, error, reason, files }) {
  const verdict = error ? chip("restart failed", "bad") : chip("restarted");
  return [h("p", h("span.muted", clock(at)), " ", verdict, " ", name(reason), " ", h("span.muted", name(list(files).join(", ")))),
    error && lines(plain(error).slice(0, 20_000))];
}
