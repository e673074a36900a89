// MCP Apps: pages of tools in a sandboxed frame of another origin, which speaks with this page by messages only.
import { command, tryCommand } from "./api.js";
import { CallPanel, start } from "./call.js";
import { button, h, labelled, link, memory, name, plain, record, select, show, stringify, visible } from "./dom.js";
import { Editor } from "./form.js";
import { isFinal, store } from "./store.js";
import { pageOf } from "./tools.js";
import { go, ui, View } from "./view.js";

const REVISION = "2026-01-26";
const MOST_NOTES = 200;

class AppsView extends View {
  get topics() { return ["offers", "calls", "questions"]; }

  build() {
    this.className = "page";
    this.tool = select([], undefined, (value) => go("apps", value), {});
    this.editorBox = h("div");
    this.frameBox = h("div.app-frame");
    this.notes = h("ol.app-notes", { "aria-label": "Messages of the app" });
    this.ask = h("div", { role: "status" });
    this.panel = new CallPanel();
    this.none = h("p.empty", "No tool of this server has a page.");
    this.some = h("div", labelled("Tool", this.tool), this.editorBox, h("div.actions", button("Run and show its page", () => this.run(), "primary")),
      this.ask, this.frameBox, h("details.rest", h("summary", "Messages between the app and this page"), this.notes), this.panel.element);
    this.append(h("h2.view-title", "Apps"), h("p.lead", "Pages that hosts show beside tools, in a sandbox of another origin. They reach this server only after you agree."), this.none, this.some);
    addEventListener("message", (event) => this.receive(event));
  }

  update(dirty) {
    this.panel.update();
    if (dirty.has("offers") || dirty.has("era")) {
      const tools = store.offers(ui.era, "tools").filter(pageOf);
      show(this.tool, tools.map((tool) => h("option", { value: tool.name }, visible(tool.name, 100))));
      this.none.hidden = tools.length > 0;
      this.some.hidden = tools.length === 0;
      if (this.key && tools.some((tool) => tool.name === this.key)) this.tool.value = this.key;
      this.drawEditor();
    }
    if (dirty.has("calls")) this.passResult();
  }

  route([key]) {
    if (key) this.key = key;
    if (this.key) this.tool.value = this.key;
    this.drawEditor();
  }

  current() { return store.offers(ui.era, "tools").find((tool) => tool.name === this.tool.value); }

  drawEditor() {
    const tool = this.current();
    if (!tool || tool === this.drawn) return;
    this.drawn = tool;
    const saved = `values:tool:${tool.name}`;
    this.editor = new Editor(record(tool.inputSchema), { value: memory.get(saved, {}), onchange: (value) => { if (value !== undefined) memory.set(saved, value); } });
    show(this.editorBox, this.editor.element);
  }

  async run() {
    const tool = this.current();
    const args = this.editor?.value;
    if (!tool || args === undefined) return;
    this.args = args;
    this.passed = false;
    this.ready = false;
    this.id = null;
    show(this.notes);
    show(this.ask);
    const answer = await tryCommand({ do: "app", era: ui.era, uri: pageOf(tool) });
    if (!answer) return;
    const address = new URL(answer.frame, store.apps ?? location.href);
    if (!store.apps || address.origin !== new URL(store.apps).origin || address.origin === location.origin) return show(this.frameBox, h("p.bad-text", "The page has no origin of its own; it is not shown."));
    this.frame = h("iframe", { sandbox: "allow-scripts", title: `App of ${visible(tool.name)}`, src: address.href, referrerpolicy: "no-referrer" });
    show(this.frameBox, this.frame);
    this.id = await start(ui.era, "tools/call", { name: tool.name, arguments: args });
    this.panel.show(this.id);
    this.passResult();
  }

  note(direction, message) {
    if (this.notes.children.length >= MOST_NOTES) this.notes.firstChild.remove();
    this.notes.append(h("li", h("span.muted", direction === "in" ? "← app" : "→ app"), " ", h("code", visible(record(message).method ?? (message.error ? "error" : "result"), 80)), " ", h("span.w-about", visible(stringify(message.params ?? message.result ?? message.error ?? null, 0), 300))));
  }

  send(message) {
    this.note("out", message);
    this.frame?.contentWindow?.postMessage({ jsonrpc: "2.0", ...message }, "*"); // a sandboxed frame has no origin to name
  }

  async receive(event) {
    if (!this.frame || event.source !== this.frame.contentWindow) return;
    const message = record(event.data);
    if (message.jsonrpc !== "2.0" || typeof message.method !== "string") return;
    this.note("in", message);
    const { id, method } = message;
    const params = record(message.params);
    const result = (value) => { if (id !== undefined) this.send({ id, result: value }); };
    const refuse = (text, code = -32000) => { if (id !== undefined) this.send({ id, error: { code, message: text } }); };
    switch (method) {
      case "ui/initialize": return result({ protocolVersion: REVISION, hostInfo: { name: "hinge-dev", version: "1" }, hostCapabilities: { openLinks: {}, serverTools: {}, serverResources: {}, logging: {} }, hostContext: this.context() });
      case "ui/notifications/initialized": this.ready = true; this.send({ method: "ui/notifications/tool-input", params: { arguments: this.args } }); return this.passResult();
      case "ui/notifications/size-changed": if (Number.isFinite(params.height)) this.frame.style.height = `${Math.max(80, Math.min(1600, params.height))}px`; return undefined;
      case "ping": return result({});
      case "ui/open-link": return show(this.ask, h("p.question", "The app wants to open ", link(params.url, params.url), " ", button("Close", () => { show(this.ask); refuse("The user did not open it."); }), button("I opened it", () => { show(this.ask); result({}); })));
      case "ui/message": return this.confirm(["The app says to the model: ", visible(JSON.stringify(params.content ?? params), 400)], () => result({}), refuse);
      case "ui/update-model-context": return result({});
      case "ui/request-display-mode": return result({ mode: "inline" });
      case "tools/call": return this.confirm(["The app calls the tool ", h("strong", name(params.name)), " with ", h("code", visible(stringify(params.arguments ?? {}, 0), 400))], () => this.forward(method, { name: params.name, arguments: params.arguments ?? {} }, result, refuse), refuse);
      case "resources/read": return this.confirm(["The app reads ", h("code", visible(params.uri))], () => this.forward(method, { uri: params.uri }, result, refuse), refuse);
      case "notifications/message": return undefined;
      default: return refuse(`hinge dev has no method ${visible(method, 80)}.`, -32601);
    }
  }

  context() {
    const tool = this.current();
    const { weight, ...definition } = tool ?? {};
    return { toolInfo: { tool: definition }, theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light", displayMode: "inline", availableDisplayModes: ["inline"], locale: navigator.language, platform: "web" };
  }

  confirm(text, yes, refuse) {
    const close = (then) => () => { show(this.ask); then(); };
    show(this.ask, h("div.question", h("p", text), h("div.actions", button("Allow", close(yes), "primary"), button("Refuse", close(() => refuse("The user refused."))))));
  }

  async forward(method, params, result, refuse) {
    try {
      const { call } = await command({ do: "call", era: ui.era, method, params });
      const stop = store.watch(["calls"], () => {
        const one = store.calls.get(call);
        if (!isFinal(one)) return;
        stop();
        if (one.error) refuse(plain(one.error.message), one.error.code); else result(one.result ?? {});
      });
    } catch (error) { refuse(error.message); }
  }

  passResult() {
    const call = this.id && store.calls.get(this.id);
    if (!this.ready || this.passed || !isFinal(call)) return;
    this.passed = true;
    if (call.error || call.state === "cancelled") this.send({ method: "ui/notifications/tool-cancelled", params: { reason: record(call.error).message ?? "cancelled" } });
    else this.send({ method: "ui/notifications/tool-result", params: call.result });
  }
}

customElements.define("hinge-apps", AppsView);
