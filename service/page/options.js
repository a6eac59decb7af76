// Controls of the page and what they say to the service. Ranges, defaults and texts of options are those of the service's
// option model, in workbench/options.json. Options that have no control here are the command's.

import { $, element, state } from "./state.js";

export const SLIDERS = ["k", "ceiling", "latency", "sections", "volume", "probe-level"];
// Controls of a design's options.
const CONTROLS = { k: "k", method: "method", max_gain_db: "ceiling", latency_samples: "latency", max_louder_db: "max_louder_db" };
const WISHES = ["n_sections", "sample_rate", "latency_us", "number_format"]; // of a controller, in controls of the id controller-...

export const model = await (await fetch("workbench/options.json")).json();
const properties = model.design.properties;

function addChoices(select, values) {
  const chosen = select.value, all = new Set([...[...select.options].map((option) => option.value), ...values.map(String)]);
  const sorted = [...all].sort((a, b) => (Number.isFinite(+a) ? a - b : 0));
  select.replaceChildren(...sorted.map((textContent) => element("option", { textContent })));
  select.value = chosen;
}

// Make the controls; called once, before any other use.
export function makeControls() {
  for (const [name, id] of Object.entries(CONTROLS)) {
    const schema = properties[name], control = $(id);
    if (schema.enum) addChoices(control, schema.enum);
    if (id === "k") Object.assign(control, { min: schema.minimum, max: schema.maximum });
    control.value = schema.default ?? "";
    control.title = schema.description.replaceAll("`", "'");
  }
  for (const name of WISHES) Object.assign($(`controller-${name}`), { placeholder: model.controller[name].default, title: model.controller[name].description.replaceAll("`", "'") });
  $("target").append(...model.targets.map(({ name, title }) => element("option", { value: name, textContent: title })));
  addChoices($("rate"), model.targets.flatMap((device) => [device.sample_rate_hz, ...device.other_sample_rates_hz]));
  addChoices($("format"), model.targets.map((device) => device.number_format));
  addChoices($("taps"), model.targets.map((device) => device.max_taps).filter((taps) => taps && taps <= 4096));
  $("file").replaceChildren(element("option", { value: "json", textContent: "JSON, for prime-anc and this page" }),
    ...Object.keys(model.files).map((kind) => element("option", { value: kind, textContent: FILES[kind]?.[0] ?? kind })));
  $("file").value = "c";
  // A browser's own field for numbers drops the comma of 0,35.
  document.addEventListener("change", ({ target }) => { if (target.inputMode === "decimal") target.value = target.value.trim().replace(",", "."); }, true);
}

// Names of kinds of files and their suffixes.
const FILES = {
  c: ["C header", "h"], wav: ["WAV", "wav"], csv: ["CSV", "csv"], mat: ["MATLAB", "mat"], minidsp: ["miniDSP", "txt"],
  apo: ["Equalizer APO", "txt"], camilladsp: ["CamillaDSP", "yml"], bes: ["BES", "txt"], sigmadsp: ["SigmaDSP", "txt"],
};
export const suffixOf = (kind) => FILES[kind]?.[1] ?? kind;

// Whether a kind of file holds a filter {form, format, denominator}.
export function isFileFor(kind, { form, format, denominator }) {
  const needs = model.files[kind];
  return !needs || ((!needs.form || needs.form === form) && (!needs.formats.length || needs.formats.includes(format)) && (!needs.denominator || needs.denominator === denominator));
}

// ---- settings: the text of every control, as sessions and undo hold it ----

const CHOICES = ["method", "max_louder_db", "target", "form", "taps", "format", "rate", "file", "hybrid", "lend_wearing", "gain"];
const settingInputs = () => ({
  ...Object.fromEntries([...SLIDERS, ...CHOICES].map((id) => [id, $(id)])), chain: $("sign"),
  ...Object.fromEntries(WISHES.map((name) => [`controller_${name}`, $(`controller-${name}`)])),
});
const textOf = (input) => (input.type === "checkbox" ? (input.checked === input.defaultChecked ? "" : `${input.checked}`) : input.value);

export function settings() {
  return Object.fromEntries(Object.entries(settingInputs()).map(([name, input]) => [name, textOf(input)]).filter(([, text]) => text));
}

export function restoreSettings(values) {
  for (const [name, input] of Object.entries(settingInputs())) {
    const text = String(values[name] ?? ""), before = input.value;
    if (input.type === "range" && !Number.isFinite(parseFloat(text))) continue; // a slider would go to its middle
    if (input.type === "checkbox") input.checked = text ? text === "true" : input.defaultChecked;
    else if (text || input.type === "text" || input.id === "target") input.value = text || input.defaultValue || "";
    if (!input.value && text) input.value = before; // unknown choice
  }
  showOutputs();
}

// Options that settings of a session change and that have no control here.
export const withoutControl = (values) => Object.keys(properties).filter((name) => values[name] && !(name in settingInputs()) && values[name] !== String(properties[name].default));

export function showOutputs() {
  for (const id of SLIDERS) document.querySelector(`output[for=${id}]`).textContent = $(id).value;
}

// ---- what requests say ----

// What is written into a field, as a request has it; null for nothing.
function written(id) {
  const text = $(id).value;
  if (text && $(id).inputMode === "decimal" && !Number.isFinite(+text)) throw new Error(`${$(id).labels[0].textContent}: write a number`);
  return !text ? null : $(id).inputMode === "decimal" ? +text : text;
}

const writtenIn = (controls) => Object.fromEntries(controls.map(([name, id]) => [name, written(id)]).filter(([, value]) => value !== null));

// What a new controller has to be.
export const wishes = () => writtenIn(WISHES.map((name) => [name, `controller-${name}`]));

// Options for a request of one kind: refine, export or verify.
export function optionsFor(kind) {
  const options = { ...writtenIn(Object.entries(CONTROLS)), ...(state.noise ? { reference_psd: state.noise.psd } : {}) };
  for (const name of ["k", "max_gain_db", "latency_samples"]) options[name] = +options[name];
  if (!options.latency_samples) delete options.latency_samples;
  const known = [...model.of[kind], "reference_psd"];
  return Object.fromEntries(Object.entries(options).filter(([name]) => known.includes(name)));
}
