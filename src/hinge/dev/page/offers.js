// Tools, resources and prompts: lists with a filter, and for each item its form, its calls and its definition.
import { tryCommand } from "./inspector.js";
import { Runner } from "./call.js";
import { bytes, button, chip, code, details, filterField, h, linkButton, list, name, number, own, plain, prose, record, select, visible } from "./dom.js";
import { jsonView } from "./result.js";
import { store } from "./store.js";
import { go, hash, isNarrow, rename, ui, View } from "./view.js";

const ORDERS = [["listed", "As listed"], ["name", "By name"], ["weight", "By weight"]];
const HINTS = [["readOnlyHint", "read only", "good"], ["destructiveHint", "destructive", "bad"], ["idempotentHint", "idempotent"], ["openWorldHint", "open world"]];

class ItemsView extends View {
  topics = ["offers", "calls", "questions", "connection"];

  build() {
    const lower = this.heading.toLowerCase();
    this.filter = filterField(lower, () => this.fillList());
    this.order = select("Order", ORDERS, () => this.fillList(), `order:${lower}`);
    this.split({
      label: this.heading, one: this.heading.slice(0, -1), controls: [this.filter, this.order],
      rowHeight: 52, key: (item) => this.keyOf(item), render: (item) => this.row(item), version: (item) => item, onselect: (item) => go(this.section, this.keyOf(item)),
    });
    this.filter.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowDown") return;
      event.preventDefault();
      this.rows.box.focus();
    });
  }

  items(era = ui.era) { return store.offers(era, this.section); }

  keyOf(item) { return plain(item.name); }

  row(item) {
    return [h("div.row-main", h("div.row-name", name(item.name)), h("div.row-about", name(item.title ?? item.description))),
      item.weight > 0 && h("span.row-side", { title: "Tokens of its description, about" }, `${number(item.weight)} tok`)];
  }

  fillList() {
    const text = this.filter.value.toLowerCase();
    const all = this.items();
    const shown = all.filter((item) => [this.keyOf(item), item.name, item.title, item.description].map(plain).join(" ").toLowerCase().includes(text));
    if (this.order.value === "name") shown.sort((a, b) => (this.keyOf(a) < this.keyOf(b) ? -1 : 1));
    if (this.order.value === "weight") shown.sort((a, b) => (b.weight ?? 0) - (a.weight ?? 0));
    const { connection, errors } = store.eras[ui.era];
    let empty = all.length ? "Nothing matches the filter." : `The server has no ${this.heading.toLowerCase()}.`;
    if (connection.state !== "ready") empty = `Not connected in ${ui.era}.`;
    if (errors[this.section]) empty = `Listing failed: ${visible(errors[this.section])}`;
    this.rows.setItems(shown, empty);
    const weight = all.reduce((sum, item) => sum + (Number(item.weight) || 0), 0);
    this.count.textContent = [text ? `${number(shown.length)} of ${number(all.length)}` : number(all.length), weight && `${number(weight)} tokens`].filter(Boolean).join(" · ");
  }

  route([key, action, call]) {
    this.classList.toggle("chosen", key !== undefined);
    if (key === undefined) {
      const [first] = this.rows.items;
      key = this.key ?? (first && this.keyOf(first));
      if (key === undefined || isNarrow()) return;
      rename(this.section, key);
      this.classList.add("chosen");
    }
    this.key = key;
    this.rows.setSelected(key);
    this.drawDetail();
    if (action === "edit" && store.calls.has(call)) {
      this.runner?.edit(store.calls.get(call));
      rename(this.section, key);
    }
  }

  update(dirty) {
    if (["offers", "era", "connection"].some((topic) => dirty.has(topic))) {
      this.fillList();
      if (this.key === undefined) this.route([]); else this.drawDetail();
    }
    this.runner?.update();
  }

  drawDetail() {
    const item = this.items().find((one) => this.keyOf(one) === this.key) ?? this.unlisted?.(this.key);
    if (item && item === this.drawn && ui.era === this.drawnEra) return;
    const isFocused = this.detail.contains(document.activeElement);
    this.drawn = item;
    this.drawnEra = ui.era;
    this.runner = null;
    if (!item) return this.showDetail(h("p.empty", "There is no ", name(this.key), ` in ${ui.era}.`));
    this.showDetail(this.detailOf(item));
    if (isFocused) this.detail.focus();
  }

  itemHead(item, title, chips) {
    const other = ui.era === "2026" ? "2025" : "2026";
    const isAlone = this.items().includes(item) && store.eras[other].connection.state === "ready" && !this.items(other).some((one) => this.keyOf(one) === this.keyOf(item));
    return [
      h("header.item-head", h("h2", name(title)),
        h("div.chips", chips, isAlone && chip(`only in ${ui.era}`, "ask"), item.weight > 0 && chip(`about ${number(item.weight)} tokens`))),
      item.title !== title && h("h3", name(item.title)),
      prose(item.description),
    ];
  }

  definition({ weight, ...wire }) {
    return details("Definition on the wire", () => jsonView(wire, "Definition"), "rest");
  }
}

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

class ToolsView extends ItemsView {
  section = "tools";
  heading = "Tools";

  detailOf(tool) {
    const marks = record(tool.annotations);
    const chips = HINTS.filter(([key]) => marks[key] === true).map(([, ...shown]) => chip(...shown));
    const audience = list(record(record(tool._meta).ui).visibility);
    if (audience.length === 1) chips.push(chip(`for the ${visible(audience[0], 20)}`));
    const support = record(tool.execution).taskSupport;
    if (support && support !== "forbidden") chips.push(chip(`task ${visible(support, 20)}`));
    this.runner = toolRunner(tool);
    return [this.itemHead(tool, tool.name, chips), this.runner.element, pageOf(tool) && linkButton("Open its app", hash("apps", tool.name)), this.definition(tool)];
  }
}

customElements.define("hinge-tools", ToolsView);

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

class PromptsView extends ItemsView {
  section = "prompts";
  heading = "Prompts";

  detailOf(prompt) {
    this.runner = promptRunner(prompt);
    return [this.itemHead(prompt, prompt.name), this.runner.element, this.definition(prompt)];
  }
}

customElements.define("hinge-prompts", PromptsView);

const EXPRESSION = /\{([+#./;?&]?)([^{}]*)\}/g;

/** The parts of an expression of a URI template: the name of each variable, and how many of its characters count. */
const partsOf = (inner) => inner.split(",").map((part) => /^(.*?)(?:\*|:(\d+))?$/.exec(part.trim()).slice(1));

function variables(template) {
  const names = [...template.matchAll(EXPRESSION)].flatMap(([, , inner]) => partsOf(inner).map(([key]) => key));
  return [...new Set(names.filter(Boolean))];
}

/** Expand a URI template (RFC 6570) with text values. */
function expand(template, values) {
  return template.replace(EXPRESSION, (_, operator, inner) => {
    const encode = "+#".includes(operator) && operator ? encodeURI : encodeURIComponent;
    const isNamed = ";?&".includes(operator) && operator;
    const parts = [];
    for (const [key, length] of partsOf(inner)) {
      const value = own(values, key);
      if (value === undefined) continue;
      parts.push((isNamed ? `${key}=` : "") + encode(plain(value).slice(0, length)));
    }
    if (!parts.length) return "";
    const separator = { ".": ".", "/": "/", ";": ";", "?": "&", "&": "&" }[operator] ?? ",";
    return operator.replace("+", "") + parts.join(separator);
  });
}

function matches(template, uri) {
  const [first, last] = [/^[^{]*/, /[^}]*$/].map((part) => part.exec(template)[0]);
  return typeof uri === "string" && uri.startsWith(first) && uri.endsWith(last);
}

export const resourceRunner = ({ uri }) => new Runner({
  key: `resource:${plain(uri)}`, method: "resources/read", runText: "Read", params: () => ({ uri }), isAbout: (params) => params.uri === uri,
});

function templateRunner(template) {
  const names = variables(template);
  return new Runner({
    key: `resource:${template}`, method: "resources/read", runText: "Read", reference: { type: "ref/resource", uri: template },
    schema: { type: "object", required: names, properties: Object.fromEntries(names.map((one) => [one, { type: "string" }])) },
    params: (values) => ({ uri: expand(template, values) }), isAbout: ({ uri }) => matches(template, uri),
  });
}

class ResourcesView extends ItemsView {
  section = "resources";
  heading = "Resources";

  items(era = ui.era) { return [...store.offers(era, "resources"), ...store.offers(era, "templates")]; }

  keyOf(item) { return plain(item.uri ?? item.uriTemplate); }

  unlisted(uri) {
    if (this.other?.uri !== uri) this.other = { uri };
    return this.other;
  }

  row(item) {
    const kind = item.uriTemplate ? "template" : visible(item.mimeType, 24);
    return [h("div.row-main", h("div.row-name", name(item.title ?? item.name)), h("div.row-about", code(this.keyOf(item)))), h("span.row-side", kind)];
  }

  detailOf(item) {
    const key = this.keyOf(item);
    const isListed = this.items().includes(item);
    this.runner = item.uriTemplate ? templateRunner(key) : resourceRunner(item);
    const listen = () => {
      const uris = new Set([...list(store.eras[ui.era].listening.uris), item.uri]);
      tryCommand({ do: "listen", era: ui.era, uris: [...uris] }, "Changes are shown in the logs.");
    };
    if (!item.uriTemplate) this.runner.element.querySelector(".run").append(button("Watch for changes", listen));
    const chips = [!isListed && chip("not listed", "ask"), chip(item.mimeType), chip(bytes(item.size)), item.uriTemplate && chip("template")];
    return [this.itemHead(item, item.title ?? item.name ?? key, chips), h("p", code(key)), this.runner.element, isListed && this.definition(item)];
  }
}

customElements.define("hinge-resources", ResourcesView);
