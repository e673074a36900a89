// Questions of a server: forms, links, requests for a model and for roots, answered in the page.
import { tryCommand } from "./inspector.js";
import { button, chip, code, details, eraChip, h, link, list, name, put, record, visible } from "./dom.js";
import { Editor } from "./form.js";
import { jsonView, otherMembers, promptMessage } from "./result.js";

export const TITLES = {
  form: "The server asks",
  url: "The server asks to open a page",
  sampling: "The server asks for a model",
  roots: "The server asks for roots",
};
const text = { type: "string" };
const object = (properties, ...required) => ({ type: "object", properties, required });
const RESULTS = {
  sampling: object({ content: object({ text }, "text"), model: text }, "content", "model"),
  roots: object({ roots: { type: "array", items: object({ uri: { type: "string", format: "uri" }, name: text }, "uri") } }, "roots"),
};
const DEFAULTS = {
  sampling: { role: "assistant", content: { type: "text", text: "" }, model: "by-hand", stopReason: "endTurn" },
  roots: { roots: [{ uri: "file:///tmp/project", name: "project" }] },
};

/** A question with what answers it; an answered one is one line. */
export function questionView(question) {
  const title = TITLES[question.type] ?? visible(question.type, 40);
  const box = h("section.question", { "aria-label": title });
  if (question.state === "open") {
    put(box, h("h3.minor", title, " ", eraChip(question.era)), h("p", name(question.message, 2000)));
    return put(box, ({ form, url }[question.type] ?? result)(question, box));
  }
  const { action = question.state === "gone" ? "not answered" : "answered", content, result: shown = content } = record(question.answer);
  box.classList.add("closed");
  return put(box, h("p", name(question.message || title), " → ", chip(action, action === "accept" ? "good" : "")),
    shown && details("Answer", () => jsonView(shown)));
}

/** Buttons that answer. `accept` returns what goes with the answer; undefined if something is wrong with it. */
function answers({ question, type }, box, text, accept) {
  const answer = async (body) => {
    if (body === undefined) return;
    box.closest("[tabindex]").focus({ preventScroll: true });
    box.inert = true;
    if (!await tryCommand({ do: "answer", question, ...body })) box.inert = false;
  };
  const act = (action) => () => answer({ action });
  box.addEventListener("keydown", (event) => {
    const isText = event.target.matches("input:not([type=checkbox]), textarea:not(.code)");
    if (type !== "form" || event.key !== "Enter" || event.shiftKey || !isText) return;
    event.preventDefault();
    event.stopPropagation();
    answer(accept());
  });
  return h("div.actions", button(text, () => answer(accept()), "primary"), button("Decline", act("decline")),
    (type === "form" || type === "url") && button("Cancel", act("cancel"), "quiet"));
}

function form(question, box) {
  const editor = new Editor(question.schema ?? object(), { prefill: true });
  return [editor.element, answers(question, box, "Accept", () => {
    const content = editor.take();
    return content && { action: "accept", content };
  })];
}

function url(question, box) {
  const host = URL.parse(question.url)?.host;
  return [
    h("p", code(question.url, 2000)),
    h("p", host && ["It leads to ", h("strong", visible(host)), ". "], link(question.url, "Open the page", "button")),
    answers(question, box, "I opened it", () => ({ action: "accept" })),
  ];
}

function result(question, box) {
  const { messages, systemPrompt, ...others } = record(question.params);
  const editor = new Editor(RESULTS[question.type], { value: DEFAULTS[question.type] });
  return [
    systemPrompt && h("p.muted", "System prompt: ", name(systemPrompt)),
    list(messages).slice(0, 100).map((one) => promptMessage(record(one))),
    otherMembers("What it asks of the model", others),
    editor.element, answers(question, box, "Send", () => {
      const value = editor.take();
      return value && { result: value };
    }),
  ];
}
