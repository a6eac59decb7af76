// Step 2: the filter, the Wiener filter beside it, designs that are kept, undo.

import { $, changed, changedSoon, chosenEars, element, isJoint, newest, on, refill, state } from "../state.js";
import { fixed } from "../dsp.js";
import { forget, note, say } from "../messages.js";
import { designed, useController } from "./hybrid.js";
import { optionsFor, restoreSettings, settings } from "../options.js";
import { removeItem } from "./recordings.js";
import { ask, requestOf } from "../requests.js";
import { noiseSpectrum } from "../files/read_files.js";

const KEPT_COLORS = ["--k0", "--k1", "--k2", "--k3", "--k4", "--k5"];
const REST_MS = 80; // pause after the last change before the Wiener filter and the sound are updated

let resting = 0;

export const redesign = newest(async () => {
  clearTimeout(resting); // what a design is for may differ from what it was made for
  if (!chosenEars().length) {
    state.design = state.rival = state.realised = null;
    changed("design");
    return;
  }
  const began = performance.now();
  try {
    const ears = chosenEars(), found = await designed(optionsFor("refine"));
    if (!ears.every((ear) => state.ears.includes(ear))) return; // removed meanwhile
    state.design = { ...found, name: designName() };
    changed("design");
    const ms = performance.now() - began;
    document.body.dataset.redrawMs = ms.toFixed(1);
    say(`Designed and drawn in ${ms.toFixed(0)} ms.`);
    resting = setTimeout(() => { changed("rest"); compare(); }, REST_MS); // slower updates, so that no plot waits for them
  } catch (error) {
    say(`The design failed: ${error.message}`, true, redesign);
  }
});

const compare = newest(async () => {
  if (!chosenEars().length) return;
  try {
    state.rival = await ask("refine", requestOf({ ...optionsFor("refine"), k: 0, method: "wmmse" }));
    changed("rival");
  } catch (error) {
    say(`The Wiener filter failed: ${error.message}`, true, compare);
  }
});

// Short name of the present design: ear, method, and what differs between designs.
function designName() {
  const ears = chosenEars(), parts = [isJoint() && ears.length > 1 ? `${ears.length} measurements` : ears[0].label, $("method").value];
  parts.push(`k ${$("k").value}`, `${$("ceiling").value} dB`);
  if (+$("latency").value) parts.push(`${$("latency").value} samples late`);
  if ($("hybrid").checked) parts.push("with controller");
  return parts.join(", ");
}

export function keep(name, design) {
  const used = new Set(state.kept.map((kept) => kept.color));
  state.kept.push({ name, design, color: KEPT_COLORS.find((color) => !used.has(color)) ?? KEPT_COLORS[state.kept.length % KEPT_COLORS.length] });
  changed("kept");
}

function showKept() {
  refill($("kept"), state.kept.map((kept) => {
    const name = element("input", { type: "text", value: kept.name, maxLength: 80, ariaLabel: `name of kept design ${kept.name}` });
    name.onchange = () => { kept.name = name.value.trim() || kept.name; changedSoon("kept"); };
    const remove = element("button", { type: "button", textContent: "Remove", ariaLabel: `Remove ${kept.name}` });
    remove.onclick = () => removeItem("kept", kept, kept.name);
    const swatch = element("span", { className: `swatch ${kept.color.slice(2)}`, ariaHidden: "true" });
    const use = element("button", { type: "button", textContent: "Use its K", ariaLabel: `Use its K: ${kept.name}` });
    use.onclick = () => { useController(kept.design.controller, kept.name, kept.design.controller_about); remember(); redesign(); };
    return element("li", {}, swatch, name, ` ${fixed(kept.design.prediction.mean_noise_reduction_db)} dB `, ...(kept.design.controller ? [use] : []), remove);
  }));
}

async function takeNoise(file) {
  try {
    state.noise = { name: file.name, psd: await noiseSpectrum(file) };
    changed("noise");
    note(file.name, "the noise to expect; remove it in step 2.", { isBad: false });
  } catch (error) { note(file.name, error.message); }
}

function showNoise() {
  $("noise-name").textContent = state.noise ? state.noise.name : "the model's";
  $("noise-remove").hidden = !state.noise;
}

// ---- undo of settings ----

const past = [], future = [];
let before = null;

function showUndo() {
  $("undo").disabled = !past.length;
  $("redo").disabled = !future.length;
  const { id, disabled } = document.activeElement;
  if (disabled && ["undo", "redo"].includes(id)) $(id === "undo" ? "redo" : "undo").focus();
}

export function remember() {
  const now = JSON.stringify(settings());
  if (before !== null && before !== now) { past.push(before); future.length = 0; changed("settings"); }
  before = now;
  showUndo();
}

function travel(from, to) {
  if (!from.length) return;
  to.push(JSON.stringify(settings()));
  before = from.pop();
  restoreSettings(JSON.parse(before));
  showUndo();
  changed("settings");
  redesign();
}

export function startDesigning() {
  on(["ears", "noise"], () => { state.rival = state.realised = null; showNoise(); redesign(); });
  on(["kept"], showKept);
  $("keep").onclick = () => { if (state.design) keep(state.design.name, state.design); };
  $("noise-remove").onclick = () => { forget(state.noise.name); state.noise = null; changed("noise"); };
  $("noise-file").onchange = () => { const [file] = $("noise-file").files; if (file) takeNoise(file); $("noise-file").value = ""; };
  $("undo").onclick = () => travel(past, future);
  $("redo").onclick = () => travel(future, past);
  addEventListener("keydown", (event) => {
    const isText = ["text", "password", "number"].includes(event.target.type);
    if (!(event.ctrlKey || event.metaKey) || event.key.toLowerCase() !== "z" || isText) return;
    event.preventDefault();
    if (event.shiftKey) travel(future, past); else travel(past, future);
  });
}
