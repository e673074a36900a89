// The process behind the page: requests to it, and its stream of events.
import { toast } from "./dom.js";
import { store } from "./store.js";

/** What the process answers, parsed if it is JSON; raises an Error with one clear line if it refuses. */
async function request(path, options) {
  let response;
  try { response = await fetch(path, options); } catch { throw new Error("gemel dev does not answer. Is it still running?"); }
  const text = await response.text();
  let body = text;
  try { body = JSON.parse(text); } catch { /* plain text */ }
  if (!response.ok) throw new Error(body?.error ?? (text.slice(0, 300) || `HTTP status ${response.status}`));
  return body;
}

export const command = (body) => request("/api/commands", {
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
});

export async function tryCommand(body, done = "") {
  try {
    const answer = await command(body);
    if (done) toast(done);
    return answer;
  } catch (error) {
    toast(error.message, "bad");
    return null;
  }
}

export const getState = () => request("/api/state");

export const getMessage = (number) => request(`/api/messages/${Number(number)}`);

// The stream is read in slices: no slice keeps the page from answering for longer than a few milliseconds.
// An EventSource would dispatch all events of a chunk in one task, however many they are.

export const SLICE = 8; // milliseconds
const RETRY = 1000;
const STATES = { 401: "ended", 403: "ended", 429: "crowded" };

const channel = new MessageChannel();

/** Let the page draw and answer. */
const pause = () => new Promise((go) => {
  channel.port1.onmessage = go;
  channel.port2.postMessage(0);
});

/** Follow the events after this number until the page is closed. */
export async function follow(after) {
  for (;;) {
    try {
      const response = await fetch(`/api/events?after=${after}`);
      store.set("online", response.ok ? "online" : STATES[response.status] ?? "waiting");
      if (store.online === "ended") return;
      if (response.ok) for await (const raw of eventsOf(response.body)) after = apply(raw) ?? after;
    } catch { /* the connection ended */ }
    if (store.online === "online") store.set("online", "waiting");
    await new Promise((go) => setTimeout(go, RETRY));
  }
}

async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  let end = performance.now() + SLICE;
  for (;;) {
    const { done, value } = await reader.read(); // only now: what is not read yet waits at the other end
    if (done) return;
    const events = (text + value).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const data = event.indexOf("data: ");
      if (data >= 0) yield event.slice(data + 6);
      if (performance.now() < end) continue;
      await pause();
      end = performance.now() + SLICE;
    }
  }
}

function apply(raw) {
  try {
    const event = JSON.parse(raw);
    store.apply(event, raw);
    return event.n;
  } catch (error) { console.error(error); }
}
