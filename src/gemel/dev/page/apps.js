// MCP Apps: pages of tools in a sandboxed frame of another origin, which speaks with this page by messages only.
import { command, tryCommand } from "./inspector.js";
import { CallPanel, start } from "./call.js";
import { button, code, details, h, labelled, link, name, own, plain, record, select, setOptions, show, stringify, visible } from "./dom.js";
import { isFinal, store } from "./store.js";
import { pageOf, toolRunner } from "./tools.js";
import { getLook, go, ui, View } from "./view.js";

const MOST_NOTES = 200;

export default class AppsView extends View {
  topics = ["offers", "calls", "questions", "logs", "spans"];

  build() {
    this.tool = select("Tool", [], (value) => go("apps", value));
    this.editorBox = h("div");
    this.frameBox = h("div.app-frame");
    this.notes = h("ol.minor", { "aria-label": "Messages of the app" });
    this.ask = h("div", { role: "status" });
    this.panel = new CallPanel();
    this.none = h("p.empty", "No tool of this server has a page.");
    this.some = h("div", labelled("Tool", this.tool), this.editorBox, h("div.actions", button("Run and show its page", () => this.run(), "primary")),
      this.ask, this.frameBox, details("Messages between the app and this page", () => this.notes, "rest"), this.panel.element);
    this.page("Pages that hosts show beside tools, in a sandbox of another origin. They call tools only after you agree.", [], this.none, this.some);
    addEventListener("message", (event) => this.receive(event));
  }

  update(dirty) {
    this.panel.update();
    if (dirty.has("offers") || dirty.has("era")) {
      const tools = store.offers(ui.era, "tools").filter(pageOf);
      setOptions(this.tool, tools.map((tool) => tool.name), this.key);
      this.none.hidden = tools.length > 0;
      this.some.hidden = tools.length === 0;
      this.drawEditor();
    }
  }

  route([key]) {
    this.key = key ?? this.key;
    if (this.key) this.tool.value = this.key;
    this.drawEditor();
  }

  current() { return store.offers(ui.era, "tools").find((tool) => tool.name === this.tool.value); }

  drawEditor() {
    const tool = this.current();
    if (!tool || tool === this.drawn) return;
    this.drawn = tool;
    this.editor = toolRunner(tool).editor;
    show(this.editorBox, this.editor.element);
  }

  async run() {
    const tool = this.current();
    const args = this.editor?.take();
    if (!tool || args === undefined) return;
    Object.assign(this, { args, passed: false, ready: false, id: null });
    show(this.notes);
    show(this.ask);
    const answer = await tryCommand({ do: "app", era: ui.era, uri: pageOf(tool) });
    if (!answer) return;
    const { href: src, origin } = new URL(answer.frame, store.apps ?? location.href);
    if (!store.apps || origin !== new URL(store.apps).origin || origin === location.origin) {
      return show(this.frameBox, h("p.bad", "The page has no origin of its own; it is not shown."));
    }
    this.frame = h("iframe", { sandbox: "allow-scripts", title: `App of ${visible(tool.name)}`, src, referrerpolicy: "no-referrer" });
    show(this.frameBox, this.frame);
    this.id = await start(ui.era, "tools/call", { name: tool.name, arguments: args });
    if (!this.id) return;
    this.panel.show(this.id);
    await store.ended(this.id);
    this.passResult();
  }

  note(direction, { method, params, result, error }) {
    if (this.notes.children.length >= MOST_NOTES) this.notes.firstChild.remove();
    const text = stringify(params ?? result ?? error ?? null, 0);
    this.notes.append(h("li", h("span.muted", direction), " ", code(method ?? (error ? "error" : "result"), 80), " ", h("span.w-about", visible(text))));
  }

  send(message) {
    this.note("→ app", message);
    this.frame?.contentWindow?.postMessage({ jsonrpc: "2.0", ...message }, "*"); // a sandboxed frame has no origin to name
  }

  async receive(event) {
    if (!this.frame || event.source !== this.frame.contentWindow) return;
    const message = record(event.data);
    const { id, method } = message;
    if (message.jsonrpc !== "2.0" || typeof method !== "string") return;
    this.note("← app", message);
    const handler = own(HANDLERS, method);
    const answer = (body) => { if (id !== undefined) this.send({ id, ...body }); };
    if (!handler) return answer({ error: { code: -32601, message: `gemel dev has no method ${visible(method, 80)}.` } });
    try {
      answer({ result: await handler(this, record(message.params)) ?? {} });
    } catch (error) { answer({ error: { code: error.code ?? -32000, message: error.message } }); }
  }

  welcome() {
    const { weight, ...tool } = this.current() ?? {};
    return {
      protocolVersion: "2026-01-26", hostInfo: { name: "gemel-dev", version: "1" },
      hostCapabilities: { openLinks: {}, serverTools: {}, serverResources: {}, logging: {} },
      hostContext: {
        toolInfo: { tool }, theme: getLook(), displayMode: "inline", availableDisplayModes: ["inline"], locale: navigator.language, platform: "web",
      },
    };
  }

  /** Ask the user; raises an error if the answer is no. */
  confirm(text, yes = "Allow", no = "Refuse") {
    return new Promise((resolve, reject) => {
      const close = (then, value) => () => { show(this.ask); then(value); };
      const refuse = close(reject, new Error("The user refused."));
      show(this.ask, h("div.question", h("p", text), h("div.actions", button(yes, close(resolve), "primary"), button(no, refuse))));
    });
  }

  async forward(method, params) {
    const { call } = await command({ do: "call", era: ui.era, method, params });
    const { error, result } = await store.ended(call);
    if (error) throw Object.assign(new Error(plain(error.message)), { code: error.code });
    return result;
  }

  passResult() {
    const call = store.calls.get(this.id);
    if (!this.ready || this.passed || !isFinal(call)) return;
    this.passed = true;
    if (call.error || call.state === "cancelled") {
      this.send({ method: "ui/notifications/tool-cancelled", params: { reason: record(call.error).message ?? "cancelled" } });
    } else this.send({ method: "ui/notifications/tool-result", params: call.result });
  }
}

/** What a page may ask: functions of the view and the params. They return results or raise errors. */
const HANDLERS = {
  "ui/initialize": (view) => view.welcome(),
  "ui/notifications/initialized"(view) {
    view.ready = true;
    view.send({ method: "ui/notifications/tool-input", params: { arguments: view.args } });
    view.passResult();
  },
  "ui/notifications/size-changed"(view, { height }) {
    if (Number.isFinite(height)) view.frame.style.height = `${Math.max(80, Math.min(1600, height))}px`;
  },
  ping() {},
  "notifications/message"() {},
  "ui/update-model-context"() {},
  "ui/request-display-mode": () => ({ mode: "inline" }),
  "ui/open-link": (view, { url }) => view.confirm(["The app wants to open ", link(url)], "I opened it", "Close"),
  "ui/message": (view, params) => view.confirm(["The app says to the model: ", visible(stringify(params.content ?? params, 0), 400)]),
  async "tools/call"(view, { name: tool, arguments: args = {} }) {
    await view.confirm(["The app calls the tool ", h("strong", name(tool)), " with ", code(stringify(args, 0), 400)]);
    return view.forward("tools/call", { name: tool, arguments: args });
  },
  async "resources/read"(view, { uri }) {
    await view.confirm(["The app reads ", code(uri)]);
    return view.forward("resources/read", { uri });
  },
};
