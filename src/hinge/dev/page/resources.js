// Resources and templates of resources: read, with suggestions for variables, and watch for changes.
import { tryCommand } from "./api.js";
import { completion, Runner } from "./call.js";
import { button, bytes, chip, h, list, name, plain, put, record, visible } from "./dom.js";
import { store } from "./store.js";
import { ItemsView } from "./tools.js";
import { ui } from "./view.js";

const EXPRESSION = /\{([+#./;?&]?)([^{}]*)\}/g;

/** The variables of a URI template, in order. */
export function variables(template) {
  const names = [];
  for (const [, , inner] of plain(template).matchAll(EXPRESSION)) {
    for (const part of inner.split(",")) names.push(part.replace(/(\*|:\d+)$/, "").trim());
  }
  return [...new Set(names.filter(Boolean))];
}

/** Expand a URI template (RFC 6570) with text values. */
export function expand(template, values) {
  return plain(template).replace(EXPRESSION, (_, operator, inner) => {
    const reserved = operator === "+" || operator === "#";
    const encode = (text) => (reserved ? encodeURI(text) : encodeURIComponent(text));
    const named = operator === ";" || operator === "?" || operator === "&";
    const parts = [];
    for (const part of inner.split(",")) {
      const key = part.replace(/(\*|:\d+)$/, "").trim();
      if (values[key] === undefined) continue;
      const cut = /:(\d+)$/.exec(part);
      const text = encode(cut ? plain(values[key]).slice(0, Number(cut[1])) : plain(values[key]));
      parts.push(named ? `${key}=${text}` : text);
    }
    if (!parts.length) return "";
    const separator = { ".": ".", "/": "/", ";": ";", "?": "&", "&": "&" }[operator] ?? ",";
    return ({ "": "", "+": "" }[operator] ?? operator) + parts.join(separator);
  });
}

/** Whether the address begins and ends as those of the template. */
function matches(template, uri) {
  const [first, last] = [/^[^{]*/, /[^}]*$/].map((part) => part.exec(template)[0]);
  return typeof uri === "string" && uri.startsWith(first) && uri.endsWith(last);
}

class ResourcesView extends ItemsView {
  get place() { return "resources"; }
  get section() { return "resources"; }
  get title() { return "Resources"; }
  get one() { return "Resource"; }

  items() {
    const { offers } = store.era(ui.era);
    const { resources, templates } = offers;
    if (!this.all || this.all.resources !== resources || this.all.templates !== templates) {
      this.all = { resources, templates, items: [...(resources ?? []), ...(templates ?? [])] };
    }
    return this.all.items;
  }

  keyOf(item) { return plain(item.uri ?? item.uriTemplate); }

  textOf(item) { return [this.keyOf(item), item.name, item.title, item.description].map(plain).join(" "); }

  /** A resource that a result links to need not be listed. */
  unlisted(uri) {
    if (!uri) return null;
    this.others ??= new Map();
    if (!this.others.has(uri)) this.others.set(uri, { uri, name: uri, notListed: true });
    return this.others.get(uri);
  }

  row(item) {
    return [h("div.row-main", h("div.row-name", name(item.title ?? item.name ?? "")), h("div.row-about", h("code", visible(this.keyOf(item))))),
      item.uriTemplate ? h("span.row-side", "template") : item.mimeType ? h("span.row-side", visible(item.mimeType, 24)) : null];
  }

  detailOf(item) {
    const template = item.uriTemplate;
    const names = template ? variables(template) : [];
    let runner = null;
    const suggest = completion({ type: "ref/resource", uri: template }, () => record(runner?.editor?.value));
    runner = new Runner({
      key: `resource:${this.keyOf(item)}`, method: "resources/read", runText: "Read", suggest,
      schema: template ? { type: "object", required: names, properties: Object.fromEntries(names.map((one) => [one, { type: "string" }])) } : null,
      params: (value) => ({ uri: template ? expand(template, value) : item.uri }),
      subject: (params) => (template ? matches(template, params.uri) : params.uri === item.uri),
    });
    this.runner = runner;
    const chips = [item.notListed ? chip("not listed", "ask") : null, item.mimeType ? chip(item.mimeType) : null, typeof item.size === "number" ? chip(bytes(item.size)) : null, template ? chip("template") : null];
    const top = [h("header.item-head", h("h2", name(item.title ?? item.name ?? this.keyOf(item))), h("div.chips", chips)),
      h("p", h("code", visible(this.keyOf(item)))), item.description ? h("p.description", h("bdi", plain(item.description).slice(0, 20_000))) : null];
    const box = put(h("div"), top, runner.element);
    if (!template) {
      const listen = button("Watch for changes", () => {
        const uris = new Set(list(store.era(ui.era).listening.uris));
        uris.add(item.uri);
        tryCommand({ do: "listen", era: ui.era, changes: ["tools", "prompts", "resources"], uris: [...uris] }, "Changes are shown in the logs.");
      });
      runner.element.querySelector(".run").append(listen);
    }
    if (!item.notListed) box.append(this.definition(item));
    return box;
  }
}

customElements.define("hinge-resources", ResourcesView);
