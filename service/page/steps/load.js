// Step 4: the filter as hardware runs it, and its files.

import { $, changed, newest, on, state } from "../state.js";
import { forget, note, say } from "../messages.js";
import { RATE, fixed } from "../dsp.js";
import { isFileFor, model, optionsFor, showOutputs, suffixOf } from "../options.js";
import { redesign } from "./design.js";
import { ask, requestOf } from "../requests.js";
import { saveFile, saveJson } from "../files/save.js";

const sizeOf = (n, part, rate) => `${n} ${part}${n === 1 ? "" : "s"}${rate === RATE ? "" : ` at ${rate} Hz`}`;
export const formOf = ({ coefficients: { sos, taps, sample_rate } }) => (sos ? sizeOf(sos.length, "section", sample_rate) : sizeOf(taps.length, "tap", sample_rate));

const target = () => ({
  ...($("target").value ? { name: $("target").value } : {}), form: $("form").value,
  ...($("form").value === "sos" ? { n_sections: +$("sections").value } : { n_taps: +$("taps").value }),
  sample_rate: +$("rate").value, number_format: $("format").value,
});

export const beside = ({ controller }) => (controller ? { controller } : {});

const exportRequest = (more = {}) => requestOf({ ...optionsFor("export"), fir: Float32Array.from(state.design.fir), target: target(), ...beside(state.design), ...more });

// Settings of the last export; sections and fewer taps do not depend on the design's taps.
let realisedFor = "";

const realiseNewest = newest(async () => {
  try {
    const requested = JSON.stringify([target(), beside(state.design), { ...optionsFor("export"), reference_psd: state.noise?.name }]);
    if (!state.realised || requested !== realisedFor || state.realised.coefficients.taps?.length === state.design.fir.length) {
      state.realised = await ask("export", exportRequest());
      realisedFor = requested;
    }
    showLoss();
  } catch (error) {
    state.realised = null;
    $("realised").textContent = `The export failed: ${error.message}`;
    say("The export failed.", true, realise);
  }
  state.isRealising = false;
  changed("realised");
});

// Until the export of this design and form is there, nothing is said of an earlier one.
function expire() {
  state.isRealising = true;
  $("realised").textContent = state.design ? "Computing ..." : "";
}

function realise() {
  expire();
  changed("realised");
  if (state.design) realiseNewest();
}

function showLoss() {
  const { design, realised: { coefficients, prediction, warnings } } = state, scaling = coefficients.scaling;
  const reduction = prediction.mean_noise_reduction_db, loss = design.prediction.mean_noise_reduction_db - reduction;
  const parts = [`${formOf(state.realised)}: ${fixed(reduction)} dB, ${Math.abs(loss).toFixed(1)} dB ${loss < -0.05 ? "more" : "less"} than designed`];
  if (coefficients.sos && loss > 10) parts.push("sections hardly hold noise back that arrives late, as here: try 128 taps");
  if (scaling) parts.push(`headroom ${scaling.headroom_bits} bit${scaling.headroom_bits === 1 ? "" : "s"}, round-off noise ${scaling.noise_db.toFixed(0)} dB (${scaling.wide_noise_db.toFixed(0)} dB with double-precision feedback)`);
  const { controller: K } = design, isAlike = !K || (K.sample_rate === coefficients.sample_rate && K.number_format === $("format").value);
  if (!isAlike) parts.push(`K is at ${K.sample_rate} Hz in ${K.number_format}: set both in its options in step 2 if the same chip runs it`);
  if (warnings.length) parts.push(`warnings: ${warnings.map(({ code }) => code).join(", ")}`);
  $("realised").textContent = `${parts.join("; ")}.`;
}

const deviceOf = () => model.targets.find(({ name }) => name === $("target").value);
let before; // the device that was chosen last

// Set a number of sections or taps to what the device holds of its default, or of what was typed.
function fit(id, most, initial) {
  const held = (n, device) => Math.min(n, device?.[most] ?? Infinity), now = $(id).value || initial;
  $(id).value = held(+now === held(initial, before) ? initial : now, deviceOf());
}

// Fill in what a known device needs; everything may be changed after that.
function takeTarget() {
  const device = deviceOf();
  $("target-notes").textContent = "";
  fit("sections", "max_sections", $("sections").defaultValue);
  fit("taps", "max_taps", 2048);
  showOutputs();
  if (device) {
    $("form").value = device.form;
    $("rate").value = device.sample_rate_hz;
    $("format").value = device.number_format;
    const most = device.form === "sos" ? device.max_sections && `at most ${device.max_sections} sections` : device.max_taps && `at most ${device.max_taps} taps`;
    const rates = device.other_sample_rates_hz.length ? `also at ${device.other_sample_rates_hz.join(" and ")} Hz: export each` : "";
    $("target-notes").textContent = [most, rates, device.latency && `latency: ${device.latency}`].filter(Boolean).join("; ");
    if (device.file) $("file").value = device.file;
    if (takeControllerChip(device)) return; // the new design is exported
  }
  realise();
}

// A new controller is for the same device, if it is fast enough for one; return whether one is designed.
function takeControllerChip({ sample_rate_hz: rate, number_format }) {
  if (rate < model.controller.sample_rate.minimum) return false;
  $("controller-sample_rate").value = rate;
  $("controller-number_format").value = number_format;
  fit("controller-n_sections", "max_controller_sections", $("controller-n_sections").placeholder);
  if ($("hybrid").checked) changed("ears");
  return $("hybrid").checked && state.ears.length > 0;
}

// Whether an export is the designed filter itself: 2048 taps at 48 kHz in floating point.
const isAsDesigned = ({ n_taps, sample_rate, number_format }) => n_taps === 2048 && sample_rate === RATE && number_format === "float32";

async function saveExport(request, name) {
  const file = await ask("export", request, "blob"), suffix = file.type === "application/zip" ? "zip" : suffixOf(request.file);
  saveFile(file, `${name}.${suffix}`);
  say(`Saved ${name}.${suffix}.`);
}

async function download() {
  forget("Export");
  await redesign.done; // what is sent is of one design
  const { design } = state, kind = $("file").value, form = target(), { n_sections, n_taps, sample_rate, number_format } = form;
  const size = n_sections ? sizeOf(n_sections, "section", sample_rate) : sizeOf(n_taps, "tap", sample_rate);
  const name = `${design.name.split(",")[0]} ${size} ${number_format}${design.controller ? " hybrid" : ""}`;
  try {
    if (kind !== "json") { await saveExport(exportRequest({ file: kind }), name); return; }
    saveJson(isAsDesigned(form) ? design : await ask("export", exportRequest()), `${name}.json`);
    say(`Saved ${name}.json.`);
  } catch (error) {
    note("Export", error.message);
  }
}

// Save 2048 taps, and the controller beside them, as they are in the number format and kind of file that are chosen here.
export async function downloadTaps({ fir, controller }, name) {
  const chosen = $("file").value, kind = chosen !== "json" && isFileFor(chosen, { form: "fir" }) ? chosen : "c";
  const target = { form: "fir", n_taps: 2048, sample_rate: 48000, number_format: $("format").value };
  try {
    const request = exportRequest({ fir: Float32Array.from(fir), target, ...beside({ controller: controller ?? state.design.controller }), file: kind });
    await saveExport(request, name);
  } catch (error) {
    note("Export", error.message);
  }
}

// Offer the kinds of files that hold this filter, and the controller beside it.
function showKinds() {
  const device = deviceOf(), form = $("form").value, format = $("format").value, K = state.design?.controller;
  const denominator = form === "sos" && device ? device.denominator : "subtracted";
  for (const option of $("file").options) {
    const isOffered = isFileFor(option.value, { form, format, denominator }) && (!K || isFileFor(option.value, { form: "sos", format: K.number_format, denominator }));
    option.hidden = option.disabled = !isOffered;
  }
  if ($("file").selectedOptions[0]?.disabled !== false) $("file").value = "c";
}

// Whether a control has an effect in the chosen form.
function showForm() {
  showKinds();
  before = deviceOf();
  const isTaps = $("form").value === "fir";
  for (const [id, isUsed] of [["taps", isTaps], ["sections", !isTaps]]) $(id).disabled = !isUsed;
}

export function startLoading() {
  on(["rest"], realise);
  on(["design"], () => { showKinds(); expire(); if (!state.design) changed("realised"); });
  for (const id of ["form", "taps", "format", "rate"]) $(id).addEventListener("change", () => { showForm(); realise(); });
  $("target").addEventListener("change", () => { takeTarget(); showForm(); });
  $("sections").addEventListener("input", realise);
  $("download").onclick = download;
  on(["settings"], showForm);
  showForm();
}
