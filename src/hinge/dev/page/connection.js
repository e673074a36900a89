// The connection of each era: what the server says of itself, what the client can, login, subscriptions, any request.
import { tryCommand } from "./api.js";
import { CallPanel, start } from "./call.js";
import { button, chip, clock, eraChip, facts, h, labelled, link, list, memory, name, plain, record, select, show, stringify, visible } from "./dom.js";
import { jsonView } from "./json.js";
import { ERAS, store } from "./store.js";
import { View } from "./view.js";

const ABILITIES = [["elicitation", "answer questions (elicitation)"], ["sampling", "ask a model (sampling)"], ["roots", "name roots"], ["tasks", "run tasks"], ["progress", "take progress"]];
const STATES = { ready: ["Connected", "good"], connecting: ["Connecting", "busy"], failed: ["Failed", "bad"], off: ["Off", ""] };

/** The state of a connection as a chip. */
export function connectionChip(connection) {
  const [text, kind] = STATES[connection.state] ?? [connection.state, ""];
  return chip(text, kind);
}

class ConnectionView extends View {
  get topics() { return ["connection", "calls", "questions"]; }

  build() {
    this.className = "page";
    this.cards = h("div.cards");
    this.abilities = ABILITIES.map(([key]) => h("input", { type: "checkbox", value: key }));
    this.uris = h("textarea", { rows: 2, class: "code", spellcheck: "false", "aria-label": "Addresses of resources, one per line" });
    this.changes = ["tools", "prompts", "resources"].map((what) => h("input", { type: "checkbox", value: what, checked: true }));
    this.listening = h("div");
    this.raw();
    this.append(h("h2.view-title", "Connection"),
      h("div.toolbar", button("Restart the program", () => tryCommand({ do: "restart" }, "Restarting"))),
      this.cards,
      h("section.card", h("h2", "As a client that can't …"), h("p.about", "Reconnects in both eras as a client without these abilities, to see what the server does then."),
        h("div.checks", ABILITIES.map(([, text], index) => h("label.inline", this.abilities[index], ` ${text}`))),
        h("div.actions", button("Reconnect", () => tryCommand({ do: "as_client", without: this.abilities.filter((box) => box.checked).map((box) => box.value) }, "Reconnecting"), "primary"))),
      h("section.card", h("h2", "Subscriptions"), h("p.about", "Changes that the server reports stand in the logs; lists are fetched again."), this.listening,
        h("div.checks", ["tools", "prompts", "resources"].map((what, index) => h("label.inline", this.changes[index], ` list of ${what}`))),
        labelled("Resources, one address per line", this.uris, "field"),
        h("div.actions", ERAS.map((era) => [button(`Listen in ${era}`, () => this.listen(era)), button(`Stop in ${era}`, () => tryCommand({ do: "unlisten", era }), "quiet")]))),
      h("section.card", h("h2", "Any request"), h("p.about", "Sent as it is written; nothing is checked before."), this.rawBox));
  }

  raw() {
    const saved = memory.get("raw", { method: "ping", params: "{}" });
    this.era = select(ERAS.map((era) => [era, era]), "2026", undefined, {});
    this.method = h("input", { type: "text", value: saved.method, spellcheck: "false" });
    this.params = h("textarea", { rows: 4, class: "code", spellcheck: "false", value: saved.params });
    const hint = h("p.hint");
    this.panel = new CallPanel({ onagain: (call) => this.panel.show(call) });
    const send = async () => {
      let params;
      try { params = JSON.parse(this.params.value || "{}"); } catch (error) { hint.textContent = `Not JSON: ${error.message}`; return; }
      hint.textContent = "";
      memory.set("raw", { method: this.method.value, params: this.params.value });
      const made = await start(this.era.value, this.method.value, params);
      if (made) this.panel.show(made);
    };
    this.rawBox = h("div", h("div.toolbar", labelled("Era", this.era), labelled("Method", this.method)), labelled("Parameters", this.params, "field"), hint,
      h("div.actions", button("Send", send, "primary")), this.panel.element);
  }

  route([what, id]) {
    const call = what === "raw" && store.calls.get(id);
    if (!call) return;
    this.era.value = call.era;
    this.method.value = call.method;
    this.params.value = stringify(call.params);
    this.method.scrollIntoView();
    this.method.focus();
  }

  listen(era) {
    const uris = this.uris.value.split("\n").map((one) => one.trim()).filter(Boolean);
    tryCommand({ do: "listen", era, changes: this.changes.filter((box) => box.checked).map((box) => box.value), uris }, `Listening in ${era}`);
  }

  update(dirty) {
    this.panel.update();
    if (!dirty.has("connection")) return;
    const held = this.cards.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    show(this.cards, ERAS.map((era) => this.card(era, store.era(era))));
    if (held) this.cards.querySelector(`[data-key="${CSS.escape(held)}"]`)?.focus();
    const without = new Set(ERAS.flatMap((era) => list(store.era(era).connection.without)));
    if (!this.abilities.includes(document.activeElement)) for (const box of this.abilities) box.checked = without.has(box.value);
    show(this.listening, ERAS.map((era) => {
      const { on, uris } = store.era(era).listening;
      return h("p", eraChip(era), " ", chip(on ? "Listening" : "Not listening", on ? "good" : ""), " ", list(uris).slice(0, 50).map((uri) => [h("code", visible(uri)), " "]));
    }));
  }

  card(era, { connection, login }) {
    const server = record(connection.server);
    const off = connection.state === "off" || connection.state === "failed";
    const act = (text, body, done) => button(text, () => tryCommand({ ...body, era }, done), { "data-key": `${text} ${era}` });
    const about = [["Server", server.name && `${server.name} ${server.version ?? ""}`], ["Title", server.title], ["Revision", connection.revision], ["Transport", connection.transport],
      ["Client without", list(connection.without).join(", ")]];
    return h("section.card", { "aria-label": `Era ${era}` }, h("h2", eraChip(era), " ", era === "2026" ? "Stateless" : "Handshake", " ", connectionChip(connection)),
      connection.error ? h("p.bad-text.error-text", h("bdi", visible(connection.error, 3000))) : null,
      facts(about),
      connection.instructions ? h("details", h("summary", "Instructions"), h("p.description", h("bdi", plain(connection.instructions).slice(0, 20_000)))) : null,
      connection.capabilities ? h("details", h("summary", "Capabilities"), jsonView(connection.capabilities, { label: "Capabilities" })) : null,
      login.length ? h("section.login", h("h3", "Login"), h("ol", login.slice(-20).map((step) => h("li", h("span.muted", clock(step.at)), " ", h("bdi", visible(step.step ?? "", 400)), " ",
        step.error ? h("span.bad-text", visible(step.error, 600)) : null, " ", step.url ? (step.state === "open" ? link(step.url, "Open the login page", "button") : h("code", visible(step.url, 400))) : null, step.state === "done" ? chip("done", "good") : null)))) : null,
      h("div.actions", off ? act("Connect", { do: "connect" }) : act("Disconnect", { do: "disconnect" }), act("Refresh the lists", { do: "refresh" }, "Listing again"), act("Ping", { do: "call", method: "ping", params: {} }, "Sent"),
        act("Log in", { do: "login" }), act("Log out", { do: "logout" }, "Logged out")));
  }
}

customElements.define("hinge-connection", ConnectionView);
