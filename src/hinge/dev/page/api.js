// Requests to the process behind the page.
import { toast } from "./dom.js";

async function answerOf(response) {
  const text = await response.text();
  let body = null;
  try { body = JSON.parse(text); } catch { /* plain text */ }
  if (!response.ok) throw new Error(body?.error ?? (text.slice(0, 300) || `HTTP status ${response.status}`));
  return body ?? text;
}

/** Post one command; raises an Error with one clear line if it is refused. */
export async function command(body) {
  let response;
  try {
    response = await fetch("/api/commands", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
  } catch {
    throw new Error("hinge dev does not answer. Is it still running?");
  }
  return answerOf(response);
}

/** Post one command and show its error, if any. Returns null then. */
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

export const getState = async () => answerOf(await fetch("/api/state"));

/** The whole message with this number: parsed if it is JSON, else as text. */
export const getMessage = async (number) => answerOf(await fetch(`/api/messages/${Number(number)}`));
