// The event stream, read in slices: no slice keeps the page from answering for longer than a few milliseconds.
import { store } from "./store.js";

const SLICE = 8; // milliseconds
const MOST_WAITING = 150_000;

/** Follow the events after this number until the page is closed. */
export function follow(after) {
  let waiting = [];
  let next = 0;
  let running = false;
  const channel = new MessageChannel();

  function work() {
    const end = performance.now() + SLICE;
    while (next < waiting.length) {
      const raw = waiting[next];
      waiting[next++] = undefined;
      try { store.apply(JSON.parse(raw), raw); } catch (error) { console.error(error); }
      if ((next & 15) === 0 && performance.now() > end) break;
    }
    if (next < waiting.length) return channel.port2.postMessage(0);
    waiting = [];
    next = 0;
    running = false;
  }
  channel.port1.onmessage = work;

  const source = new EventSource(`/api/events?after=${Number(after)}`);
  source.onopen = () => store.setOnline("online");
  source.onerror = () => store.setOnline(source.readyState === EventSource.CLOSED ? "ended" : "waiting");
  source.onmessage = (event) => {
    if (waiting.length - next >= MOST_WAITING) { // the same bound as that of the store
      next += 1000;
      store.lose(1000);
    }
    waiting.push(event.data);
    if (!running) {
      running = true;
      channel.port2.postMessage(0);
    }
  };
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
}
