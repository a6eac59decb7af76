// A feedback controller K beside the filter, y = W x + K e: its switch, what it has to be, the loop that it closes.

import { $, changed, chosenEars, element, on, stableEars, state } from "./state.js";
import { N_FFT, RATE, delayed, fixed, minus, over, plus, rfft, scaled, sectionsResponse, times } from "./dsp.js";
import { aboutOf, controllerFromDocument } from "./bench_file.js";
import { say } from "./messages.js";
import { wishes } from "./options.js";
import { ask, fieldsOf, requestOf } from "./requests.js";
import { saveJson } from "./save.js";

const N_BINS = N_FFT / 2 + 1;

// What a controller that was designed here belongs to.
const purpose = () => JSON.stringify([wishes(), $("lend_wearing").checked, chosenEars().map(({ id }) => id), stableEars().map(({ id }) => id)]);

// Design W, and K with it if the switch is on and there is none for these measurements and wishes; otherwise W around K.
export async function designed(options) {
  if (!$("hybrid").checked) return ask("refine", requestOf(options));
  const { controller } = state;
  if (controller && (controller.purpose === null || controller.purpose === purpose())) {
    const { document, purpose: _, ...about } = controller, { max_louder_db } = about;
    const found = await ask("refine", { ...(max_louder_db === undefined ? {} : { max_louder_db }), ...requestOf(options), controller: document });
    return { ...found, warnings: [...found.warnings, ...about.warnings], controller: document, controller_about: about };
  }
  const wanted = purpose(), [{ label }] = chosenEars(), others = stableEars(), request = requestOf(options, chosenEars(), others.length > 0);
  if (others.length) request.conditions.push(...others.map((ear) => ({ ...fieldsOf(ear), label: ear.label.slice(0, 80), stability_only: true })));
  say("Designing filter and controller ...");
  const found = await ask("hybrid", { ...request, controller: wishes(), lend_wearing: $("lend_wearing").checked });
  const about = aboutOf(found, label);
  takeController({ document: controllerFromDocument(found.controller), purpose: wanted, ...about });
  return { ...found, controller_about: about };
}

function takeController(controller) {
  state.controller = controller;
  changed("controller");
}

// Keep the controller of a file as it is, whatever the measurements; without a name, for the chosen ones. `about`: what
// was said of it.
export function useController(document, name, about = {}) {
  $("hybrid").checked = true;
  takeController({ document: controllerFromDocument(document), plants: [], warnings: [], ...about, purpose: name ? null : purpose(), name });
}

// ---- spectra on the design grid, in the convention e = d - s * y ----

const spectra = new WeakMap(); // by samples or controller
const plants = new WeakMap(); // S K by secondary path: {controller, spectrum}

function once(key, compute) {
  if (!spectra.has(key)) spectra.set(key, compute());
  return spectra.get(key);
}

const spectrumOf = (samples) => once(samples, () => rfft(samples));

function plantOf({ secondary }, controller, factor) {
  if (plants.get(secondary)?.controller !== controller) {
    plants.set(secondary, { controller, spectrum: times(spectrumOf(secondary), scaled(once(controller, () => controllerResponse(controller)), factor)) });
  }
  return plants.get(secondary).spectrum;
}

function controllerResponse({ sos, sample_rate: rate, latency_us }) {
  const re = new Float64Array(N_BINS), im = new Float64Array(N_BINS);
  for (let k = 0; k < N_BINS; k++) [re[k], im[k]] = sectionsResponse(sos, k * RATE / N_FFT, rate);
  return delayed({ re, im }, 1e-6 * latency_us * RATE);
}

const ONE = { re: new Float64Array(N_BINS).fill(1), im: new Float64Array(N_BINS) };

const factorOf = ({ sign }) => (sign === "plus" ? -1 : 1);
const filterOf = (design) => once(design.fir, () => delayed(scaled(rfft(Float64Array.from(design.fir)), factorOf(design)), design.latency_samples ?? 0));

// L = W F + S K of a measurement with a design, or null without a loop.
export function loopOf(ear, design) {
  const SK = design.controller ? plantOf(ear, design.controller, factorOf(design)) : null;
  if (!ear.feedback) return SK;
  const WF = times(filterOf(design), spectrumOf(ear.feedback));
  return SK ? plus(WF, SK) : WF;
}

// What the error microphone hears of x without filter and controller, and with both.
export function heard(ear, design) {
  const P = spectrumOf(ear.primary), W = filterOf(design), L = loopOf(ear, design);
  const passed = ear.feedback ? times(P, onePlus(times(W, spectrumOf(ear.feedback)))) : P, left = minus(passed, times(spectrumOf(ear.secondary), W));
  return { P, R: L ? over(left, onePlus(L)) : left, L };
}

export const onePlus = (spectrum) => plus(ONE, spectrum);

// Bound on 1 / |1 + L| in dB that a controller was designed for.
export const sensitivityBound = () => +$("controller-max_sensitivity_db").value || +$("controller-max_sensitivity_db").placeholder;

// ---- its part of step 2 ----

function row(kind, ...cells) {
  return element("tr", {}, ...cells.map((textContent) => element(kind, { textContent })));
}

function showController() {
  const { controller } = state, isOn = $("hybrid").checked;
  $("controller").hidden = !isOn;
  for (const id of ["controller-new", "controller-save"]) $(id).disabled = !controller;
  $("controller-text").textContent = "";
  $("plants").hidden = !isOn || !controller?.plants.length;
  if (!isOn || !controller) return;
  const { document: { sos, sample_rate, number_format }, name, needed_number_format, plants } = controller;
  $("controller-text").textContent = [`K ${name ? `of ${name}` : "for these measurements"}: ${sos.length} section${sos.length === 1 ? "" : "s"} at ${sample_rate} Hz in ${number_format}`,
    ...(needed_number_format ? [`its bass needs ${needed_number_format}`] : [])].join("; ").concat(".");
  $("plants").replaceChildren(element("caption", { textContent: "Margins of all plants, worst at ±3 dB" }), element("thead", {}, row("th", "plant", "gain margin", "phase margin", "largest 1/|1+L|")),
    element("tbody", {}, ...plants.map((plant) => row("td", plant.label, `${fixed(plant.gain_margin_db)} dB`,
      `${plant.phase_margin_deg.toFixed(0)}°`, `${fixed(plant.max_sensitivity_db)} dB, ${plant.nearest_hz.toFixed(0)} Hz`))));
}

export function startHybrid(redesign) {
  on(["controller", "design", "ears", "settings"], showController);
  $("hybrid").addEventListener("change", () => changed("ears"));
  $("controller-new").onclick = () => { takeController(null); redesign(); };
  $("controller-save").onclick = () => {
    const { document: controller, purpose: _, ...controller_about } = state.controller;
    saveJson(state.design?.controller ? state.design : { controller, controller_about }, "hybrid.json");
  };
  for (const input of $("controller-options").querySelectorAll("input, select")) input.addEventListener("change", () => { state.controller = null; });
  showController();
}
