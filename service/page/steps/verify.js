// Step 5: what the filter does on the ear, from recordings with it off and on.

import { $, changed, currentEar, element, on, row, state } from "../state.js";
import { fixed, signed, withInterval } from "../dsp.js";
import { findingsOf, judged, reasonOf, wordOf } from "./judgement.js";
import { forget, note, say } from "../messages.js";
import { beside, downloadTaps, formOf } from "./load.js";
import { optionsFor } from "../options.js";
import { named, removeRecordings, showRecordings, signalsOf } from "./recordings.js";
import { ask, fieldsOf } from "../requests.js";
import { saveJson } from "../files/save.js";

// Filters that may have run: [value, text].
function candidates() {
  return [
    ...(state.chip ? [["chip", `of the file ${state.chip.name}`]] : []),
    ...(state.realised ? [["realised", `as exported: ${formOf(state.realised)}`]] : []),
    ...(state.design ? [["design", "as designed: 2048 taps"]] : []),
    ...state.kept.map(({ name }, i) => [`kept-${i}`, `kept: ${name}`]),
  ];
}

function showCandidates() {
  const chosen = $("ran").dataset.chosen, found = candidates();
  $("ran").replaceChildren(...found.map(([value, textContent]) => element("option", { value, textContent })));
  if (found.some(([value]) => value === chosen)) $("ran").value = chosen;
  $("verify").disabled = !found.length || !state.runs.length;
}

function filterThatRan() {
  const chosen = $("ran").value;
  if (chosen === "chip") return state.chip.document;
  if (chosen.startsWith("kept-")) return state.kept[+chosen.slice(5)].design;
  return state[chosen];
}

function requestFor(ear, filter) {
  const { latency_samples, ...options } = optionsFor("verify"), late = filter.latency_samples ?? latency_samples;
  const common = { ...options, ...(late ? { latency_samples: late } : {}), sign: filter.sign ?? ear.sign, ...beside(filter), ...fieldsOf(ear) };
  const takes = state.runs.map((run) => ({ state: run.role, ...signalsOf(run) }));
  if (filter.coefficients) {
    const { sos, taps, sample_rate } = filter.coefficients;
    return { ...common, fir: { ...(sos ? { sos } : { taps }), sample_rate }, takes };
  }
  return { ...common, fir: Float32Array.from(filter.fir), prediction: filter.prediction, takes };
}

async function verify() {
  forget("Verification");
  if (!["off", "on"].every((role) => state.runs.some((run) => run.role === role))) {
    note("Verification", "it needs a recording with the filter off, and one with it on: add it, or say in the list which is which");
    return;
  }
  const ear = currentEar(), filter = filterThatRan(), text = $("ran").selectedOptions[0].textContent;
  const files = state.runs.map(({ name }) => name), runs = recordings();
  say("Comparing the recordings ...");
  $("verify").disabled = true;
  try {
    const answer = await ask("verify", requestFor(ear, filter));
    state.verification = { answer, earId: ear.id, runs, filter: text, isTaps: !filter.coefficients };
    changed("verification");
    say(`Verified: ${fixed(answer.measured.mean_noise_reduction_db)} dB measured, ${fixed(answer.predicted_noise_reduction_db)} dB predicted.`);
  } catch (error) {
    note("Verification", named(error.message, files));
    say("The verification failed.", true, verify);
  } finally {
    showCandidates();
  }
}

export const isAsPredicted = ({ diagnosis }) => diagnosis.every(({ code }) => code === "as_predicted");

// Which recordings are there, and as what.
const recordings = () => state.runs.map(({ id, role }) => `${id} ${role}`).join();

// The verification of the present ear and recordings, or null.
export function verified() {
  const found = state.verification;
  return found && found.earId === currentEar()?.id && found.runs === recordings() ? found : null;
}

// Judge the last verification.
export function judgedRun() {
  const { answer } = verified();
  return judged(answer.measured, findingsOf(answer), "Use it. Verify again when the earphone sits differently.");
}

function showVerification() {
  const found = verified();
  $("verification").hidden = !found;
  if (!found) return;
  const { answer: { measured, predicted_noise_reduction_db: predicted, band_deviation_db: deviations, deviation_db, diagnosis, trim }, filter, isTaps } = found;
  const judgement = judgedRun(), isGood = isAsPredicted(found.answer);
  const head = ` ${withInterval(measured)} measured, ${fixed(predicted)} dB predicted (${signed(deviation_db)} dB); filter ${filter}.`;
  const findings = diagnosis.map(({ code, detail }) => element("p", { className: isGood ? "good" : "warning", textContent: `${code.replaceAll("_", " ")}: ${detail}` }));
  const parts = [element("p", {}, wordOf(judgement), head), element("p", { className: "help", textContent: reasonOf(judgement) }), ...findings];
  if (trim) {
    const delay = `delay ${fixed(trim.delay_samples, 2)} samples at 48 kHz${trim.invert ? ", inverted" : ""}`;
    const promise = isTaps ? `; ${fixed(trim.predicted_noise_reduction_db)} dB to expect` : "";
    parts.push(element("p", { textContent: `Trim: gain ${signed(trim.gain_db)} dB, ${delay}${promise}.` }));
    if (isTaps) {
      const save = element("button", { type: "button", textContent: "Save trimmed filter" }), chip = element("button", { type: "button", textContent: "Save it for hardware" });
      save.onclick = () => saveJson(found.answer, "trim.json");
      chip.onclick = () => downloadTaps(trim, "trimmed filter");
      parts.push(element("p", { className: "buttons" }, save, chip));
    } else if (trim.controller) {
      const save = element("button", { type: "button", textContent: "Save trimmed controller" });
      save.onclick = () => saveJson({ controller: trim.controller }, "trimmed controller.json");
      parts.push(element("p", { className: "buttons" }, save));
    }
  } else parts.push(element("p", { textContent: "No trim of gain and delay corrects this: follow the advice and measure again." }));
  const rows = measured.band_centre_hz.map((hz, i) => row("td", hz, ...[measured.noise_reduction_db[i], measured.noise_reduction_db[i] - deviations[i], deviations[i]].map((db) => fixed(db))));
  parts.push(element("details", {}, element("summary", { textContent: "Bands" }),
    element("table", { id: "verify-table" }, element("thead", {}, row("th", "Hz", "measured, dB", "predicted, dB", "difference, dB")), element("tbody", {}, ...rows))));
  $("verification").replaceChildren(...parts);
}

export function startVerifying() {
  on(["chip"], () => { if (state.chip) $("ran").dataset.chosen = "chip"; });
  on(["runs"], () => showRecordings("runs", "run-rows"));
  on(["runs", "design", "realised", "kept", "chip"], showCandidates);
  on(["verification", "ears", "runs"], showVerification);
  $("verify").onclick = verify;
  $("ran").onchange = () => { $("ran").dataset.chosen = $("ran").value; };
  $("clear-runs").onclick = () => removeRecordings("runs");
}
