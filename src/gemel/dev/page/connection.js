// The connection of each era: what the server says of itself, what the client can, login, subscriptions, any request.
import { tryCommand } from "./inspector.js";
import { CallPanel, start } from "./call.js";
import { button, check, chip, clock, code, details, eraChip, facts, h, labelled, link, list, memory, name, prose, record, redraw, select, show, stringify, visible } from "./dom.js";
import { parseJson } from "./form.js";
import { jsonView } from "./result.js";
import { ERAS, store } from "./store.js";
import { View } from "./view.js";

const ABILITIES = {
  elicitation: "answer questions (elicitation)", sampling: "ask a model (sampling)", roots: "name roots", tasks: "run tasks", progress: "take progress",
};
const CHANGES = { tools: "tools", prompts: "prompts", resources: "resources" };
const STATES = { ready: ["Connected", "good"], connecting: ["Connecting", "busy"], failed: ["Failed", "bad"], off: ["Off"] };

export const connectionChip = ({ state }) => chip(...STATES[state]);

const boxesOf = (texts, checked) => Object.keys(texts).map((value) => h("input", { type: "checkbox", value, checked }));
const checksOf = (texts, boxes) => h("div.checks", Object.values(texts).map((text, index) => check(text, boxes[index])));
const checkedOf = (boxes) => boxes.filter((box) => box.checked).map((box) => box.value);
const card = (title, about, ...content) => h("section.card", h("h2", title), h("p.muted", about), content);

export default class ConnectionView extends View {
  topics = ["connection", "calls", "questions", "logs", "spans"];

  build() {
    this.eras = h("div.cards.columns");
    this.abilities = boxesOf(ABILITIES, false);
    this.changes = boxesOf(CHANGES, true);
    this.uris = h("textarea.code", { rows: 2, spellcheck: "false", "aria-label": "Addresses of resources, one per line" });
    this.listening = h("div");
    const reconnect = () => tryCommand({ do: "as_client", without: checkedOf(this.abilities) }, "Reconnecting");
    this.page(null, [button("Restart the program", () => tryCommand({ do: "restart" }, "Restarting"))], this.eras,
      card("As a client that can't …", "Connects in both eras without these abilities, to see what the server does then.",
        checksOf(ABILITIES, this.abilities), h("div.actions", button("Reconnect", reconnect, "primary"))),
      card("Subscriptions", "Changes that the server reports appear in Logs; lists are fetched again.", this.listening,
        checksOf(CHANGES, this.changes), labelled("Resources, one address per line", this.uris),
        h("div.actions", ERAS.map((era) => [
          button(`Listen in ${era}`, () => this.listen(era)), button(`Stop in ${era}`, () => tryCommand({ do: "unlisten", era }), "quiet"),
        ]))),
      card("Any request", "Sent as it is written.", this.request()));
  }

  request() {
    const saved = memory.get("raw", { method: "ping", params: "{}" });
    this.era = select("Era", ERAS);
    this.method = h("input", { type: "text", value: saved.method, spellcheck: "false" });
    this.params = h("textarea.code", { rows: 4, spellcheck: "false", value: saved.params });
    this.panel = new CallPanel();
    const hint = h("p.hint");
    const send = async () => {
      const params = parseJson(this.params.value, hint);
      if (params === undefined) return;
      memory.set("raw", { method: this.method.value, params: this.params.value });
      const call = await start(this.era.value, this.method.value, params);
      if (call) this.panel.show(call);
    };
    return [h("div.toolbar", labelled("Era", this.era), labelled("Method", this.method)), labelled("Parameters", this.params), hint,
      h("div.actions", button("Send", send, "primary")), this.panel.element];
  }

  route([what, id]) {
    const call = what === "raw" && store.calls.get(id);
    if (!call) return;
    this.era.value = call.era;
    this.method.value = call.method;
    this.params.value = stringify(call.params);
    this.method.focus();
  }

  listen(era) {
    const uris = this.uris.value.split("\n").map((one) => one.trim()).filter(Boolean);
    tryCommand({ do: "listen", era, changes: checkedOf(this.changes), uris }, `Listening in ${era}`);
  }

  update(dirty) {
    this.panel.update();
    if (!dirty.has("connection")) return;
    redraw(this.eras, ERAS.map((era) => eraCard(era, store.eras[era])));
    const without = ERAS.flatMap((era) => list(store.eras[era].connection.without));
    if (!this.abilities.includes(document.activeElement)) for (const box of this.abilities) box.checked = without.includes(box.value);
    show(this.listening, ERAS.map((era) => {
      const { on, uris } = store.eras[era].listening;
      const state = on ? chip("Listening", "good") : chip("Not listening");
      return h("p", eraChip(era), " ", state, " ", list(uris).slice(0, 50).map((uri) => [code(uri), " "]));
    }));
  }
}

function eraCard(era, { connection, login }) {
  const { state, error, instructions, capabilities, revision, transport, without } = connection;
  const { name: server, version = "" } = record(connection.server);
  const act = (text, body, done) => button(text, () => tryCommand({ ...body, era }, done), { "data-key": `${text} ${era}` });
  return h("section.card", { "aria-label": `Era ${era}` },
    h("h2", eraChip(era), " ", era === "2026" ? "Stateless" : "Handshake", " ", connectionChip(connection)),
    h("p.bad", name(error, 3000)),
    facts([["Server", server && `${visible(server)} ${visible(version)}`], ["Revision", revision], ["Transport", transport],
      ["Client without", list(without).join(", ")]]),
    instructions && details("Instructions", () => prose(instructions)),
    capabilities && details("Capabilities", () => jsonView(capabilities, "Capabilities")),
    login.length > 0 && h("section", h("h3", "Login"), h("ol", login.slice(-20).map((one) => loginStep(one, one === login.at(-1))))),
    h("div.actions", ["off", "failed"].includes(state) ? act("Connect", { do: "connect" }) : act("Disconnect", { do: "disconnect" }),
      state === "ready" && [act("Refresh the lists", { do: "refresh" }, "Listing again"), era === "2025" && act("Ping", { do: "call", method: "ping", params: {} }, "Sent")],
      transport === "http" && [act("Log in", { do: "login" }), act("Log out", { do: "logout" }, "Logged out")]));
}

function loginStep({ at, step, error, url, state }, isLast) {
  return h("li", h("span.muted", clock(at)), " ", name(step, 400), " ", h("span.bad", visible(error, 600)), " ",
    url && isLast && link(url, "Open the login page", "button"), state === "done" && chip("done", "good"));
}
