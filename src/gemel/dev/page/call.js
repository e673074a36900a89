// One call: its state, progress, questions and result; and what starts calls: arguments and buttons.
import { command, tryCommand } from "./inspector.js";
import { announce, button, chip, clock, code, copyText, details, duration, eraChip, facts, h, has, lines, linkButton, list, memory, name, number, record, redraw, refresh, segments, show, visible } from "./dom.js";
import { Editor } from "./form.js";
import { questionView } from "./questions.js";
import { jsonView, loader, resultView } from "./result.js";
import { argumentsOf, isFinal, store, subject } from "./store.js";
import { go, hash, ui } from "./view.js";

export const STATES = {
  running: ["Running", "busy"],
  waiting: ["Waits for an answer", "ask"],
  done: ["Done", "good"],
  failed: ["Failed", "bad"],
  cancelled: ["Cancelled"],
};
const LATE = 300; // milliseconds in which what a server wrote last arrives
const COPIES = [["gemel", "gemel call"], ["curl", "curl"], ["pytest", "pytest"]];

export function stateChip(call) {
  if (call.problem) return chip("Wrong result", "bad");
  if (call.state === "done" && isToolError(call)) return chip("Tool error", "bad");
  return chip(...STATES[call.state]);
}

const isToolError = (call) => record(call.result).isError === true;

/** Start a call; returns its name. With `both`, show the calls of both eras. */
export async function start(era, method, params, both = false) {
  const answer = await tryCommand({ do: "call", era, method, params, both });
  if (!answer?.calls) return answer?.call;
  store.rememberPair(answer.calls);
  return go("compare", answer.calls.join("+"));
}

function editHash({ call, method, params }) {
  const view = { "tools/call": "tools", "prompts/get": "prompts", "resources/read": "resources" }[method];
  return view ? hash(view, record(params).name ?? record(params).uri, "edit", call) : hash("connection", "raw", call);
}

function copyDialog(body) {
  const text = lines("");
  const choose = async (as) => {
    try { text.textContent = (await command({ do: "copy", ...body, as })).text; } catch (error) { text.textContent = error.message; }
  };
  const dialog = h("dialog", { "aria-label": "Copy this call", onclose: () => dialog.remove() },
    h("h2", "Copy this call"), segments("Copy as", COPIES, choose, "copy"), text,
    h("div.actions", button("Copy", () => copyText(text.textContent), "primary"), button("Close", () => dialog.close())));
  document.body.append(dialog);
  dialog.showModal();
}

const againButton = (call, then, kind) => button("Again", async () => {
  const next = await start(call.era, call.method, call.params);
  if (next) then(next);
}, kind);

/** The panel of one call; `update()` draws what has changed. */
export class CallPanel {
  constructor({ onagain = (call) => this.show(call), title = true, accepts = () => true, label = "Call" } = {}) {
    Object.assign(this, { onagain, title, accepts, id: null });
    this.head = h("div.call-head");
    this.progress = h("div.progress");
    this.questions = h("div.questions");
    this.result = h("div.call-result");
    this.inside = h("div");
    this.logs = h("div");
    this.time = h("span.muted");
    this.element = h("section.call", { "aria-label": label, hidden: true }, this.head, this.progress, this.questions, this.result, this.inside, this.logs);
  }

  show(id) {
    if (id !== this.id) {
      this.id = id;
      this.drawn = null;
      this.wasFinal = false;
      this.views = new Map();
      for (const part of this.element.children) part.textContent = "";
    }
    this.update();
  }

  update() {
    const call = store.calls.get(this.id);
    this.element.hidden = !call || !this.accepts(call);
    if (this.element.hidden) return;
    this.#drawQuestions(call);
    this.#drawInside(call);
    this.#drawLogs(call);
    this.time.textContent = isFinal(call) ? duration(call.ms) : `${Math.round((Date.now() - call.at) / 1000)} s`;
    if (this.drawn === call.version) return;
    this.drawn = call.version;
    this.#drawHead(call);
    this.#drawProgress(call);
    if (!isFinal(call) || this.wasFinal) return;
    this.wasFinal = true;
    show(this.result, resultOf(call));
    announce(`${subject(call)} ${call.state} after ${duration(call.ms)}`);
  }

  #drawHead(call) {
    redraw(this.head,
      h("div.call-title", stateChip(call), eraChip(call.era), this.title && h("strong", name(subject(call))),
        this.time, h("span.muted", clock(call.at))),
      h("div.actions",
        isFinal(call)
          ? [againButton(call, this.onagain), linkButton("Edit", editHash(call))]
          : button("Cancel", () => tryCommand({ do: "cancel", call: call.call }), "danger"),
        button("Copy as…", () => copyDialog({ call: call.call })), linkButton("Messages", hash("wire", "call", call.call))));
  }

  #drawProgress(call) {
    this.progress.hidden = !call.progress || isFinal(call);
    if (this.progress.hidden) return;
    const { progress, total, message = "" } = call.progress;
    const known = total > 0;
    const share = known ? `${Math.round(100 * progress / total)} %` : number(progress);
    show(this.progress, h("progress", { "aria-label": "Progress", max: known ? total : null, value: known ? Number(progress) || 0 : null }),
      h("span", [share, visible(message)].filter(Boolean).join(" · ")));
  }

  #drawLogs(call) {
    const text = store.written(call.era, call.at, isFinal(call) ? call.at + call.ms + LATE : undefined);
    refresh(this.logs, call.call + text, () => text && [h("h3.minor", "Written by the server meanwhile"), lines(text)]);
  }

  /** The calls inside of this one, what policies decided about each, and their receipts. */
  #drawInside(call) {
    const spans = store.spans.filter((one) => one.trace === call.call && one.side === "server" && isToolCall(one));
    const inner = spans.filter((one) => spans.some((other) => other.span === one.parent));
    const shown = inner.length > 0 || spans.some((one) => DECIDED.some((key) => has(record(one.attributes), key)));
    refresh(this.inside, `${call.call} ${spans.length}`, () => shown && [h("h3.minor", "Calls, decisions and receipts"),
      h("ol.inside", { "aria-label": "Calls inside" }, [...spans].sort((a, b) => a.start - b.start).slice(0, 200).map((one) => callInside(one, spans)))]);
  }

  #drawQuestions(call) {
    for (const question of store.questions.values()) {
      const drawn = this.views.get(question.question);
      if (question.call !== call.call || drawn?.state === question.state) continue;
      const element = questionView(question);
      if (drawn) drawn.element.replaceWith(element); else this.questions.append(element);
      this.views.set(question.question, { state: question.state, element });
      store.changed("questions"); // for the banner, which leaves out what is on the screen
      if (question.state === "open") announce(`The server asks: ${question.message ?? question.type}`);
    }
  }
}

const EFFECTS = { allow: "good", deny: "bad", ask: "ask" };
const DECIDED = ["gemel.policy.effect", "gemel.receipt.outcome"];
const isToolCall = (span) => record(span.attributes)["mcp.method.name"] === "tools/call";

/** One call inside of another: its decision, its receipt, and on demand all that its span says. */
function callInside(span, spans) {
  const said = record(span.attributes);
  const [effect, outcome] = DECIDED.map((key) => said[key]);
  const rule = said["gemel.policy.rule"];
  const by = said["gemel.receipt.approved_by"];
  let depth = 0;
  for (let above = span; depth < 20 && (above = spans.find((one) => one.span === above.parent));) depth++;
  const line = [h("strong", name(said["gen_ai.tool.name"] ?? span.name)), h("span.muted", duration(span.ms)),
    effect && chip(`${effect}: ${rule}`, EFFECTS[effect]), by && chip(`approved by ${by}`),
    outcome ? chip(outcome, outcome === "ok" ? "good" : "bad") : span.status === "error" && chip("error", "bad")];
  const item = h("li", details(line, () => facts(Object.entries(said).map(([key, value]) => [visible(key, 80), value]))));
  item.style.paddingLeft = `${depth * 14}px`;
  return item;
}

const errorBox = (title, text, data) => h("div.error-box", { role: "group", "aria-label": "Error" },
  h("p", h("strong", title), " ", name(text, 4000)), data && jsonView(data, "Data of the error"));

function resultOf(call) {
  if (call.error) {
    const { code, message, data } = record(call.error);
    return errorBox(`Error ${visible(code, 20)}`, message, data);
  }
  if (call.state === "cancelled") return h("p.muted", "The call was cancelled.");
  if (call.result !== undefined) return h("div", { class: isToolError(call) ? "is-error" : null },
    call.problem && errorBox("Clients refuse this result:", call.problem), resultView(call.method, call.result));
  return call.message && loader(call.message, h("p.muted", "The result is large."), "Load it", (message) => resultView(call.method, record(message).result ?? message));
}

/** Arguments, buttons that run, the call and the latest ones, for one item. */
export class Runner {
  constructor({ key, method, schema, params, isAbout, reference, runText }) {
    Object.assign(this, { key, method, params, accepts: (call) => call.method === method && isAbout(record(call.params)) });
    this.editor = schema && new Editor(schema, { key, suggest: reference && completion(reference, () => this.editor.value) });
    this.panel = new CallPanel({ onagain: (call) => this.follow(call), title: false, accepts: this.accepts });
    this.panel.element.tabIndex = -1;
    this.recent = h("div.recent");
    this.element = h("div.runner", { onkeydown: (event) => this.#keys(event) }, this.editor?.element,
      h("div.actions.run",
        button(runText, () => this.start({ isByButton: true }), { class: "primary", title: "Ctrl+Enter", "aria-keyshortcuts": "Control+Enter" }),
        button("Run in both eras", () => this.start({ both: true })),
        button("Copy as…", () => {
          const current = this.editor ? this.editor.value : {};
          if (current) copyDialog({ era: ui.era, method, params: this.params(current) });
        }, "quiet"), this.editor?.note),
      this.panel.element, this.recent);
    this.panel.show(memory.get(`call:${key}`));
    this.update();
  }

  #keys(event) {
    if (event.key !== "Enter" || event.defaultPrevented || event.isComposing) return;
    const inForm = event.target.closest(".editor") && event.target.matches("input, textarea:not(.code)");
    if (!event.ctrlKey && !event.metaKey && !(inForm && !event.shiftKey)) return;
    event.preventDefault();
    this.start();
  }

  edit(call) {
    if (!this.editor) return;
    this.editor.value = record(call.params).arguments ?? {};
    memory.set(`values:${this.key}`, this.editor.value);
    this.editor.element.querySelector("input, textarea, select")?.focus();
  }

  /** Run what is entered. A button that was pressed is scrolled away by the call, which gets the focus; a field keeps it. */
  async start({ both = false, isByButton = false } = {}) {
    const value = this.editor ? this.editor.take() : {};
    const made = value && await start(ui.era, this.method, this.params(value), both);
    if (made) this.follow(made, isByButton);
  }

  follow(call, takesFocus = false) {
    memory.set(`call:${this.key}`, call);
    this.panel.show(call);
    Object.assign(this, { followed: call, scrolledTo: null, takesFocus });
    this.#reveal();
  }

  /** Scroll to the call that is followed, as it begins, asks and ends, unless somebody has scrolled since. */
  #reveal() {
    const box = this.element.closest(".detail");
    const { element } = this.panel;
    if (!box || element.hidden) return;
    if (this.takesFocus) element.focus({ preventScroll: true });
    this.takesFocus = false;
    if (this.scrolledTo !== null && box.scrollTop !== this.scrolledTo) return;
    element.scrollIntoView({ block: "nearest" });
    this.scrolledTo = box.scrollTop;
  }

  update() {
    this.panel.update();
    if (this.followed) {
      this.#reveal();
      if (isFinal(store.calls.get(this.followed))) {
        this.followed = null;
        for (const picture of this.panel.element.querySelectorAll("img")) picture.decode().then(() => this.#reveal(), () => {});
      }
    }
    const calls = store.callsThat(this.accepts).slice(-8).reverse();
    const version = calls.map((call) => `${call.call} ${call.state}`).join();
    refresh(this.recent, version, () => calls.length > 0 && [h("h3", "Recent calls"), h("ul.recent-list", calls.map((call) => this.#row(call)))]);
  }

  #row(call) {
    return h("li", stateChip(call), eraChip(call.era),
      h("a.recent-text", { href: hash("history", call.call), title: "Open in the history" }, code(record(call.params).uri) ?? argumentsOf(call)),
      h("span.muted", duration(call.ms)), againButton(call, (next) => this.follow(next), "small"),
      this.editor && button("Edit", () => this.edit(call), "small"));
  }
}

/** Give a control suggestions of the server for an argument while typing. */
function completion(reference, values) {
  return (control, argument) => {
    if (!has(record(store.eras[ui.era].connection.capabilities), "completions")) return;
    const box = h("div.suggestions", { role: "group", "aria-label": `Suggestions for ${visible(argument, 60)}` });
    let timer = 0;
    const take = (text) => {
      control.value = text;
      box.textContent = "";
      control.dispatchEvent(new Event("change", { bubbles: true }));
      control.focus();
    };
    const ask = async () => {
      const { value } = control;
      const others = Object.entries(values()).filter(([key, one]) => key !== argument && typeof one === "string");
      const params = { ref: reference, argument: { name: argument, value }, context: { arguments: Object.fromEntries(others) } };
      const asked = await command({ do: "call", era: ui.era, method: "completion/complete", params }).catch(() => null);
      const { result } = asked ? await store.ended(asked.call) : {};
      if (control.value !== value) return;
      const texts = list(record(record(result).completion).values).filter((one) => typeof one === "string" && one !== value);
      show(box, texts.slice(0, 12).map((text) => button(visible(text, 80), () => take(text), "small")));
      control.after(box);
    };
    control.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(ask, 250);
    });
  };
}
