// Prompts: their arguments, with suggestions of the server, and their messages.
import { completion, Runner } from "./call.js";
import { list, plain, record } from "./dom.js";
import { ItemsView } from "./tools.js";

class PromptsView extends ItemsView {
  get place() { return "prompts"; }
  get section() { return "prompts"; }
  get title() { return "Prompts"; }
  get one() { return "Prompt"; }

  detailOf(prompt) {
    const named = list(prompt.arguments).map(record);
    const schema = {
      type: "object", required: named.filter((one) => one.required === true).map((one) => one.name),
      properties: Object.fromEntries(named.map((one) => [plain(one.name), { type: "string", description: one.description }])),
    };
    let runner = null;
    runner = new Runner({
      key: `prompt:${prompt.name}`, method: "prompts/get", schema, params: (value) => ({ name: prompt.name, arguments: value }),
      subject: (params) => params.name === prompt.name, suggest: completion({ type: "ref/prompt", name: prompt.name }, () => record(runner?.editor.value)), runText: "Get the messages",
    });
    this.runner = runner;
    return [this.head(prompt, []), runner.element, this.definition(prompt)];
  }
}

customElements.define("hinge-prompts", PromptsView);
