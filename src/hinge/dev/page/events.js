// The event stream, read in slices: no slice keeps the page from answering for longer than a few milliseconds.
// An EventSource would dispatch all events of a chunk in one task, however many they are.
import { store } from "./store.js";

const SLICE = 8; // milliseconds
const RETRY = 1000;

const channel = new MessageChannel();
let resume = null;
channel.port1.onmessage = () => resume();

/** Let the page draw and answer. */
const pause = () => new Promise((go) => { resume = go; channel.port2.postMessage(0); });

/** Follow the events after this number until the page is closed. */
export async function follow(after) {
  for (;;) {
    try {
      const response = await fetch(`/api/events?after=${Number(after)}`, { headers: { Accept: "text/event-stream" } });
      if (response.status === 401 || response.status === 403) return store.setOnline("ended");
      if (response.status === 429) store.setOnline("crowded");
      if (response.ok) {
        store.setOnline("online");
        after = await read(response.body.getReader(), after);
      }
    } catch { /* the connection ended */ }
    if (store.online === "online") store.setOnline("waiting");
    await new Promise((go) => setTimeout(go, RETRY));
  }
}

/** Apply the events of a stream as they come. Returns the number of the last one. */
async function read(reader, after) {
  const decoder = new TextDecoder();
  let text = "";
  let end = performance.now() + SLICE;
  try {
    for (;;) {
      const { done, value } = await reader.read(); // only now: what is not read yet waits at the other end
      if (done) return after;
      text += decoder.decode(value, { stream: true });
      let start = 0;
      for (let stop; (stop = text.indexOf("\n\n", start)) >= 0; start = stop + 2) {
        const data = text.indexOf("data: ", start);
        if (data >= 0 && data < stop) after = apply(text.slice(data + 6, stop)) ?? after;
        if (performance.now() > end) {
          await pause();
          end = performance.now() + SLICE;
        }
      }
      text = text.slice(start);
    }
  } catch {
    return after;
  }
}

function apply(raw) {
  try {
    const event = JSON.parse(raw);
    store.apply(event, raw);
    return event.n;
  } catch (error) { console.error(error); }
  return undefined;
}
