// Forms from JSON Schemas. Hints are only hints: whatever is entered can be sent.
import { announce, button, check, code, decode, fill, freshId, h, has, list, memory, name, own, plain, put, record, segments, select, show, stringify, visible } from "./dom.js";

const CONTROLS = "input, select, textarea";
const MOST_FIELDS = 200;
const MOST_OPTIONS = 1000;
const DEEPEST = 12;
const MOST_ON_A_LINE = 200;
/** Formats of strings: the type of the input, an example, and what values look like where the input does not check it. */
const FORMATS = {
  date: { input: "date" },
  email: { input: "email", example: "ada@example.com" },
  uri: { input: "url", example: "https://example.com/" },
  "date-time": { example: "2026-07-28T12:00:00Z", pattern: /^\d{4}-\d\d-\d\d[t ]\d\d:\d\d:\d\d(\.\d+)?(z|[+-]\d\d:\d\d)$/i },
  time: { example: "12:00:00", pattern: /^\d\d:\d\d:\d\d(\.\d+)?(z|[+-]\d\d:\d\d)?$/i },
  duration: { example: "PT1H30M", pattern: /^[+-]?p(?=t?\d)(\d+([.,]\d+)?[ymwd])*(t(\d+([.,]\d+)?[hms])+)?$/i },
  uuid: { example: "123e4567-e89b-12d3-a456-426614174000", pattern: /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i },
  decimal: { example: "19.90", pattern: /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i },
};
const formatOf = (schema) => (typeof schema.format === "string" && own(FORMATS, schema.format)) || {};
const less = (size, bound) => size < bound;
const more = (size, bound) => size > bound;
/** Keywords that bound values of a type: what stands beside the field, and whether the size of a value is out of bounds. */
const BOUNDS = {
  minimum: ["number", "≥ #", less],
  exclusiveMinimum: ["number", "> #", (size, bound) => size <= bound],
  maximum: ["number", "≤ #", more],
  exclusiveMaximum: ["number", "< #", (size, bound) => size >= bound],
  multipleOf: ["number", "a multiple of #"],
  minLength: ["string", "at least # characters", less],
  maxLength: ["string", "at most # characters", more],
  pattern: ["string", "matches #"],
  minItems: ["array", "at least # items", less],
  maxItems: ["array", "at most # items", more],
};

/** Follow references inside the document and merge `allOf`. */
function resolve(schema, root, hops = 20) {
  let found = record(schema);
  while (typeof found.$ref === "string" && hops-- > 0) {
    const { $ref, ...rest } = found;
    if (!$ref.startsWith("#")) break;
    let target = root;
    for (const part of $ref.slice(1).split("/").filter(Boolean)) {
      target = own(Object(target), decode(part).replaceAll("~1", "/").replaceAll("~0", "~"));
    }
    found = { ...record(target), ...rest };
  }
  const parts = list(found.allOf).slice(0, 20);
  if (parts.length === 0 || hops <= 0) return found;
  const all = [found, ...parts.map((part) => resolve(part, root, hops - 5))];
  const merge = (objects) => Object.fromEntries(objects.flatMap((one) => Object.entries(record(one)))); // also a member `__proto__`
  return {
    ...merge(all.toReversed()), allOf: undefined, required: all.flatMap((one) => list(one.required)),
    properties: merge(all.map((one) => one.properties)),
  };
}

const isNull = (schema) => record(schema).type === "null" || record(schema).const === null;

const alternatives = (schema) => (list(schema.oneOf).length ? schema.oneOf : list(schema.anyOf));

function variants(schema) {
  if (alternatives(schema).length) return alternatives(schema).slice(0, 50);
  return Array.isArray(schema.type) ? schema.type.slice(0, 10).map((type) => ({ ...schema, type })) : null;
}

/** The values to choose from, as [value, title] pairs, or null. */
function options(schema) {
  const choices = has(schema, "const") ? [schema] : alternatives(schema);
  if (choices.length && choices.every((one) => has(record(one), "const"))) {
    return choices.slice(0, MOST_OPTIONS).map((one) => [one.const, one.title ?? label(one.const)]);
  }
  if (!list(schema.enum).length) return null;
  return schema.enum.slice(0, MOST_OPTIONS).map((value, index) => [value, list(schema.enumNames)[index] ?? label(value)]);
}

const label = (value) => (typeof value === "string" ? value : stringify(value, 0));

function makeField(schema, context) {
  const resolved = resolve(schema, context.root);
  if (context.depth > DEEPEST) return jsonField(resolved, context);
  if (!context.required && resolved.default === null) return withoutNull(resolved, context);
  const choices = options(resolved);
  if (choices) return choiceField(resolved, choices.map(constant), context);
  const isObject = Object.keys(record(resolved.properties)).length > 0;
  const several = isObject ? null : variants(resolved);
  if (several) {
    const real = several.map((one) => resolve(one, context.root)).filter((one) => !isNull(one));
    const { anyOf, oneOf, ...rest } = resolved;
    const inner = real.length === 1 ? { ...rest, ...real[0] } : isDecimal(real) && { ...rest, type: "string", format: "decimal" };
    if (!inner) return variantField(several, resolved.description, context);
    return real.length === several.length ? makeField(inner, context) : nullableField(inner, context);
  }
  if (isObject || (context.depth === 0 && resolved.type === "object")) return objectField(resolved, context);
  const make = { string: stringField, number: numberField, integer: numberField, boolean: booleanField, array: arrayField };
  return (own(make, plain(resolved.type)) ?? jsonField)(resolved, context);
}

/** A field of an argument that is null where it is left out: null needs no control of its own. */
function withoutNull({ default: none, ...schema }, context) {
  const isOther = (one) => !isNull(resolve(one, context.root));
  for (const key of ["anyOf", "oneOf"]) if (list(schema[key]).some(isOther)) schema[key] = schema[key].filter(isOther);
  if (list(schema.type).length > 1) schema.type = schema.type.filter((type) => type !== "null");
  if (list(schema.enum).length > 1 && !schema.enumNames) schema.enum = schema.enum.filter((value) => value !== null);
  const field = makeField(schema, context);
  return { ...field, write: (value) => field.write(value ?? undefined) };
}

/** Whether these are a number, and a text that is one: what has more digits than a number of JSON keeps. */
function isDecimal(schemas) {
  const [text] = schemas.filter((one) => one.type === "string");
  return schemas.length === 2 && text && schemas.some((one) => one.type === "number") && (text.format === "decimal" || takesNumbersOnly(text.pattern));
}

function takesNumbersOnly(pattern) {
  if (typeof pattern !== "string") return false;
  try { return RegExp(pattern).test("1.5") && !RegExp(pattern).test("a"); } catch { return false; }
}

const within = (context, key, required = true, role = "") => ({ ...context, depth: context.depth + 1, key, required, role });

const defaultOf = (schema) => `default ${visible(label(schema.default), 80)}`;

/**
 * A field. `read()` returns undefined for what is not sent, `wrong(value)` a text or "", `inner()` the fields inside.
 * A group has several controls.
 */
function controlField(schema, context, control, { read, write, wrong = () => "", inner = () => [], group = false }) {
  const hint = h("p.hint", { id: freshId() });
  const bounds = boundsOf(schema).map(([text]) => text);
  const showsDefault = control.matches(".choice, textarea, input:not([type=date])");
  if (has(schema, "default") && schema.default !== "" && !showsDefault) bounds.push(defaultOf(schema));
  const about = h("p.about", { id: freshId() }, name(schema.description, 1000), " ", bounds.length > 0 && h("span.bounds", bounds.join(" · ")));
  const header = schema["x-mcp-header"];
  const title = h(group ? "span.field-name" : "label.field-name", { id: freshId() }, name(context.key ?? "value"));
  const head = h("div.field-head", title,
    context.required && context.role !== "item" && h("span.required", "required"),
    h("span.field-type", visible(typeOf(schema), 60)),
    header && h("span.chip", { title: "In 2026 also sent as this HTTP header" }, `Mcp-Param-${visible(header, 60)}`));
  const element = context.depth === 0 && group ? control : h("div.field", head, about, control, hint);
  const described = { "aria-describedby": `${about.id} ${hint.id}` };
  if (element === control) control.className = "fields";
  else if (group) fill(element, { role: "group", "aria-labelledby": title.id, ...described });
  const target = control.matches("div") ? control.firstChild : control;
  if (!group) {
    target.id = freshId();
    title.htmlFor = target.id;
    fill(target, { ...described, "aria-required": context.required });
  }
  const field = {
    element, read, write,
    check() {
      for (const one of inner()) one.check();
      const value = read();
      const isMissing = value === undefined && context.required && inner().length === 0;
      if (control.validity?.badInput) hint.textContent = `This ${control.type} is not complete.`;
      else if (value === undefined) hint.textContent = isMissing ? "This is required." : "";
      else hint.textContent = wrong(value) || outOfBounds(schema, value);
      const isWrong = hint.textContent !== "";
      element.classList.toggle("wrong", isWrong);
      element.classList.toggle("missing", isMissing);
      if (!group) target.ariaInvalid = isWrong;
    },
  };
  if (context.prefill && has(schema, "default") && !group) write(schema.default);
  return field;
}

function typeOf(schema) {
  const type = Array.isArray(schema.type) ? schema.type.join(" | ") : schema.type;
  if (type === "array") return `list of ${record(schema.items).type ? typeOf(schema.items) : "values"}`;
  if (type === "string" && typeof schema.format === "string") return schema.format;
  return type ?? (schema.enum ? "choice" : "any");
}

const kindOf = (value) => (value === null ? "null" : Array.isArray(value) ? "array" : typeof value);

const sizeOf = (value) => (typeof value === "string" ? [...value].length : value.length ?? value);

/** The bounds of a schema: what they say, and whether a value is out of them. */
function boundsOf(schema) {
  const stated = Object.keys(BOUNDS).filter((key) => ["number", "string"].includes(typeof schema[key]));
  return stated.map((key) => {
    const [type, text, isOut] = BOUNDS[key];
    return [text.replace(schema[key] === 1 ? /s$/ : "", "").replace("#", () => visible(schema[key], 80)), (value) => kindOf(value) === type && isOut?.(sizeOf(value), schema[key])];
  });
}

function outOfBounds(schema, value) {
  const broken = boundsOf(schema).find(([, isOut]) => isOut(value));
  return broken ? `Expected: ${broken[0]}.` : "";
}

/** A field of one text. `parse` makes the value, `format` the text. */
function textField(schema, context, control, { parse, format = plain, wrong }) {
  const example = formatOf(schema).example;
  control.placeholder = has(schema, "default") && schema.default !== "" ? defaultOf(schema) : example ? `such as ${example}` : "";
  control.autocomplete = "off";
  control.spellcheck = false;
  const write = (value) => { control.value = format(value); };
  const field = controlField(schema, context, control, { read: () => parse(control.value), write, wrong });
  control.addEventListener("change", () => setTimeout(field.check, 300)); // else a hint moves the button of a click
  return field;
}

function stringField(schema, context) {
  const { input, example, pattern } = formatOf(schema);
  const isLine = input || pattern || schema.maxLength <= MOST_ON_A_LINE;
  const control = isLine ? h("input", { type: input ?? "text", inputmode: schema.format === "decimal" ? "decimal" : null })
    : h("textarea", { rows: schema.maxLength > 500 ? 3 : 1 });
  context.suggest?.(control, context.key);
  return textField(schema, context, control, {
    parse: (text) => (text === "" ? undefined : text),
    wrong(value) {
      const isLike = pattern ? pattern.test(value) : control.validity.valid;
      return isLike || !example ? "" : `Expected: ${schema.format}, such as ${example}.`;
    },
  });
}

function numberField(schema, context) {
  const isInteger = schema.type === "integer";
  return textField(schema, context, h("input", { type: "text", inputmode: isInteger ? "numeric" : "decimal" }), {
    parse(text) {
      if (text.trim() === "") return undefined;
      return Number.isFinite(Number(text)) ? Number(text) : text.trim();
    },
    wrong(value) {
      if (typeof value !== "number") return "This is not a number; it is sent as text.";
      if (!Number.isInteger(value)) return isInteger ? "This is not a whole number." : "";
      return Number.isSafeInteger(value) ? "" : "Too large to be exact here.";
    },
  });
}

function jsonField(schema, context) {
  const parse = (text) => {
    if (text.trim() === "") return undefined;
    try { return JSON.parse(text); } catch { return text; }
  };
  const control = h("textarea.code", { rows: 2 });
  const field = textField(schema, context, control, {
    parse, format: (value) => (value === undefined ? "" : stringify(value)),
    wrong: (value) => (value === control.value ? "This is not JSON; it is sent as text." : ""),
  });
  control.placeholder ||= "JSON";
  return field;
}

function booleanField(schema, context) {
  if (!context.required || !has(schema, "default")) return choiceField(schema, [true, false].map((one) => constant([one, String(one)])), context);
  const control = h("input", { type: "checkbox", checked: schema.default === true });
  return controlField(schema, context, control, { read: () => control.checked, write: (value) => { control.checked = value === true; } });
}

/** A select of choices: a title, whether a value is meant by it, what makes the field inside. Other values become choices when they are written. */
function choiceField(schema, choices, context, variant = false) {
  const unsent = context.required ? "choose" : has(schema, "default") ? `not sent (${defaultOf(schema)})` : "not sent";
  const pairs = choices.map(([title], index) => [index, title]);
  const known = choices.length;
  const chosen = context.required && (variant || known === 1 || has(schema, "default"));
  const control = select(null, chosen ? pairs : [["", unsent], ...pairs], draw);
  const place = h("div.variant");
  const fields = new Map();
  const inner = () => fields.get(control.value);
  function draw() {
    if (control.value && !inner()) fields.set(control.value, choices[control.value][2]());
    show(place, inner()?.element);
  }
  draw();
  const field = controlField(schema, context, h("div.choice", control, place), {
    read: () => inner()?.read(),
    write(value) {
      const find = (isPart) => choices.findIndex(([, isMeant]) => isMeant(value, isPart));
      let index = find();
      if (index < 0) index = find(true);
      if (index < 0 && value !== undefined) {
        index = choices.push(constant([value, label(value)])) - 1;
        control.append(h("option", { value: index }, visible(label(value), 80)));
      }
      control.value = index >= 0 ? index : chosen ? 0 : "";
      draw();
      inner()?.write(value);
    },
    inner: () => (inner() ? [inner()] : []),
    wrong: () => (control.value >= known ? "This is none of the values of the schema." : ""),
  });
  if (context.required && has(schema, "default")) field.write(schema.default);
  return field;
}

const fixed = (value, element) => ({ element, read: () => value, write() {}, check() {} });
const constant = ([value, title]) => [title, (one) => label(one) === label(value), () => fixed(value)];

function nullableField(schema, context) {
  const inner = makeField(schema, context);
  const box = h("input", { type: "checkbox", onchange: () => { inner.element.inert = box.checked; } });
  return {
    element: h("div.nullable", inner.element, check("send null", box)),
    read: () => (box.checked ? null : inner.read()),
    write(value) {
      box.checked = inner.element.inert = value === null;
      if (value !== null) inner.write(value);
    },
    check: () => { if (!box.checked) inner.check(); },
  };
}

function variantField(several, description, context) {
  const choices = several.map((one) => resolve(one, context.root)).map((schema) => [
    typeof schema.title === "string" ? schema.title : typeOf(schema), (...value) => matches(schema, ...value),
    () => (isNull(schema) ? fixed(null, code("null")) : makeField(schema, within(context, "value", true, "variant"))),
  ]);
  return choiceField({ type: "choice", description }, choices, context, true);
}

/** Whether the value has the type of the schema and its constants: enough to choose among variants. A part may lack members. */
function matches(schema, value, isPart) {
  if (Array.isArray(schema.enum)) return schema.enum.includes(value);
  if (has(schema, "const")) return schema.const === value;
  if (schema.type === "integer") return Number.isInteger(value);
  const isObject = kindOf(value) === "object";
  if (schema.type !== kindOf(value) && !(schema.properties && isObject)) return false;
  const fits = ([key, one]) => {
    const member = own(record(schema.properties), key);
    return member === undefined ? !isPart : !has(Object(member), "const") || member.const === one;
  };
  return !isObject || (Object.entries(value).every(fits) && (isPart || list(schema.required).every((key) => has(value, key))));
}

function arrayField(schema, context) {
  const choices = options(resolve(schema.items, context.root));
  if (choices && schema.uniqueItems !== false && choices.length <= 50) return checksField(schema, choices, context);
  const rows = h("div.rows");
  let entries = [];
  let sent = context.required;
  const add = (value) => {
    if (entries.length >= MOST_FIELDS) return null;
    const field = makeField(schema.items ?? {}, within(context, `item ${entries.length + 1}`, true, "item"));
    if (value !== undefined) field.write(value);
    const remove = () => {
      entries = entries.filter((one) => one !== field);
      field.element.remove();
      entries.forEach((one, index) => { one.element.querySelector(".field-name").textContent = `item ${index + 1}`; });
      adder.focus();
    };
    field.element.querySelector(".field-head").append(button("×", remove, { class: "small quiet", title: "Remove this item", "aria-label": "Remove this item" }));
    entries.push(field);
    rows.append(field.element);
    sent = true;
    return field;
  };
  const adder = button("Add item", () => add()?.element.querySelector(CONTROLS)?.focus(), "small");
  const field = controlField(schema, context, h("div", rows, adder), {
    group: true,
    read: () => (sent ? entries.map((entry) => entry.read() ?? null) : undefined),
    write(value) {
      entries = [];
      rows.textContent = "";
      sent = context.required || Array.isArray(value);
      for (const one of list(value)) add(one);
    },
    inner: () => entries,
  });
  if (context.prefill && has(schema, "default")) field.write(schema.default);
  return field;
}

function checksField(schema, choices, context) {
  const boxes = choices.map(() => h("input", { type: "checkbox" }));
  const body = h("div.checks", choices.map(([, title], index) => check(name(title), boxes[index])));
  const field = controlField(schema, context, body, {
    group: true,
    read() {
      const chosen = choices.filter((_, index) => boxes[index].checked).map(([value]) => value);
      return chosen.length || context.required ? chosen : undefined;
    },
    write(value) {
      const texts = list(value).map(label);
      choices.forEach(([one], index) => { boxes[index].checked = texts.includes(label(one)); });
    },
  });
  if (context.prefill) field.write(schema.default);
  return field;
}

function objectField(schema, context) {
  const properties = Object.entries(record(schema.properties));
  const isOptional = !context.required;
  const body = h("div.fields");
  const fields = new Map();
  let extras = []; // members that have no field
  let sent = false;
  const toggle = button("", () => setSent(!sent), "small");
  const setSent = (on) => {
    sent = on;
    body.hidden = !on;
    toggle.textContent = on ? "Remove" : "Add";
    if (!on || body.hasChildNodes()) return;
    for (const [key, one] of properties.slice(0, MOST_FIELDS)) {
      const isTag = context.role === "variant" && has(record(one), "const");
      fields.set(key, makeField(one, within(context, key, isTag || list(schema.required).includes(key))));
      body.append(fields.get(key).element);
    }
    if (properties.length > MOST_FIELDS) put(body, h("p.muted", `${properties.length - MOST_FIELDS} more members: use the JSON tab.`));
    if (properties.length === 0) put(body, h("p.muted", "No arguments."));
  };
  setSent(!isOptional);
  return controlField(schema, context, h("div", isOptional && toggle, body), {
    group: true,
    read() {
      const members = [...fields].map(([key, field]) => [key, field.read()]).filter(([, value]) => value !== undefined);
      return sent ? Object.fromEntries([...members, ...extras]) : undefined;
    },
    write(value) {
      setSent(!isOptional || value !== undefined);
      extras = Object.entries(record(value)).filter(([key]) => !fields.has(key));
      for (const [key, field] of fields) field.write(own(record(value), key));
    },
    inner: () => (sent ? [...fields.values()] : []),
  });
}

/** Parse JSON, where an empty text is an empty object. What can't be parsed is undefined, and the hint says why. */
export function parseJson(text, hint) {
  hint.textContent = "";
  try { return JSON.parse(text || "{}"); } catch (error) { hint.textContent = visible(`Not JSON: ${error.message}`, 200); }
  return undefined;
}

/** A form and raw JSON of the same value, which survives a reload under `key`. `prefill` writes defaults into fields. */
export class Editor {
  constructor(schema, { key, value = key && memory.get(`values:${key}`), prefill, suggest }) {
    const save = () => {
      if (key && this.value !== undefined) memory.set(`values:${key}`, this.value);
      this.note.textContent = "";
    };
    this.field = makeField(schema, { root: schema, required: true, depth: 0, prefill, suggest });
    this.form = h("div", { oninput: save, onchange: save }, this.field.element);
    this.text = h("textarea.code", { rows: 8, spellcheck: "false", "aria-label": "Text of the JSON", oninput: save });
    this.hint = h("p.hint");
    this.note = h("p.hint.note");
    this.raw = h("div.raw", { hidden: true }, this.text, this.hint);
    this.element = h("div.editor", segments("Edit as", [["form", "Form"], ["json", "JSON"]], (tab) => this.choose(tab)), this.form, this.raw, this.note);
    if (value) this.value = value;
  }

  choose(tab) {
    const { value } = this;
    if (value === undefined) return this.#refuse(this.text);
    this.value = value;
    this.form.hidden = tab === "json";
    this.raw.hidden = tab === "form";
    return true;
  }

  get value() { return this.raw.hidden ? this.field.read() ?? {} : parseJson(this.text.value, this.hint); }

  set value(value) {
    this.field.write(value);
    this.text.value = stringify(value);
    this.hint.textContent = this.note.textContent = "";
  }

  /**
   * What is to be sent, after a check; undefined if nothing is. JSON that can't be read is not sent. A form that lacks something
   * required is sent when it is taken again as it is. The focus moves to the place.
   */
  take() {
    const { value } = this;
    if (value === undefined) return this.#refuse(this.text) || undefined;
    const isAgain = this.refused === stringify(value);
    this.refused = null;
    this.note.textContent = "";
    if (!this.raw.hidden) return value;
    this.field.check();
    const missing = [...this.form.querySelectorAll(".missing")].filter((one) => one.checkVisibility() && !one.closest("[inert]"));
    if (missing.length === 0 || isAgain) return value;
    this.refused = stringify(value);
    const names = missing.map((one) => one.querySelector(".field-name").textContent).join(", ");
    this.note.textContent = visible(`Not sent, since something is missing: ${names}. The same button again sends it as it is.`, 400);
    announce(this.note.textContent);
    return this.#refuse(missing[0].querySelector(CONTROLS)) || undefined;
  }

  #refuse(control) {
    control?.focus();
    return false;
  }
}
