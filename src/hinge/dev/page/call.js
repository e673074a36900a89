// One call: its state, progress, questions and result; and what starts calls: arguments and buttons.
import { command, getMessage, tryCommand } from "./api.js";
import { announce, button, chip, clock, copyText, duration, eraChip, h, has, list, memory, name, number, put, record, show, stringify, visible } from "./dom.js";
import { Editor } from "./form.js";
import { jsonView } from "./json.js";
import { questionView } from "./questions.js";
import { resultView } from "./result.js";
import { isFinal, store, subject } from "./store.js";
import { go, hash, ui } from "./view.js";

const STATES = {
  running: ["Running", "busy"], waiting: ["Waits for an answer", "ask"], done: ["Done", "good"], failed: ["Failed", "bad"], cancelled: ["Cancelled", ""],
};

export function stateChip(call) {
  const [text, kind] = STATES[call.state] ?? [call.state, ""];
  if (call.state === "done" && record(call.result).isError === true) return chip("Tool error", "bad");
  return chip(text, kind);
}

/** Start a call; returns its name, or those of two calls with `both`. */
export async function start(era, method, params, both = false) {
  const body = { do: "call", era, method, params };
  if (both) body.both = true;
  const answer = await tryCommand(body);
  if (!answer) return null;
  if (!both) return answer.call;
  const pair = list(answer.calls);
  store.rememberPair(pair);
  return pair;
}

/** A view where the arguments of a call can be changed. */
export function editHash(call) {
  const params = record(call.params);
  if (call.method === "tools/call") return hash("tools", params.name ?? "", "edit", call.call);
  if (call.method === "prompts/get") return hash("prompts", params.name ?? "", "edit", call.call);
  if (call.method === "resources/read") return hash("resources", params.uri ?? "");
  return hash("connection", "raw", call.call);
}

/** Open a dialog with the call as a command, curl or a test. */
export function copyDialog(body) {
  const text = h("pre.text", { tabindex: "0" });
  const forms = [["hinge", "hinge call"], ["curl", "curl"], ["pytest", "pytest"]];
  const bar = h("div.segments", { role: "group", "aria-label": "Copy as" });
  const copy = button("Copy", () => copyText(text.textContent), "primary");
  const dialog = h("dialog.dialog", { "aria-label": "Copy this call", onclose: () => dialog.remove() },
    h("h2", "Copy this call"), bar, text, h("div.actions", copy, button("Close", () => dialog.close())));
  const choose = async (form) => {
    for (const one of bar.children) one.setAttribute("aria-pressed", one.dataset.form === form);
    copy.disabled = true;
    text.textContent = "…";
    try {
      text.textContent = (await command({ do: "copy", ...body, as: form })).text;
      copy.disabled = false;
      memory.set("copy", form);
    } catch (error) { text.textContent = error.message; }
  };
  for (const [form, title] of forms) bar.append(button(title, () => choose(form), { class: "segment", "data-form": form, "aria-pressed": "false" }));
  document.body.append(dialog);
  dialog.showModal();
  choose(memory.get("copy", "hinge"));
}

/** Start the call once more with the same parameters. */
export const again = (call) => start(call.era, call.method, call.params);

/** The panel of one call; `update()` draws what has changed. */
export class CallPanel {
  constructor({ onagain, title = true, accepts = () => true, label = "Call" } = {}) {
    this.onagain = onagain;
    this.accepts = accepts;
    this.head = h("div.call-head");
    this.progress = h("div.progress", { hidden: true });
    this.questions = h("div.questions");
    this.result = h("div.call-result");
    this.element = h("section.call", { "aria-label": label, hidden: true }, this.head, this.progress, this.questions, this.result);
    this.title = title;
    this.id = null;
  }

  show(id) {
    if (id === this.id) return this.update();
    this.id = id;
    this.drawn = null;
    this.final = false;
    this.views = new Map();
    for (const part of [this.head, this.questions, this.result]) part.textContent = "";
    this.progress.hidden = true;
    this.update();
  }

  update() {
    const call = this.id && store.calls.get(this.id);
    this.element.hidden = !call || !this.accepts(call);
    if (this.element.hidden) return;
    this.#drawQuestions(call);
    if (this.drawn === call.version) return;
    this.drawn = call.version;
    this.#drawHead(call);
    this.#drawProgress(call);
    if (isFinal(call) && !this.final) {
      this.final = true;
      this.#drawResult(call);
      announce(`${subject(call)} ${call.state}${call.ms === undefined ? "" : ` after ${duration(call.ms)}`}`);
    }
  }

  #drawHead(call) {
    const held = this.head.contains(document.activeElement) ? document.activeElement.textContent : null;
    const final = isFinal(call);
    show(this.head,
      h("div.call-title", stateChip(call), eraChip(call.era), this.title ? h("strong", name(subject(call))) : null,
        final && call.ms !== undefined ? h("span.muted", duration(call.ms)) : null,
        h("span.muted", clock(call.at))),
      h("div.actions",
        final ? button("Again", async () => { const next = await again(call); if (next) this.onagain?.(next); }) : button("Cancel", () => tryCommand({ do: "cancel", call: call.call }), "danger"),
        final ? h("a.button", { href: editHash(call) }, "Edit") : null,
        button("Copy as…", () => copyDialog({ call: call.call })),
        h("a.button", { href: hash("wire", "call", call.call) }, "Messages")));
    if (held) [...this.head.querySelectorAll("button, a")].find((one) => one.textContent === held)?.focus();
  }

  #drawProgress(call) {
    const { progress } = call;
    this.progress.hidden = !progress || isFinal(call);
    if (this.progress.hidden) return;
    const known = typeof progress.total === "number" && progress.total > 0;
    if (!this.bar) {
      this.bar = h("progress", { "aria-label": "Progress" });
      this.barText = h("span");
      put(this.progress, this.bar, this.barText);
    }
    if (known) {
      this.bar.max = progress.total;
      this.bar.value = Number(progress.progress) || 0;
    } else this.bar.removeAttribute("value");
    const share = known ? `${Math.round(100 * progress.progress / progress.total)} %` : number(progress.progress);
    this.barText.textContent = [share, progress.message && visible(progress.message)].filter(Boolean).join(" · ");
  }

  #drawQuestions(call) {
    for (const question of store.questions.values()) {
      if (question.call !== call.call) continue;
      const drawn = this.views.get(question.question);
      if (drawn?.state === question.state) continue;
      const element = questionView(question);
      if (drawn) drawn.element.replaceWith(element); else this.questions.append(element);
      this.views.set(question.question, { state: question.state, element });
      if (question.state === "open") announce(`The server asks: ${question.message ?? question.type}`);
    }
  }

  #drawResult(call) {
    show(this.result, resultOf(call));
  }
}

/** What a call ended with. */
export function resultOf(call) {
  if (call.error) {
    const error = record(call.error);
    return h("div.error-box", { role: "group", "aria-label": "Error" },
      h("p", h("strong", `Error ${visible(error.code ?? "", 20)}`), " ", h("bdi.error-text", visible(error.message, 4000))),
      error.data === undefined || error.data === null ? null : jsonView(error.data, { label: "Data of the error" }));
  }
  if (call.state === "cancelled") return h("p.note", "The call was cancelled.");
  if (call.result !== undefined) {
    const view = resultView(call.method, call.result);
    if (record(call.result).isError === true) view.classList.add("is-error");
    return view;
  }
  if (call.message !== undefined) {
    const box = h("div", h("p.note", "The result is large."));
    box.append(button("Load it", async () => {
      try {
        const message = await getMessage(call.message);
        show(box, resultView(call.method, record(message).result ?? message));
      } catch (error) { show(box, h("p.note.bad-text", error.message)); }
    }));
    return box;
  }
  return null;
}

/** Arguments, buttons that run, the call and the latest ones, for one tool, prompt or template. */
export class Runner {
  constructor({ key, method, schema, params, subject: about, suggest, runText = "Run" }) {
    Object.assign(this, { key, method, params, about });
    const saved = memory.get(`values:${key}`);
    this.editor = schema && new Editor(schema, {
      value: saved ?? {}, tab: memory.get("tab", "form"), suggest,
      onchange: (value) => { if (value !== undefined) memory.set(`values:${key}`, value); },
    });
    this.panel = new CallPanel({ onagain: (call) => this.follow(call), title: false, accepts: (call) => call.method === method && about(record(call.params)) });
    this.run = button(runText, () => this.start(), { class: "primary", title: "Ctrl+Enter", "aria-keyshortcuts": "Control+Enter" });
    this.both = button("Run in both eras", () => this.start(true));
    this.copy = button("Copy as…", () => { const p = this.current(); if (p) copyDialog({ era: ui.era, method, params: p }); }, "quiet");
    this.recent = h("div.recent");
    this.element = h("div.runner", this.editor?.element,
      h("div.actions.run", this.run, this.both, this.copy), this.panel.element, this.recent);
    this.element.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.defaultPrevented || event.isComposing) return;
      const inForm = event.target.closest(".editor") && event.target.matches("input, textarea:not(.code)");
      if (event.ctrlKey || event.metaKey || (inForm && !event.shiftKey)) {
        event.preventDefault();
        this.start();
      }
    });
    this.panel.show(memory.get(`call:${key}`));
    this.update();
  }

  /** Take over the arguments of a call. */
  edit(call) {
    const params = record(call.params);
    if (!this.editor) return;
    this.editor.value = params.arguments ?? {};
    memory.set(`values:${this.key}`, params.arguments ?? {});
    this.editor.element.querySelector("input, textarea, select")?.focus();
  }

  current() {
    const value = this.editor ? this.editor.value : {};
    if (value === undefined) {
      this.editor.text.focus();
      return null;
    }
    return this.params(value);
  }

  async start(both = false) {
    this.editor?.check();
    const params = this.current();
    if (!params) return;
    const made = await start(ui.era, this.method, params, both);
    if (!made) return;
    if (both) go("compare", made.join("+")); else this.follow(made);
  }

  follow(call) {
    memory.set(`call:${this.key}`, call);
    this.panel.show(call);
  }

  update() {
    this.panel.update();
    const those = [];
    for (const call of [...store.calls.values()].reverse()) {
      if (call.method === this.method && this.about(record(call.params))) those.push(call);
      if (those.length === 8) break;
    }
    const mark = those.map((call) => `${call.call} ${call.state}`).join();
    if (mark === this.mark) return;
    this.mark = mark;
    show(this.recent, those.length ? [h("h3", "Recent calls"), h("ul.recent-list", those.map((call) => this.#row(call)))] : null);
  }

  #row(call) {
    const shown = stringify(record(call.params).arguments ?? {}, 0);
    return h("li", stateChip(call), eraChip(call.era),
      h("a.recent-text", { href: hash("history", call.call), title: "Open in the history" }, visible(shown, 200)),
      h("span.muted", duration(call.ms)),
      button("Again", async () => { const next = await again(call); if (next) this.follow(next); }, "small"),
      this.editor ? button("Edit", () => this.edit(call), "small") : null);
  }
}

/** Give a control suggestions of the server for an argument: `completion/complete`, asked while typing. */
export function completion(reference, values) {
  return (control, argument) => {
    const connection = store.era(ui.era).connection;
    if (!has(record(connection.capabilities), "completions") || control.tagName === "SELECT") return;
    const box = h("div.suggestions", { role: "group", "aria-label": `Suggestions for ${visible(argument, 60)}` });
    let timer = 0;
    let asked = null;
    control.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(async () => {
        const others = Object.fromEntries(Object.entries(values()).filter(([key, value]) => key !== argument && typeof value === "string"));
        const body = { do: "call", era: ui.era, method: "completion/complete", params: { ref: reference, argument: { name: argument, value: control.value }, context: { arguments: others } } };
        try { asked = (await command(body)).call; } catch { asked = null; }
        if (!box.isConnected) control.after(box);
        draw();
      }, 250);
    });
    const draw = () => {
      const call = asked && store.calls.get(asked);
      if (!call || !isFinal(call)) return;
      asked = null;
      const found = list(record(record(call.result).completion).values).filter((one) => typeof one === "string").slice(0, 12);
      show(box, found.filter((one) => one !== control.value).map((one) => button(visible(one, 80), () => {
        control.value = one;
        box.textContent = "";
        control.dispatchEvent(new Event("change", { bubbles: true }));
        control.focus();
      }, "small")));
    };
    const stop = store.watch(["calls"], () => { if (control.isConnected) draw(); else if (asked === null) stop(); });
  };
}
