// Tools, and what calls one of them.
import { Runner } from "./call.js";
import { chip, linkButton, list, plain, record, visible } from "./dom.js";
import { ItemsView } from "./items.js";
import { hash, ui } from "./view.js";

const HINTS = {
  readOnlyHint: ["read only", "good"],
  destructiveHint: ["destructive", "bad"],
  idempotentHint: ["idempotent"],
  openWorldHint: ["open world"],
};

/** The address of the page that a host shows for a tool, if there is one. */
export const pageOf = (tool) => {
  const meta = record(tool._meta);
  const uri = record(meta.ui).resourceUri ?? meta["ui/resourceUri"];
  return typeof uri === "string" ? uri : null;
};

export const toolRunner = (tool) => new Runner({
  key: `tool:${plain(tool.name)}`, method: "tools/call", schema: record(tool.inputSchema), runText: `Run in ${ui.era}`,
  params: (value) => ({ name: tool.name, arguments: value }), isAbout: (params) => params.name === tool.name,
});

export default class ToolsView extends ItemsView {
  detailOf(tool) {
    const marks = record(tool.annotations);
    const chips = Object.keys(HINTS).filter((key) => marks[key] === true).map((key) => chip(...HINTS[key]));
    const audience = list(record(record(tool._meta).ui).visibility);
    if (audience.length === 1) chips.push(chip(`for the ${visible(audience[0], 20)}`));
    const support = record(tool.execution).taskSupport;
    if (support && support !== "forbidden") chips.push(chip(`task ${visible(support, 20)}`));
    this.runner = toolRunner(tool);
    const app = pageOf(tool) && linkButton("Open its app", hash("apps", tool.name));
    return [this.itemHead(tool, tool.name, chips), this.runner.element, app, this.definition(tool)];
  }
}
