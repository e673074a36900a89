// Start, the frame around the views, and which view the address shows.
import { button, byId, clock, decode, h, lines, linkButton, memory, name, number, redraw, show, visible } from "./dom.js";
import { follow, getState, tryCommand } from "./inspector.js";
import { questionView, TITLES } from "./questions.js";
import { ERAS, isFinal, store } from "./store.js";
import { getLook, hash, isNarrow, titleOf, ui } from "./view.js";
import { connectionChip } from "./connection.js";
import { pageOf } from "./tools.js";

/** The views in groups, each with its sign. A view is the default export of the module of its name. */
const GROUPS = [
  { tools: "◆", resources: "▤", prompts: "❝", apps: "▣" },
  { wire: "⇄", compare: "◫", history: "↺", logs: "≡", measures: "▥" },
  { contract: "§", findings: "△", connection: "⌁" },
];
const VIEWS = GROUPS.flatMap(Object.keys);
const views = new Map();
const counts = new Map();
/** Whether there is something to see in a view; there always is in the others. */
const FILLED = {
  tools: () => store.offers(ui.era, "tools").length,
  resources: () => store.offers(ui.era, "resources").length + store.offers(ui.era, "templates").length,
  prompts: () => store.offers(ui.era, "prompts").length,
  apps: () => store.offers(ui.era, "tools").some(pageOf),
  wire: () => store.messages.length,
  compare: () => store.pairs.length,
  history: () => store.calls.size,
  logs: () => store.logs.length,
  measures: () => store.spans.length + Object.keys(store.measures.tools).length,
  contract: () => store.contracts.length + store.restarts.length,
  findings: () => store.findings.length,
};
let current = null;

async function load(view) {
  const module = await import(`./${view}.js`);
  customElements.define(`gemel-${view}`, module.default);
}

function buildNavigation() {
  const item = ([key, sign]) => {
    counts.set(key, h("span.nav-count"));
    return h("li", h("a", { href: hash(key), "data-view": key },
      h("span.sign", { "aria-hidden": true }, sign), h("span", titleOf(key)), counts.get(key)));
  };
  show(byId("nav"), GROUPS.map((group) => h("ul", Object.entries(group).map(item))));
}

function openMenu(open) {
  byId("nav").classList.toggle("open", open);
  byId("menu").ariaExpanded = open;
}

function route() {
  const [first, ...parts] = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decode);
  const key = VIEWS.includes(first) ? first : "tools";
  const before = current;
  if (!views.has(key)) {
    views.set(key, document.createElement(`gemel-${key}`));
    byId("views").append(views.get(key));
  }
  current = views.get(key);
  if (before === current) current.route(parts);
  else {
    before?.leave();
    for (const link of byId("nav").querySelectorAll("a")) link.ariaCurrent = link.dataset.view === key ? "page" : null;
    if (document.activeElement === document.body) byId("main").focus({ preventScroll: true });
    current.enter(parts);
  }
  drawTitle();
}

function drawTitle() {
  document.title = `${current?.heading ?? ""} – ${byId("server").textContent} – Gemel`;
}

function drawHeader() {
  const [recent, old] = ERAS.map((era) => store.eras[era].connection);
  if (!memory.get("era-chosen")) {
    const fitting = old.state === "ready" && recent.state !== "connecting" && !store.eras[2026].wasReady ? "2025" : "2026";
    if (ui.era !== fitting) ui.setEra(fitting);
  }
  const server = store.eras[ui.era].connection.server ?? recent.server ?? old.server ?? {};
  const title = server.title ?? server.name;
  byId("server").textContent = visible(title ?? (store.target || "Connecting …"), 80);
  byId("version").textContent = server.version ? `version ${visible(server.version, 40)}` : "";
  byId("target").textContent = title ? visible(store.target, 120) : "";
  const chooser = (era) => button([era, " ", connectionChip(store.eras[era].connection)], () => {
    memory.set("era-chosen", true);
    ui.setEra(era);
  }, { "data-key": era, "aria-pressed": ui.era === era });
  redraw(byId("states"), ERAS.toReversed().map(chooser));
  drawTitle();
}

function drawReload() {
  const { error, at } = store.restarts.at(-1);
  byId("reload").textContent = `${error ? "Reload failed" : "Reloaded"} ${clock(at).slice(0, 8)}`;
  byId("reload").className = error ? "bad" : "muted";
}

const openCalls = () => store.callsThat((call) => !isFinal(call));

function drawCounts() {
  for (const [key, isFilled] of Object.entries(FILLED)) counts.get(key).parentElement.classList.toggle("bare", !isFilled());
  const set = (key, count, kind = "") => {
    counts.get(key).textContent = count ? number(count) : "";
    counts.get(key).className = `nav-count ${kind}`;
  };
  for (const key of ["tools", "resources", "prompts", "wire"]) set(key, FILLED[key]());
  set("history", openCalls().length, "busy");
  set("contract", store.contracts.at(-1)?.differences?.filter((one) => one.severity === "breaking").length, "bad");
  set("findings", store.findings.filter((one) => one.severity === "breaks").length, "bad");
}

const OFFLINE = {
  ended: "gemel dev has ended, or this address is no longer valid: open the address that it prints.",
  crowded: "Too many pages are open here: close one.",
  waiting: "No connection to gemel dev; trying again …",
};
let asked = new Map();

/** Why there is no connection, and what the server wrote last. */
function failure() {
  const { connection, since } = store.eras[ui.era];
  if (connection.state !== "failed" || ERAS.some((era) => store.eras[era].connection.state === "connecting")) return [];
  const text = store.written(ui.era, since);
  return h("p.banner.bad", h("span", `Not connected in ${ui.era}: `, name(connection.error, 2000)),
    button("Connect", () => tryCommand({ do: "connect", era: ui.era }), "small"),
    text && text !== `gemel: ${connection.error}` && lines(text));
}

/** What concerns the whole page: a lost process or server, and questions of a server that are not on the screen. */
function drawBanner() {
  const parts = [OFFLINE[store.online] ? h("p.banner.bad", OFFLINE[store.online]) : failure()].flat();
  const open = [...store.questions.values()].filter((one) => one.state === "open");
  const ofCalls = open.filter((one) => store.calls.has(one.call));
  const isShown = [...document.querySelectorAll("#views .question:not(.closed)")].some((one) => one.checkVisibility());
  const elsewhere = isShown ? [] : ofCalls.filter((one) => !location.hash.includes(encodeURIComponent(one.call)));
  if (elsewhere.length) {
    const [first] = elsewhere;
    const text = elsewhere.length === 1 ? ["A question waits: ", name(first.message || TITLES[first.type])] : `${elsewhere.length} questions wait.`;
    parts.push(h("p.banner.ask", h("span", text), " ", linkButton("Answer", hash("history", first.call))));
  }
  const others = open.filter((one) => !ofCalls.includes(one));
  asked = new Map(others.map((one) => [one.question, asked.get(one.question) ?? questionView(one)]));
  parts.push(...asked.values());
  const shown = byId("banner").children;
  const isSame = (part, index) => part === shown[index] || (part.matches("p") && part.textContent === shown[index]?.textContent);
  if (parts.length !== shown.length || !parts.every(isSame)) show(byId("banner"), parts); // what is typed stays
}

function setLook(value) {
  document.documentElement.style.colorScheme = value;
  localStorage.setItem("gemel:theme", value);
}

function keys(event) {
  const { key, target } = event;
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  const filter = current?.querySelector(".filter");
  if (key === "/" && filter && !target.matches("input, textarea, select")) {
    event.preventDefault();
    filter.focus();
    filter.select();
  } else if (key === "Escape") {
    openMenu(false);
    if (target === filter) {
      if (filter.value === "") filter.blur();
    } else if (current?.classList.contains("chosen") && isNarrow()) location.hash = hash(current.view);
    else if (target.closest(".detail")) current.querySelector(".list-box:not([hidden])")?.focus();
  }
}

async function startPage() {
  try { setLook(localStorage.getItem("gemel:theme") ?? ""); } catch { /* as the system */ }
  buildNavigation();
  byId("theme").onclick = () => setLook(getLook() === "dark" ? "light" : "dark");
  document.addEventListener("keydown", keys);
  document.querySelector(".skip").onclick = (event) => {
    event.preventDefault();
    byId("main").focus();
  };
  addEventListener("click", ({ target }) => openMenu(target.id === "menu" && !byId("nav").classList.contains("open")));
  let state;
  try { [state] = await Promise.all([getState(), ...VIEWS.map(load)]); } catch (error) {
    show(byId("banner"), h("p.banner.bad", visible(error.message), " ", button("Try again", () => location.reload())));
    return;
  }
  store.target = String(state.target ?? "");
  store.apps = state.apps ?? null;
  for (const era of ERAS) if (state.eras[era]) store.apply({ ...state.eras[era], kind: "connection", era });
  store.watch(["connection", "era"], drawHeader);
  store.watch(["restarts"], drawReload);
  store.watch(["offers", "era", "messages", "calls", "logs", "measures", "spans", "contracts", "restarts", "findings"], drawCounts);
  store.watch(["online", "questions", "calls", "connection", "era", "logs"], () => requestAnimationFrame(drawBanner)); // after the views
  setInterval(() => openCalls().length && store.changed("calls"), 1000); // for the time that they take
  addEventListener("hashchange", () => {
    openMenu(false);
    route();
    requestAnimationFrame(drawBanner);
  });
  drawHeader();
  route();
  follow(0); // with the current state of what was dropped
}

startPage();
