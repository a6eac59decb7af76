// Requests to the service.

import { $, chosenEars } from "./state.js";
import { say } from "./messages.js";
import { encoded } from "./files/tensors.js";

const PATIENCE_MS = "30000"; // for all but designs, which the sliders ask for again and again
const RETRY_FOR_MS = 30000; // of the Python client too
const ANSWER_MS = 60000;

// Send a request, and again while the service is busy or does not answer.
async function sent(path, request) {
  const end = performance.now() + RETRY_FOR_MS;
  for (let isRepeated = false; ; isRepeated = true) {
    const answer = await fetch(path, { ...request, signal: AbortSignal.timeout(ANSWER_MS) }).catch(() => null);
    if (answer && ![502, 503, 504].includes(answer.status)) {
      if (isRepeated) say("");
      return answer;
    }
    const seconds = Math.max(1, parseInt(answer?.headers.get("Retry-After")) || 1), fault = `The service ${answer ? "is busy" : "does not answer"}`;
    if (performance.now() + 1000 * seconds > end) {
      if (answer) return answer;
      throw new Error("the service does not answer; check that it runs");
    }
    say(`${fault}; trying again in ${seconds} s ...`, true);
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
  }
}

export async function ask(path, request, kind = "json") {
  const headers = { "Content-Type": "application/x-safetensors", ...(path === "refine" ? {} : { "X-Deadline-Ms": PATIENCE_MS }) };
  if ($("key").value) headers.Authorization = `Bearer ${$("key").value}`;
  const answer = await sent(path, { method: "POST", headers, body: new Blob(encoded({ sample_rate: 48000, ...request })) });
  if (answer.status === 401) { $("key-row").hidden = false; }
  if (!answer.ok) {
    let detail = `status ${answer.status}`;
    try { detail = (await answer.json()).detail; } catch { /* not a problem document */ }
    throw new Error(detail);
  }
  return kind === "blob" ? answer.blob() : answer.json();
}

const PARTS = ["primary", "secondary", "coherence", "feedback", "uncertainty"];
export const fieldsOf = (ear) => Object.fromEntries(PARTS.filter((part) => ear[part]).map((part) => [part, ear[part]]));

// A request about the chosen measurements.
export function requestOf(options, ears = chosenEars(), asConditions = false) {
  if (!ears.length) throw new Error("no measurement says design; choose one in step 1");
  const [{ sign }] = ears;
  if (ears.some((ear) => ear.sign !== sign)) throw new Error("the measurements have different signs; calibrate all with the same sign");
  if (ears.length === 1 && !asConditions) return { sign, ...options, ...fieldsOf(ears[0]) };
  return { sign, ...options, conditions: ears.map((ear) => ({ ...fieldsOf(ear), label: ear.label.slice(0, 80) })) };
}
