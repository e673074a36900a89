// Questions of a server: forms, links, requests for a model and for roots, answered in the page.
import { tryCommand } from "./api.js";
import { button, chip, eraChip, h, link, list, name, put, record, show, stringify, visible } from "./dom.js";
import { Editor, Form } from "./form.js";
import { promptMessage } from "./result.js";
import { jsonView } from "./json.js";

const TITLES = { form: "The server asks", url: "The server asks to open a page", sampling: "The server asks for a model", roots: "The server asks for roots" };

/** A question with what answers it; an answered one is one line. */
export function questionView(question) {
  const box = h("section.question", { "aria-label": TITLES[question.type] ?? "Question" });
  const title = h("h3.minor", TITLES[question.type] ?? visible(question.type, 40), " ", eraChip(question.era));
  if (question.state !== "open") {
    const action = record(question.answer).action ?? (question.state === "gone" ? "not answered" : "answered");
    const content = record(question.answer).content ?? record(question.answer).result;
    box.classList.add("closed");
    return put(box, h("p", question.message ? name(question.message) : TITLES[question.type], " → ", chip(action, action === "accept" ? "good" : "")),
      content === undefined ? null : h("details", h("summary", "Answer"), jsonView(content)));
  }
  put(box, title, question.message ? h("p.question-text", h("bdi", visible(question.message, 2000))) : null);
  return put(box, ({ form, url, sampling, roots })[question.type]?.(question) ?? form(question));
}

async function answer(question, body, box) {
  box.inert = true;
  if (!await tryCommand({ do: "answer", question: question.question, ...body })) box.inert = false;
}

function actions(question, box, accept, text = "Accept") {
  return h("div.actions",
    button(text, accept, "primary"),
    button("Decline", () => answer(question, { action: "decline" }, box)),
    question.type === "form" || question.type === "url" ? button("Cancel", () => answer(question, { action: "cancel" }, box), "quiet") : null);
}

function form(question) {
  const fields = new Form(question.schema ?? { type: "object" }, { prefill: true });
  const box = h("div");
  const accept = () => { fields.check(); answer(question, { action: "accept", content: fields.value }, box); };
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && event.target.matches("input, textarea") && event.target.type !== "checkbox") {
      event.preventDefault();
      event.stopPropagation();
      accept();
    }
  });
  return put(box, fields.element, actions(question, box, accept));
}

function url(question) {
  const box = h("div");
  let host = "";
  try { host = new URL(question.url).host; } catch { /* shown as it is */ }
  return put(box,
    h("p.address", h("code", visible(question.url, 2000))),
    h("p", host ? ["It leads to ", h("strong", visible(host)), ". "] : null, link(question.url, "Open the page", "button")),
    actions(question, box, () => answer(question, { action: "accept" }, box), "I opened it"));
}

function sampling(question) {
  const params = record(question.params);
  const text = h("textarea", { rows: 4, "aria-label": "Answer of the model" });
  const model = h("input", { type: "text", value: "by-hand", "aria-label": "Name of the model" });
  const raw = h("textarea.code", { rows: 10, spellcheck: "false", "aria-label": "Result as JSON" });
  const result = () => ({ role: "assistant", content: { type: "text", text: text.value }, model: model.value, stopReason: "endTurn" });
  const place = h("div");
  const hint = h("p.hint");
  let asJson = false;
  const draw = () => show(place, asJson ? raw : [h("label.field", h("span.field-name", "Answer"), text), h("label.field", h("span.field-name", "Model"), model)]);
  const toggle = button("As JSON", () => {
    asJson = !asJson;
    toggle.setAttribute("aria-pressed", asJson);
    if (asJson) raw.value = stringify(result());
    draw();
  }, { class: "small", "aria-pressed": "false" });
  draw();
  const box = h("div");
  const accept = () => {
    let value = result();
    if (asJson) try { value = JSON.parse(raw.value); } catch (error) { hint.textContent = `Not JSON: ${error.message}`; return; }
    answer(question, { result: value }, box);
  };
  const others = Object.fromEntries(Object.entries(params).filter(([key]) => !["messages", "systemPrompt"].includes(key)));
  return put(box,
    params.systemPrompt ? h("p.about", "System prompt: ", name(params.systemPrompt)) : null,
    list(params.messages).slice(0, 100).map((one) => promptMessage(record(one))),
    Object.keys(others).length ? h("details", h("summary", "What it asks of the model"), jsonView(others)) : null,
    toggle, place, hint, actions(question, box, accept, "Send"));
}

function roots(question) {
  const editor = new Editor({
    type: "object", required: ["roots"],
    properties: { roots: { type: "array", title: "Roots", items: { type: "object", required: ["uri"], properties: { uri: { type: "string", format: "uri" }, name: { type: "string" } } } } },
  }, { value: { roots: [{ uri: "file:///tmp/project", name: "project" }] }, label: "Roots" });
  const box = h("div");
  return put(box, editor.element, actions(question, box, () => {
    if (editor.value !== undefined) answer(question, { result: editor.value }, box);
  }, "Send"));
}
