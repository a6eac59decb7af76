// A feedback controller K beside the filter, y = W x + K e: its switch, what it has to be, the loop that it closes.

import { $, changed, chosenEars, element, on, row, stableEars, state } from "../state.js";
import { fixed } from "../dsp.js";
import { aboutOf, controllerFromDocument } from "../files/bench_file.js";
import { say } from "../messages.js";
import { wishes } from "../options.js";
import { ask, fieldsOf, requestOf } from "../requests.js";
import { saveJson } from "../files/save.js";

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

// ---- its part of step 2 ----

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
  for (const input of $("controller-options").querySelectorAll("input")) input.addEventListener("change", () => { state.controller = null; });
  showController();
}
