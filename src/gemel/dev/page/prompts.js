// Prompts, with the messages that they make.
import { Runner } from "./call.js";
import { list, plain, record } from "./dom.js";
import { ItemsView } from "./items.js";

export default class PromptsView extends ItemsView {
  detailOf(prompt) {
    const { name } = prompt;
    const members = list(prompt.arguments).map(record);
    const schema = {
      type: "object", required: members.filter((one) => one.required === true).map((one) => one.name),
      properties: Object.fromEntries(members.map((one) => [plain(one.name), { type: "string", description: one.description }])),
    };
    this.runner = new Runner({
      key: `prompt:${plain(name)}`, method: "prompts/get", schema, runText: "Get the messages", reference: { type: "ref/prompt", name },
      params: (value) => ({ name, arguments: value }), isAbout: (params) => params.name === name,
    });
    return [this.itemHead(prompt, name), this.runner.element, this.definition(prompt)];
  }
}
