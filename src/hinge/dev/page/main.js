// Start, the frame around the views, and which view the address shows.
import { getState } from "./api.js";
import { button, clock, h, icon, memory, name, number, show, visible } from "./dom.js";
import { follow } from "./events.js";
import { questionView } from "./questions.js";
import { ERAS, isFinal, store } from "./store.js";
import { hash, ui } from "./view.js";
import "./tools.js";
import "./resources.js";
import "./prompts.js";
import "./wire.js";
import "./compare.js";
import "./history.js";
import "./logs.js";
import "./measures.js";
import "./contract.js";
import "./findings.js";
import { connectionChip } from "./connection.js";
import "./apps.js";

const VIEWS = [
  ["tools", "Tools"], ["resources", "Resources"], ["prompts", "Prompts"], ["apps", "Apps"], null,
  ["wire", "Wire"], ["compare", "Compare"], ["history", "History"], ["logs", "Logs"], ["measures", "Measures"], null,
  ["contract", "Contract"], ["findings", "Findings"], ["connection", "Connection"],
];
const byId = (id) => document.getElementById(id);
const views = new Map();
const counts = new Map();
let current = null;

function buildNavigation() {
  const items = [];
  for (const view of VIEWS) {
    if (view === null) { items.at(-1).className = "apart"; continue; }
    const [key, title] = view;
    const count = h("span.nav-count");
    counts.set(key, count);
    items.push(h("li", h("a", { href: hash(key), "data-view": key, onclick: () => openMenu(false) }, icon(key), h("span", title), count)));
  }
  show(byId("nav"), h("ul", items));
}

function openMenu(open) {
  byId("nav").classList.toggle("open", open);
  byId("menu").setAttribute("aria-expanded", open);
}

function route() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter((part) => part !== "").map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  const key = VIEWS.some((view) => view?.[0] === parts[0]) ? parts[0] : "tools";
  memory.set("hash", location.hash);
  if (current?.key !== key) {
    current?.view.leave();
    if (!views.has(key)) {
      const view = document.createElement(`hinge-${key}`);
      views.set(key, view);
      byId("views").append(view);
    }
    current = { key, view: views.get(key) };
    for (const link of byId("nav").querySelectorAll("a")) {
      if (link.dataset.view === key) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
    }
    const focused = document.activeElement;
    if (focused === document.body || focused === null) byId("main").focus({ preventScroll: true });
    current.view.enter(parts.slice(1));
  } else {
    current.view.route(parts.slice(1));
  }
  title();
}

function title() {
  const view = VIEWS.find((one) => one?.[0] === current?.key)?.[1] ?? "";
  document.title = `${view} – ${byId("server").textContent} – Hinge`;
}

function drawHeader() {
  if (!memory.get("era-chosen")) {
    const only2025 = store.eras[2025].connection.state === "ready" && ["off", "failed"].includes(store.eras[2026].connection.state);
    if (ui.era !== (only2025 ? "2025" : "2026")) ui.setEra(only2025 ? "2025" : "2026");
  }
  const { connection } = store.era(ui.era);
  const other = ERAS.map((era) => store.eras[era].connection.server).find(Boolean);
  const server = connection.server ?? other ?? {};
  byId("server").textContent = visible(server.title ?? server.name ?? (store.target || "Connecting …"), 80);
  byId("version").textContent = visible(server.version ?? "", 40);
  byId("target").textContent = visible(store.target, 120);
  const held = byId("states").contains(document.activeElement) ? document.activeElement.dataset.era : null;
  show(byId("states"), ERAS.slice().reverse().map((era) => {
    const one = store.eras[era].connection;
    const control = h("button", { type: "button", class: `era-switch era-${era}`, "data-era": era, "aria-pressed": ui.era === era, onclick: () => { memory.set("era-chosen", true); ui.setEra(era); } },
      h("span", era), connectionChip(one));
    return control;
  }));
  if (held) byId("states").querySelector(`[data-era="${held}"]`)?.focus();
  title();
}

function drawReload() {
  const last = store.restarts.at(-1);
  byId("reload").textContent = last ? `${last.error ? "Reload failed" : "Reloaded"} ${clock(last.at).slice(0, 8)}` : "";
  byId("reload").classList.toggle("bad-text", Boolean(last?.error));
}

function drawCounts() {
  const offers = (section) => store.offers(ui.era, section).length;
  const set = (key, count, kind = "") => {
    const text = count ? number(count) : "";
    const element = counts.get(key);
    if (element.textContent !== text) element.textContent = text;
    element.className = `nav-count ${kind}`;
  };
  set("tools", offers("tools"));
  set("resources", offers("resources") + offers("templates"));
  set("prompts", offers("prompts"));
  set("wire", store.messages.length);
  let running = 0;
  for (const call of store.calls.values()) if (!isFinal(call)) running++;
  set("history", running, "busy");
  const breaking = store.contracts.at(-1)?.differences?.filter?.((one) => one?.severity === "breaking").length ?? 0;
  set("contract", breaking, "bad");
  const severe = store.findings.filter((one) => one.severity === "breaks").length;
  set("findings", severe, "bad");
}

const asked = new Map();

/** What concerns the whole page: a lost process, and questions of a server that are not on the screen. */
function drawBanner() {
  const box = byId("banner");
  const parts = [];
  if (store.online === "ended") parts.push(h("p.banner.bad", "hinge dev has ended or this address is no longer valid. Start it again and use the address that it prints."));
  else if (store.online === "crowded") parts.push(h("p.banner.bad", "Too many pages are open here: close one."));
  else if (store.online === "waiting" && drawBanner.was) parts.push(h("p.banner", "No connection to hinge dev; trying again …"));
  drawBanner.was ||= store.online === "online";
  const open = store.openQuestions();
  const withCall = open.filter((one) => one.call && store.calls.has(one.call));
  const here = withCall.filter((one) => !location.hash.includes(encodeURIComponent(one.call)) && !document.querySelector(".call:not([hidden]) .question:not(.closed)")?.checkVisibility());
  if (here.length) {
    parts.push(h("p.banner.ask", h("span", here.length === 1 ? ["A question waits: ", name(here[0].message ?? here[0].type)] : `${here.length} questions wait.`), " ", h("a.button", { href: hash("history", here[0].call) }, "Answer")));
  }
  for (const question of open.filter((one) => !withCall.includes(one))) {
    if (!asked.has(question.question)) asked.set(question.question, questionView(question));
    parts.push(asked.get(question.question));
  }
  for (const key of asked.keys()) if (!open.some((one) => one.question === key)) asked.delete(key);
  if (parts.length === box.children.length && parts.every((part, index) => part === box.children[index])) return;
  if (parts.map((part) => part.textContent).join() === [...box.children].map((part) => part.textContent).join()) return;
  show(box, parts);
}

function theme(value) {
  if (value) document.documentElement.dataset.theme = value; else delete document.documentElement.dataset.theme;
  try { if (value) localStorage.setItem("hinge:theme", value); else localStorage.removeItem("hinge:theme"); } catch { /* not kept */ }
}

function keys(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches?.("input, textarea, select");
  if (event.key === "/" && !typing) {
    const filter = current?.view.querySelector(".filter");
    if (filter) { event.preventDefault(); filter.focus(); filter.select(); }
  } else if (event.key === "Escape") {
    openMenu(false);
    if (event.target.matches?.(".filter")) {
      if (event.target.value === "") event.target.blur();
    } else if (current?.view.classList.contains("chosen") && matchMedia("(max-width: 700px)").matches) location.hash = hash(current.key);
    else if (event.target.closest?.(".detail")) current?.view.querySelector(".list-box:not([hidden])")?.focus();
  }
}

async function startPage() {
  try { theme(localStorage.getItem("hinge:theme")); } catch { /* the system's */ }
  buildNavigation();
  byId("menu").append(icon("menu"));
  byId("menu").addEventListener("click", () => openMenu(!byId("nav").classList.contains("open")));
  byId("theme").append(icon("theme"));
  byId("theme").addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    theme(now === "dark" ? "light" : "dark");
  });
  document.addEventListener("keydown", keys);
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
  addEventListener("hashchange", () => { route(); requestAnimationFrame(drawBanner); });
  if (!location.hash) history.replaceState(null, "", memory.get("hash") || "#/tools");
  let state;
  try { state = await getState(); } catch (error) {
    show(byId("banner"), h("p.banner.bad", visible(error.message), " ", button("Try again", () => location.reload())));
    return;
  }
  store.target = String(state.target ?? "");
  store.apps = state.apps ?? null;
  for (const era of ERAS) if (state.eras?.[era]) store.apply({ ...state.eras[era], kind: "connection", era }, "");
  store.watch(["connection", "era"], drawHeader);
  store.watch(["restarts"], drawReload);
  store.watch(["offers", "era", "messages", "calls", "contract", "findings"], drawCounts);
  store.watch(["online", "questions", "calls"], () => requestAnimationFrame(drawBanner)); // after the views
  drawHeader();
  route();
  follow(0); // also what is still the present state of what was dropped
}

startPage();
