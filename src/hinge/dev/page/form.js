// Forms from JSON Schemas. Hints are only hints: whatever is entered can be sent.
import { button, freshId, h, has, list, name, put, record, select, show, stringify, visible } from "./dom.js";

const MOST_FIELDS = 200;
const MOST_OPTIONS = 1000;
const DEEPEST = 12;
const INPUT_TYPES = { email: "email", uri: "url", date: "date", time: "time" };
const EXAMPLES = { "date-time": "2026-07-28T12:00:00Z", uri: "https://…", email: "name@example.org", uuid: "00000000-0000-4000-8000-000000000000" };

/** A form for the schema. `prefill` writes defaults into the fields; otherwise they are shown as hints. */
export class Form {
  constructor(schema, { prefill = false, onchange, suggest } = {}) {
    this.field = makeField(schema, { root: schema, required: true, depth: 0, prefill, suggest, top: true });
    this.element = h("div.form", { oninput: () => onchange?.(), onchange: () => onchange?.() }, this.field.element);
  }

  get value() { return this.field.read() ?? {}; }

  set value(value) { this.field.write(value); }

  /** Show what looks wrong at each field; returns how much that is. */
  check() { return this.field.check(); }
}

/** Follow references inside the document and merge `allOf`. */
function resolve(schema, root, hops = 20) {
  let found = record(schema);
  while (typeof found.$ref === "string" && hops-- > 0) {
    const { $ref, ...rest } = found;
    if (!$ref.startsWith("#")) break;
    let target = root;
    for (const part of $ref.slice(1).split("/").filter(Boolean)) {
      let key = part;
      try { key = decodeURIComponent(part); } catch { /* as it is */ }
      key = key.replaceAll("~1", "/").replaceAll("~0", "~");
      target = target !== null && typeof target === "object" && has(target, key) ? target[key] : undefined;
    }
    found = { ...record(target), ...rest };
  }
  const parts = list(found.allOf).slice(0, 20);
  if (parts.length === 0 || hops <= 0) return found;
  const merged = { ...found, allOf: undefined, properties: { ...record(found.properties) }, required: list(found.required) };
  for (const part of parts) {
    const one = resolve(part, root, hops - 5);
    for (const [key, value] of Object.entries(one)) {
      if (key === "properties") Object.assign(merged.properties, record(value));
      else if (key === "required") merged.required = [...merged.required, ...list(value)];
      else merged[key] ??= value;
    }
  }
  return merged;
}

const isNull = (schema) => record(schema).type === "null" || record(schema).const === null;

/** One or several schemas that a value may have, as [title, schema] pairs. */
function variants(schema) {
  const choices = list(schema.oneOf).length ? schema.oneOf : schema.anyOf;
  if (list(choices).length) return choices.slice(0, 50);
  if (Array.isArray(schema.type)) return schema.type.slice(0, 10).map((type) => ({ ...schema, type }));
  return null;
}

/** The values to choose from, as [value, title] pairs, or null. */
function options(schema) {
  if (has(schema, "const")) return [[schema.const, schema.title ?? label(schema.const)]];
  if (Array.isArray(schema.enum) && schema.enum.length) {
    const titles = list(schema.enumNames);
    return schema.enum.slice(0, MOST_OPTIONS).map((value, index) => [value, titles[index] ?? label(value)]);
  }
  const choices = list(schema.oneOf).length ? list(schema.oneOf) : list(schema.anyOf);
  if (choices.length && choices.every((one) => has(record(one), "const"))) {
    return choices.slice(0, MOST_OPTIONS).map((one) => [one.const, one.title ?? label(one.const)]);
  }
  return null;
}

const label = (value) => (typeof value === "string" ? value : stringify(value, 0));

function makeField(schema, context) {
  const resolved = resolve(schema, context.root);
  if (context.depth > DEEPEST) return jsonField(resolved, context);
  const choices = options(resolved);
  if (choices) return choiceField(resolved, choices, context);
  const isObject = Object.keys(record(resolved.properties)).length > 0;
  const several = isObject ? null : variants(resolved);
  if (several) {
    const real = several.filter((one) => !isNull(resolve(one, context.root)));
    const { anyOf, oneOf, ...rest } = resolved;
    if (real.length === 1) {
      const inner = { ...rest, ...resolve(real[0], context.root) };
      return real.length === several.length ? makeField(inner, context) : nullableField(inner, context);
    }
    return variantField(several, rest, context);
  }
  if (resolved.type === "string") return stringField(resolved, context);
  if (resolved.type === "number" || resolved.type === "integer") return numberField(resolved, context);
  if (resolved.type === "boolean") return booleanField(resolved, context);
  if (resolved.type === "array") return arrayField(resolved, context);
  if (isObject || (context.top && resolved.type === "object")) return objectField(resolved, context);
  return jsonField(resolved, context);
}

/** The name, marks and text above a control, and the place of its hint. */
function frame(schema, context, control, { group = false } = {}) {
  const hint = h("p.hint", { id: freshId("hint") });
  const about = h("p.about", { id: freshId("about") });
  const facts = factsOf(schema);
  if (typeof schema.description === "string") put(about, h("bdi", visible(schema.description, 1000)));
  if (facts) put(about, h("span.facts", facts));
  const title = name(context.title ?? context.key ?? "value", "field-name");
  const marks = [
    context.required ? h("span.required", "required") : null,
    h("span.field-type", visible(typeOf(schema), 60)),
    typeof schema["x-mcp-header"] === "string" ? h("span.chip", { title: "In 2026 also sent as this HTTP header" }, `Mcp-Param-${visible(schema["x-mcp-header"], 60)}`) : null,
  ];
  let element;
  const described = `${about.id} ${hint.id}`;
  if (context.top) {
    element = h("div.fields", control, hint);
  } else if (group) {
    element = h("fieldset.field", { "aria-describedby": described }, h("legend", title), h("div.marks", marks), about, control, hint);
  } else {
    const id = freshId("field");
    const target = control.matches("input, select, textarea") ? control : control.querySelector("input, select, textarea");
    target.id = id;
    target.setAttribute("aria-describedby", described);
    if (context.required) target.setAttribute("aria-required", "true");
    element = h("div.field", h("div.field-head", h("label", { for: id }, title), marks), about, control, hint);
  }
  if (!about.hasChildNodes()) about.remove();
  return {
    element,
    hint(text) {
      hint.textContent = text ?? "";
      element.classList.toggle("wrong", Boolean(text));
      return text ? 1 : 0;
    },
  };
}

function typeOf(schema) {
  const type = Array.isArray(schema.type) ? schema.type.join(" | ") : schema.type;
  if (type === "array") return `list of ${record(schema.items).type ?? "values"}`;
  return [type ?? (schema.enum ? "choice" : "any"), schema.format].filter((one) => typeof one === "string").join(", ");
}

function factsOf(schema) {
  const facts = [];
  for (const [key, text] of [["minimum", "≥"], ["exclusiveMinimum", ">"], ["maximum", "≤"], ["exclusiveMaximum", "<"], ["minLength", "at least, in characters:"], ["maxLength", "at most, in characters:"], ["minItems", "at least, in items:"], ["maxItems", "at most, in items:"], ["multipleOf", "a multiple of"], ["pattern", "matches"]]) {
    if (typeof schema[key] === "number" || typeof schema[key] === "string") facts.push(`${text} ${visible(schema[key], 80)}`);
  }
  if (has(schema, "default") && schema.default !== "") facts.push(`default ${visible(label(schema.default), 80)}`);
  return facts.join(" · ");
}

const placeholder = (schema) => (has(schema, "default") ? visible(label(schema.default), 80) : EXAMPLES[schema.format] ?? "");

function stringField(schema, context) {
  const type = INPUT_TYPES[schema.format];
  const control = type
    ? h("input", { type, placeholder: placeholder(schema), autocomplete: "off" })
    : h("textarea", { rows: schema.format === "textarea" || schema.maxLength > 500 ? 3 : 1, placeholder: placeholder(schema), autocomplete: "off", spellcheck: "false" });
  context.suggest?.(control, context.key);
  const framed = frame(schema, context, control);
  const field = {
    element: framed.element,
    read: () => (control.value === "" && !context.required ? undefined : control.value),
    write: (value) => { control.value = value === undefined || value === null ? "" : typeof value === "string" ? value : label(value); },
    check() {
      const { value } = control;
      if (value === "") return framed.hint(context.required && schema.minLength > 0 ? "This is required." : "");
      const length = [...value].length;
      if (length < schema.minLength) return framed.hint(`Shorter than ${schema.minLength} characters.`);
      if (length > schema.maxLength) return framed.hint(`Longer than ${schema.maxLength} characters.`);
      return framed.hint(type && !control.validity.valid ? `This does not look like ${schema.format === "uri" ? "an address" : `a ${schema.format}`}.` : "");
    },
  };
  if (context.prefill && has(schema, "default")) field.write(schema.default);
  control.addEventListener("change", () => field.check());
  return field;
}

function numberField(schema, context) {
  const control = h("input", { type: "text", inputmode: schema.type === "integer" ? "numeric" : "decimal", placeholder: placeholder(schema), autocomplete: "off" });
  const framed = frame(schema, context, control);
  const read = () => {
    const text = control.value.trim();
    if (text === "") return undefined;
    return Number.isFinite(Number(text)) ? Number(text) : text;
  };
  const field = {
    element: framed.element,
    read,
    write: (value) => { control.value = value === undefined || value === null ? "" : typeof value === "object" ? label(value) : String(value); },
    check() {
      const value = read();
      if (value === undefined) return framed.hint(context.required ? "This is required." : "");
      if (typeof value !== "number") return framed.hint("This is not a number; it is sent as text.");
      if (schema.type === "integer" && !Number.isInteger(value)) return framed.hint("This is not a whole number.");
      if (Number.isInteger(value) && !Number.isSafeInteger(value)) return framed.hint("Too large to be exact here.");
      if (value < schema.minimum || value <= schema.exclusiveMinimum) return framed.hint(`Less than allowed (${schema.minimum ?? schema.exclusiveMinimum}).`);
      if (value > schema.maximum || value >= schema.exclusiveMaximum) return framed.hint(`More than allowed (${schema.maximum ?? schema.exclusiveMaximum}).`);
      return framed.hint("");
    },
  };
  if (context.prefill && has(schema, "default")) field.write(schema.default);
  control.addEventListener("change", () => field.check());
  return field;
}

function booleanField(schema, context) {
  if (context.required) {
    const control = h("input", { type: "checkbox", checked: schema.default === true });
    const framed = frame(schema, context, control);
    framed.element.classList.add("check");
    return { element: framed.element, read: () => control.checked, write: (value) => { control.checked = value === true; }, check: () => 0 };
  }
  return choiceField(schema, [[true, "true"], [false, "false"]], context);
}

function choiceField(schema, choices, context) {
  const pairs = choices.map(([, title], index) => [String(index), title]);
  if (!context.required) pairs.unshift(["", has(schema, "default") ? `not sent (default ${label(schema.default)})` : "not sent"]);
  const control = select(pairs, undefined);
  const framed = frame(schema, context, control);
  let other; // a value that is none of the choices
  const field = {
    element: framed.element,
    read: () => (control.value === "other" ? other : control.value === "" ? undefined : choices[Number(control.value)][0]),
    write(value) {
      control.querySelector('[value="other"]')?.remove();
      if (value === undefined) { control.value = context.required ? "0" : ""; return; }
      const text = label(value);
      const index = choices.findIndex(([one]) => label(one) === text);
      if (index < 0) {
        other = value;
        control.append(h("option", { value: "other" }, visible(text, 80)));
      }
      control.value = index < 0 ? "other" : String(index);
    },
    check: () => framed.hint(control.value === "other" ? "This is none of the values of the schema." : ""),
  };
  if ((context.prefill || context.required) && has(schema, "default")) field.write(schema.default);
  return field;
}

function nullableField(schema, context) {
  const inner = makeField(schema, { ...context, required: context.required });
  const box = h("input", { type: "checkbox", onchange: () => sync() });
  const controls = h("div.nullable", inner.element, h("label.inline", box, " null"));
  const sync = () => { inner.element.inert = box.checked; inner.element.classList.toggle("off", box.checked); };
  return {
    element: controls,
    read: () => (box.checked ? null : inner.read()),
    write(value) { box.checked = value === null; sync(); if (value !== null) inner.write(value); },
    check: () => (box.checked ? 0 : inner.check()),
  };
}

function variantField(several, rest, context) {
  const schemas = several.map((one) => resolve(one, context.root));
  const pairs = schemas.map((one, index) => [String(index), typeof one.title === "string" ? one.title : typeOf(one)]);
  if (!context.required) pairs.unshift(["", "not sent"]);
  const place = h("div.variant");
  const control = select(pairs, undefined, () => swap());
  const framed = frame({ type: "choice", description: rest.description }, context, h("div", control, place));
  const fields = new Map();
  const inner = () => fields.get(control.value);
  function swap() {
    if (control.value !== "" && !fields.has(control.value)) {
      const schema = schemas[Number(control.value)];
      fields.set(control.value, isNull(schema)
        ? { element: h("code", "null"), read: () => null, write() {}, check: () => 0 }
        : makeField(schema, { ...context, top: false, required: true, depth: context.depth + 1, key: "value", title: undefined }));
    }
    show(place, inner()?.element);
  }
  swap();
  return {
    element: framed.element,
    read: () => inner()?.read(),
    write(value) {
      const index = value === undefined ? -1 : schemas.findIndex((one) => matches(one, value));
      control.value = value === undefined && !context.required ? "" : String(Math.max(0, index));
      swap();
      inner()?.write(value);
    },
    check: () => inner()?.check() ?? 0,
  };
}

/** Whether the value has the type of the schema and its constants: enough to choose among variants. */
function matches(schema, value) {
  const type = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  if (Array.isArray(schema.enum)) return schema.enum.some((one) => one === value);
  if (has(schema, "const")) return schema.const === value;
  if (schema.type === "integer") return type === "number" && Number.isInteger(value);
  if (schema.type !== type && !(schema.properties && type === "object")) return false;
  if (type !== "object") return true;
  return list(schema.required).every((key) => has(value, key))
    && Object.entries(record(schema.properties)).every(([key, one]) => !has(value, key) || !has(record(one), "const") || record(one).const === value[key]);
}

function arrayField(schema, context) {
  const item = resolve(Array.isArray(schema.items) ? {} : schema.items, context.root);
  const choices = options(item);
  if (choices && schema.uniqueItems !== false && choices.length <= 50) return checksField(schema, choices, context);
  const rows = h("div.rows");
  let fields = [];
  let sent = context.required;
  const remove = (entry) => { fields = fields.filter((one) => one !== entry); entry.row.remove(); number(); };
  const number = () => fields.forEach((entry, index) => { entry.remove.setAttribute("aria-label", `Remove item ${index + 1}`); });
  const add = (value) => {
    if (fields.length >= MOST_FIELDS) return;
    const field = makeField(schema.items ?? {}, { ...context, top: false, required: true, depth: context.depth + 1, key: `item ${fields.length + 1}`, title: undefined });
    if (value !== undefined) field.write(value);
    const entry = { field };
    entry.remove = button("×", () => remove(entry), "small quiet");
    entry.row = h("div.item", field.element, entry.remove);
    fields.push(entry);
    rows.append(entry.row);
    sent = true;
    number();
    return entry;
  };
  const adder = button("Add item", () => add()?.row.querySelector("input, select, textarea")?.focus(), "small");
  const framed = frame(schema, context, h("div", rows, adder), { group: true });
  const field = {
    element: framed.element,
    read: () => (fields.length || sent ? fields.map((entry) => entry.field.read() ?? null) : undefined),
    write(value) {
      fields = [];
      rows.textContent = "";
      sent = context.required || value !== undefined;
      for (const one of list(value)) add(one);
    },
    check() {
      const inner = fields.reduce((sum, entry) => sum + entry.field.check(), 0);
      if (fields.length < schema.minItems && sent) return inner + framed.hint(`Fewer than ${schema.minItems} items.`);
      return inner + framed.hint(fields.length > schema.maxItems ? `More than ${schema.maxItems} items.` : "");
    },
  };
  if (context.prefill && Array.isArray(schema.default)) field.write(schema.default);
  return field;
}

function checksField(schema, choices, context) {
  const boxes = choices.map(([, title]) => h("input", { type: "checkbox" , "aria-label": visible(title, 80) }));
  const body = h("div.checks", choices.map(([, title], index) => h("label.inline", boxes[index], name(title))));
  const framed = frame(schema, context, body, { group: true });
  const field = {
    element: framed.element,
    read() {
      const chosen = choices.filter((_, index) => boxes[index].checked).map(([value]) => value);
      return chosen.length || context.required ? chosen : undefined;
    },
    write(value) {
      const texts = new Set(list(value).map(label));
      choices.forEach(([one], index) => { boxes[index].checked = texts.has(label(one)); });
    },
    check() {
      const count = boxes.filter((box) => box.checked).length;
      if (count < schema.minItems) return framed.hint(`Fewer than ${schema.minItems} are chosen.`);
      return framed.hint(count > schema.maxItems ? `More than ${schema.maxItems} are chosen.` : "");
    },
  };
  if (context.prefill) field.write(schema.default);
  return field;
}

function objectField(schema, context) {
  const properties = Object.entries(record(schema.properties));
  const required = new Set(list(schema.required));
  const body = h("div.fields");
  const fields = new Map();
  let extras = Object.create(null); // members that have no field
  let made = false;
  let sent = context.required;
  const make = () => {
    if (made) return;
    made = true;
    for (const [key, one] of properties.slice(0, MOST_FIELDS)) {
      const field = makeField(one, { ...context, top: false, depth: context.depth + 1, key, title: undefined, required: required.has(key) });
      fields.set(key, field);
      body.append(field.element);
    }
    if (properties.length > MOST_FIELDS) put(body, h("p.note", `${properties.length - MOST_FIELDS} more members: use the JSON tab.`));
    if (properties.length === 0 && context.top) put(body, h("p.note", "No arguments."));
  };
  const optional = !context.top && !context.required;
  const toggle = optional ? button("Add", () => setSent(!sent), "small") : null;
  const setSent = (on) => {
    sent = on;
    if (on) make();
    if (!toggle) return;
    body.hidden = !on;
    toggle.textContent = on ? "Remove" : "Add";
  };
  const framed = frame(schema, context, h("div", toggle, body), { group: true });
  setSent(sent);
  return {
    element: framed.element,
    read() {
      if (!sent) return undefined;
      const value = Object.create(null);
      for (const [key, field] of fields) {
        const one = field.read();
        if (one !== undefined) value[key] = one;
      }
      for (const key of Object.keys(extras)) value[key] = extras[key];
      return value;
    },
    write(value) {
      const members = record(value);
      setSent(!optional || value !== undefined);
      extras = Object.create(null);
      if (!sent) return;
      for (const key of Object.keys(members)) if (!fields.has(key)) extras[key] = members[key];
      for (const [key, field] of fields) field.write(has(members, key) ? members[key] : undefined);
    },
    check: () => (sent ? [...fields.values()].reduce((sum, field) => sum + field.check(), 0) : 0),
  };
}

function jsonField(schema, context) {
  const control = h("textarea", { rows: 2, class: "code", placeholder: has(schema, "default") ? visible(label(schema.default), 80) : "JSON", spellcheck: "false" });
  const framed = frame(schema, { ...context, top: false, key: context.key ?? "value" }, control);
  return {
    element: framed.element,
    read() {
      const text = control.value.trim();
      if (text === "") return undefined;
      try { return JSON.parse(text); } catch { return control.value; }
    },
    write: (value) => { control.value = value === undefined ? "" : stringify(value); },
    check() {
      const text = control.value.trim();
      if (text === "") return framed.hint(context.required ? "This is required." : "");
      try { JSON.parse(text); } catch { return framed.hint("This is not JSON; it is sent as text."); }
      return framed.hint("");
    },
  };
}

/** A form and raw JSON as two tabs of the same value. */
export class Editor {
  constructor(schema, { value = {}, tab = "form", onchange, suggest, label: text = "Arguments" } = {}) {
    this.form = new Form(schema, { suggest, onchange: () => onchange?.(this.value) });
    this.form.value = value;
    this.text = h("textarea", {
      class: "code", rows: 8, spellcheck: "false", "aria-label": `${text} as JSON`,
      oninput: () => { this.hint(); onchange?.(this.value); },
    });
    this.wrong = h("p.hint");
    this.tab = tab;
    this.element = h("div.editor");
    this.draw(tab);
  }

  draw(tab) {
    const choose = (key) => button(key === "form" ? "Form" : "JSON", () => this.choose(key), { class: "segment", "aria-pressed": key === tab });
    this.bar = h("div.segments", { role: "group", "aria-label": "Edit as" }, choose("form"), choose("json"));
    this.tab = tab;
    if (tab === "json") this.text.value = stringify(this.form.value);
    this.hint();
    show(this.element, this.bar, tab === "form" ? this.form.element : h("div.raw", this.text, this.wrong));
  }

  choose(key) {
    if (key === this.tab) return;
    if (key === "form") {
      const value = this.value;
      if (value === undefined) return this.text.focus();
      this.form.value = value;
    }
    this.draw(key);
    this.bar.querySelector('[aria-pressed="true"]').focus();
  }

  hint() {
    if (this.tab !== "json") return;
    let text = "";
    try { JSON.parse(this.text.value || "{}"); } catch (error) { text = `Not JSON: ${error.message}`; }
    this.wrong.textContent = visible(text, 200);
  }

  /** What would be sent; undefined if the JSON can't be read. */
  get value() {
    if (this.tab === "form") return this.form.value;
    try { return JSON.parse(this.text.value || "{}"); } catch { return undefined; }
  }

  set value(value) {
    this.form.value = value;
    this.draw(this.tab);
  }

  check() { return this.tab === "form" ? this.form.check() : 0; }
}
