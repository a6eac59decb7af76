// The bench: its steps, files that are dropped on it, sessions, and work that stays in this browser.

import { $, changed, chosenEars, currentEar, element, hasFailed, on, state } from "./state.js";
import { clearMessages, forget, note } from "./messages.js";
import { fixed } from "./dsp.js";
import { earFromDocument, fits, readBench, sessionDocument } from "./files/bench_file.js";
import { keep, redesign, remember, startDesigning } from "./steps/design.js";
import { startHybrid, useController } from "./steps/hybrid.js";
import { rendered, startListening } from "./steps/listen.js";
import { startLoading } from "./steps/load.js";
import { addEars, startMeasuring, withIds } from "./steps/measure.js";
import { SLIDERS, makeControls, restoreSettings, settings, showOutputs, withoutControl } from "./options.js";
import { decoded } from "./files/read_files.js";
import { startRecording } from "./steps/record.js";
import { addRecording } from "./steps/recordings.js";
import { saveJson } from "./files/save.js";
import * as store from "./files/store.js";
import { isAsPredicted, startVerifying, verified } from "./steps/verify.js";
import { bandTable, showView, startViewing } from "./steps/views.js";

const STEPS = { measure: "magnitude", design: "gain", look: "gain", load: "gain", verify: "deviation" }; // and what is drawn

const openStep = () => Object.keys(STEPS).find((step) => $(`step-${step}`).open);

function open(step) {
  for (const name of Object.keys(STEPS)) $(`step-${name}`).open = name === step;
}

// ---- files ----

// Where a recording goes: to a verification if that step is open, or if it has a name of `prime-anc simulate`'s.
const recordingList = (name) => (openStep() === "verify" || /(^|[^a-z])(quiet|running)([^a-z]|$)/i.test(name) ? "runs" : "takes");

function takeDocument(name, document) {
  if (document.coefficients && !document.session) {
    state.chip = { name, document };
    changed("chip");
    note(name, "the filter of a chip; step 5 verifies it.", { isBad: false });
    return;
  }
  const found = readBench(name, document); // before anything changes
  if (found.isSession) {
    Object.assign(state, { ears: withIds(found.ears), kept: [], current: found.current, noise: found.noise, controller: null, takes: found.takes, runs: found.runs, chip: found.chip });
    restoreSettings(found.settings);
    const others = withoutControl(found.settings);
    if (others.length) note(name, `it sets ${others.join(", ")}, which this page leaves at their defaults; prime-anc uses them.`);
    $("joint").checked = found.joint;
  }
  for (const { name: label, design } of found.kept) {
    keep(label, design);
    if (!found.isSession) noteKept(label, design);
  }
  if (found.controller) useController(found.controller, found.isSession ? found.about?.name ?? name : name, found.about);
  if (found.isSession) { changed("ears", "noise", "takes", "runs", "chip"); open("design"); }
  else if (found.ears.length) addEars(found.ears);
  else if (found.controller) redesign();
  remember();
}

function noteKept(name, { controller, controller_about: about }) {
  const action = controller && { label: "Use its K", run: () => { useController(controller, name, about); remember(); redesign(); } };
  note(name, `kept in step 2, to compare with${controller ? "; its controller is not in use" : ""}.`, { isBad: false, action });
}

function jsonOf(text) {
  let found = null;
  try { found = JSON.parse(text); } catch { /* said below */ }
  if (Object(found) !== found) throw new Error("it is no JSON, or was cut off; save it again");
  return found;
}

async function takeFile(file) {
  if (/\.json$/i.test(file.name)) return takeDocument(file.name, jsonOf(await file.text()));
  const sound = await decoded(file), list = recordingList(file.name);
  if (sound.channels.length < 2) throw new Error("it has one channel: record outer and error microphone in one stereo file. Of impulse responses prime-anc session makes a file for this page");
  addRecording(list, file.name, sound);
  return open(list === "runs" ? "verify" : "measure");
}

async function takeFiles(files) {
  for (const file of files) {
    forget(file.name);
    try { await takeFile(file); } catch (error) { note(file.name, error.message); }
  }
}

async function loadExample() {
  try {
    const found = await (await fetch("workbench/example.json")).json(), at = state.ears.length;
    addEars(Object.entries(found).map(([label, ear]) => earFromDocument(label, ear)), at);
    open("design");
  } catch (error) { note("Example", `it could not be loaded: ${error.message}`, { action: { label: "Try again", run: loadExample } }); }
}

function acceptDrops() {
  let depth = 0;
  const mark = () => document.body.classList.toggle("dropping", depth > 0);
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => { if (hasFiles(event)) { depth++; mark(); } });
  addEventListener("dragleave", (event) => { if (hasFiles(event)) { depth--; mark(); } });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    depth = 0;
    mark();
    takeFiles([...(event.dataTransfer?.files ?? [])]);
  });
  for (const button of document.querySelectorAll("[data-choose]")) button.onclick = () => $("files").click();
  $("files").onchange = () => { takeFiles([...$("files").files]); $("files").value = ""; };
}

// ---- work that stays ----

let isUnsaved = false, isRestoring = true;

const PARTS = {
  ears: () => ({ ears: state.ears, current: state.current, joint: $("joint").checked }),
  takes: () => state.takes, runs: () => state.runs, chip: () => state.chip, noise: () => state.noise,
  kept: () => state.kept, controller: () => state.controller,
  settings, verification: () => state.verification,
};

function keepWork() {
  for (const [part, value] of Object.entries(PARTS)) {
    on([part], () => {
      if (isRestoring) return;
      isUnsaved = true;
      store.keep(part, value, (error) => note("Keeping the work", `this browser refuses (${error.message}); save a session before you leave.`));
    });
  }
  addEventListener("beforeunload", (event) => { if (isUnsaved || !store.isWritten()) event.preventDefault(); });
}

async function restoreWork() {
  let found = {};
  try { found = await store.restored(); } catch { /* nothing can be kept here, as in some private windows */ }
  const { ears: measured, settings: chosen, ...rest } = found;
  restoreSettings({ ...chosen });
  for (const [part, value] of Object.entries(rest)) if (value && part in PARTS) state[part] = value;
  if (measured) {
    Object.assign(state, { ears: measured.ears, current: measured.current });
    $("joint").checked = measured.joint;
  }
  changed(...Object.keys(PARTS));
  isRestoring = false;
  if (state.ears.length) note("Bench", "your work of the last visit is back.", { isBad: false });
  open(state.ears.length ? "design" : "measure");
}

async function throwAway() {
  if (!confirm("Throw away all measurements, recordings and designs on this bench?")) return;
  await store.thrownAway();
  isUnsaved = false;
  location.replace(location.pathname);
}

function saveSession() {
  const { ears, current, kept, noise, controller, chip } = state, isWhole = fits(state.takes, state.runs), { takes, runs } = isWhole ? state : {};
  if (!isWhole) note("Session", "the recordings are too long for one file: it is saved without them. They stay in this browser.");
  saveJson(sessionDocument({ ears, current, kept, noise, takes, runs, chip, controller: $("hybrid").checked ? controller : null, joint: $("joint").checked, settings: settings() }), "session.json");
  isUnsaved = false;
}

// ---- steps ----

function showSteps() {
  const { design, realised, isRealising, ears, takes } = state, ear = currentEar(), seen = verified()?.answer;
  const texts = {
    measure: ears.length ? `${ears.length === 1 ? ear.label : `${ears.length} measurements, ${ear.label}`}` : takes.length ? `${takes.length} recording${takes.length === 1 ? "" : "s"}` : "",
    design: design ? `${design.method}, ${fixed(design.prediction.mean_noise_reduction_db)} dB` : "",
    look: design?.warnings.length ? `${design.warnings.length} warning${design.warnings.length > 1 ? "s" : ""}` : "",
    load: realised && !isRealising ? `${fixed(realised.prediction.mean_noise_reduction_db)} dB on hardware` : "",
    verify: seen ? `${fixed(seen.measured.mean_noise_reduction_db)} dB measured${isAsPredicted(seen) ? "" : `, ${seen.diagnosis[0].code.replaceAll("_", " ")}`}` : "",
  };
  const failed = chosenEars().some(hasFailed) ? ["measure", "design", "load"].filter((step) => texts[step]) : [];
  const marked = [...failed, ...(texts.look ? ["look"] : []), ...(seen && !isAsPredicted(seen) ? ["verify"] : [])];
  for (const step of failed) texts[step] += step === "measure" ? ": did not pass" : "; calibration did not pass";
  for (const [step, text] of Object.entries(texts)) Object.assign(document.querySelector(`#step-${step} .state`), { textContent: text, className: marked.includes(step) ? "state failed" : "state" });
  for (const control of document.querySelectorAll("[data-needs]")) control.disabled = !(control.dataset.needs === "ear" ? ears.length : design);
}

// A report is about one filter: that in use, not those kept beside it.
function fillReport() {
  const { design } = state, verification = verified(), model = design?.model, verdict = (ear) => (ear.verdict ? ` (calibration ${ear.verdict.passed ? "passed" : "NOT passed"})` : "");
  const rows = [
    ["Date", new Date().toISOString().slice(0, 16).replace("T", " ")], ["Measured", chosenEars().map((ear) => ear.label + verdict(ear)).join(", ")],
    ["Design", design?.name ?? ""], ["Controller", $("hybrid").checked ? $("controller-text").textContent : ""],
    ["Model", model ? `${model.name}@${model.version} (${model.digest.slice(0, 19)})` : ""], ["Hardware", $("realised").textContent],
    ["Verified", verification ? verification.answer.diagnosis.map(({ detail }) => detail).join("; ") : "not yet"],
  ].filter(([, value]) => value);
  $("report-head").replaceChildren(...rows.map(([name, value]) => element("p", { textContent: `${name}: ${value}` })));
  $("report-tables").replaceChildren(...(design ? [element("table", {}, ...bandTable([]))] : []), ...[...document.querySelectorAll("#plants:not([hidden]), #warnings > p")].map((part) => Object.assign(part.cloneNode(true), { id: "" })));
}

function start() {
  makeControls();
  startMeasuring();
  startRecording();
  startDesigning();
  startHybrid(redesign);
  startLoading();
  startVerifying();
  startListening();
  startViewing();
  keepWork();
  acceptDrops();
  on(["ears", "takes", "runs", "design", "realised", "verification"], showSteps);
  addEventListener("beforeprint", fillReport);
  for (const [step, view] of Object.entries(STEPS)) {
    $(`step-${step}`).addEventListener("toggle", () => { if ($(`step-${step}`).open) { open(step); showView(view); } });
  }
  for (const id of SLIDERS) {
    $(id).addEventListener("input", () => { showOutputs(); if (["k", "ceiling", "latency"].includes(id)) redesign(); });
    $(id).addEventListener("change", remember);
  }
  for (const input of [$("method"), $("max_louder_db"), $("hybrid"), ...$("controller-options").querySelectorAll("input")]) {
    input.addEventListener("change", () => { remember(); redesign(); });
  }
  for (const id of ["target", "form", "taps", "format", "rate", "file", "gain", "sign"]) $(id).addEventListener("change", remember);
  for (const button of document.querySelectorAll(".example")) button.onclick = loadExample;
  Object.entries({ save: saveSession, print: () => window.print(), "throw-away": throwAway, "clear-messages": clearMessages })
    .forEach(([id, act]) => { $(id).onclick = act; });
  $("key-row").onsubmit = (event) => { event.preventDefault(); redesign(); };
  showSteps();
}

start();
await restoreWork();
remember();

document.body.dataset.ready = "yes";
window.workbench = { state, redesign, render: rendered }; // for tests
