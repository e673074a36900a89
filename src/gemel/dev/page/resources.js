// Resources, and templates of their addresses.
import { Runner } from "./call.js";
import { button, bytes, chip, code, h, list, name, own, plain, visible } from "./dom.js";
import { tryCommand } from "./inspector.js";
import { ItemsView } from "./items.js";
import { rowTexts } from "./list.js";
import { store } from "./store.js";
import { ui } from "./view.js";

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
    const separator = operator === "?" ? "&" : "+#".includes(operator) ? "," : operator;
    return operator.replace("+", "") + parts.join(separator);
  });
}

function matches(template, uri) {
  const [first, last] = [/^[^{]*/, /[^}]*$/].map((part) => part.exec(template)[0]);
  return typeof uri === "string" && uri.startsWith(first) && uri.endsWith(last);
}

function runnerOf({ uri, uriTemplate }) {
  const template = plain(uriTemplate);
  const base = { key: `resource:${plain(uri ?? template)}`, method: "resources/read", runText: "Read" };
  if (!template) return new Runner({ ...base, params: () => ({ uri }), isAbout: (params) => params.uri === uri });
  const names = variables(template);
  return new Runner({
    ...base, reference: { type: "ref/resource", uri: template },
    schema: { type: "object", required: names, properties: Object.fromEntries(names.map((one) => [one, { type: "string" }])) },
    params: (values) => ({ uri: expand(template, values) }), isAbout: (params) => matches(template, params.uri),
  });
}

export default class ResourcesView extends ItemsView {
  items(era = ui.era) { return [...store.offers(era, "resources"), ...store.offers(era, "templates")]; }

  keyOf(item) { return plain(item.uri ?? item.uriTemplate); }

  unlisted(uri) {
    if (this.other?.uri !== uri) this.other = { uri };
    return this.other;
  }

  row(item) {
    const kind = item.uriTemplate ? "template" : visible(item.mimeType, 24);
    return [rowTexts(name(item.title ?? item.name), code(this.keyOf(item))), h("span.row-side", kind)];
  }

  detailOf(item) {
    const key = this.keyOf(item);
    const isListed = this.items().includes(item);
    this.runner = runnerOf(item);
    const listen = () => {
      const uris = new Set([...list(store.eras[ui.era].listening.uris), item.uri]);
      tryCommand({ do: "listen", era: ui.era, uris: [...uris] }, "Changes are shown in the logs.");
    };
    if (!item.uriTemplate) this.runner.element.querySelector(".run").append(button("Watch for changes", listen));
    const chips = [!isListed && chip("not listed", "ask"), chip(item.mimeType), chip(bytes(item.size)), item.uriTemplate && chip("template")];
    return [this.itemHead(item, item.title ?? item.name ?? key, chips), h("p", code(key)), this.runner.element, isListed && this.definition(item)];
  }
}
