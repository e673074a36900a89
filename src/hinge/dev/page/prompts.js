// Prompts, with the messages that they make.
import { Runner } from "./call.js";
import { list, plain, record } from "./dom.js";
import { ItemsView } from "./items.js";

export function promptRunner({ name, arguments: named }) {
  const members = list(named).map(record);
  const schema = {
    type: "object", required: members.filter((one) => one.required === true).map((one) => one.name),
    properties: Object.fromEntries(members.map((one) => [plain(one.name), { type: "string", description: one.description }])),
  };
  return new Runner({
    key: `prompt:${plain(name)}`, method: "prompts/get", schema, runText: "Get the messages", reference: { type: "ref/prompt", name },
    params: (value) => ({ name, arguments: value }), isAbout: (params) => params.name === name,
  });
}

export default class PromptsView extends ItemsView {
  detailOf(prompt) {
    this.runner = promptRunner(prompt);
    return [this.itemHead(prompt, prompt.name), this.runner.element, this.definition(prompt)];
  }
}
