// Controls of the page and what they say to the service. The options, their ranges, defaults and texts are those of the
// service's option model, in workbench/options.json.

import { $, chosenEars, element, state } from "./state.js";

export const SLIDERS = ["k", "ceiling", "latency", "sections", "volume", "probe-level"];
// Controls of their own for options; all others are made from the option model.
const CONTROLS = { k: "k", method: "method", max_gain_db: "ceiling", latency_samples: "latency" };
const ELSEWHERE = ["sign"]; // it belongs to a measurement
const UNITS = { db: "dB", deg: "degrees", samples: "samples at 48 kHz", hz: "Hz", us: "µs" };

export const model = await (await fetch("workbench/options.json")).json();
const properties = model.design.properties;
// Options whose controls are made from the model, in two groups: of the design, and of the controller beside the filter.
const made = Object.keys(properties).filter((name) => !(name in CONTROLS) && !ELSEWHERE.includes(name))
  .map((name) => ({ name, id: `option-${name}`, setting: name, schema: properties[name], place: "more-options" }));
const wished = Object.entries(model.controller)
  .map(([name, schema]) => ({ name, id: `controller-${name}`, setting: `controller_${name}`, schema, place: "controller-options" }));

function labelOf(name) {
  const words = name.split("_"), unit = UNITS[words.at(-1)];
  const text = (unit ? words.slice(0, -1) : words).join(" ").replace(/^snr/, "SNR").replace(/^min/, "smallest").replace(/^max/, "largest").replace(/^n /, "");
  return `${text[0].toUpperCase()}${text.slice(1)}${unit ? `, ${unit}` : ""}`;
}

// Name of a curve's values, such as `gain_db`, or null for an option that is none.
function curveOf(schema) {
  const found = schema.$ref && model.design.$defs[schema.$ref.split("/").at(-1)];
  return found?.properties?.frequency_hz ? Object.keys(found.properties).find((name) => name !== "frequency_hz") : null;
}

const isNumber = ({ type }) => ["number", "integer"].includes(type);

function inputOf({ id, schema }) {
  if (schema.enum) return element("select", { id }, ...schema.enum.map((item) => element("option", { textContent: item, selected: item === schema.default })));
  if (schema.type === "boolean") return element("input", { id, type: "checkbox", checked: !!schema.default });
  if (curveOf(schema)) return element("input", { id, type: "text", placeholder: "100:1,1000:2", title: "frequency:value pairs" });
  return element("input", { id, type: "text", inputMode: isNumber(schema) ? "decimal" : "text", placeholder: schema.default ?? "default" });
}

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
    if (schema.enum) control.replaceChildren(...schema.enum.map((item) => element("option", { textContent: item })));
    if (id === "k") Object.assign(control, { min: schema.minimum, max: schema.maximum });
    control.value = schema.default;
  }
  for (const item of [...made, ...wished]) {
    const input = inputOf(item), id = `help-${item.id}`;
    input.setAttribute("aria-describedby", id);
    $(item.place).append(element("label", { htmlFor: item.id, textContent: labelOf(item.name) }), input,
      element("p", { id, className: "help", textContent: item.schema.description.replaceAll("`", "'") }));
  }
  $("ceiling-curve").title = properties.max_gain_db.description;
  $("target").append(...model.targets.map(({ name, title }) => element("option", { value: name, textContent: title })));
  const rates = model.targets.flatMap((device) => [device.sample_rate_hz, ...device.other_sample_rates_hz]);
  addChoices($("rate"), rates);
  addChoices($("format"), model.targets.map((device) => device.number_format));
  addChoices($("taps"), model.targets.map((device) => device.max_taps).filter((taps) => taps && taps <= 4096));
  $("file").replaceChildren(element("option", { value: "json", textContent: "JSON, for prime-anc and this page" }),
    ...Object.keys(model.files).map((kind) => element("option", { value: kind, textContent: FILE_NAMES[kind] ?? kind })));
  $("file").value = "c";
  // A browser's own field for numbers drops the comma of 0,35.
  document.addEventListener("change", ({ target }) => { if (target.inputMode === "decimal") target.value = target.value.trim().replace(",", "."); }, true);
}

const FILE_NAMES = { c: "C header", wav: "WAV", csv: "CSV", mat: "MATLAB", minidsp: "miniDSP", apo: "Equalizer APO", camilladsp: "CamillaDSP", bes: "BES", sigmadsp: "SigmaDSP" };

// Whether a kind of file holds a filter {form, format, denominator}.
export function isFileFor(kind, { form, format, denominator }) {
  const needs = model.files[kind];
  return !needs || ((!needs.form || needs.form === form) && (!needs.formats.length || needs.formats.includes(format)) && (!needs.denominator || needs.denominator === denominator));
}

export const SUFFIXES = { c: "h", minidsp: "txt", apo: "txt", camilladsp: "yml", bes: "txt", sigmadsp: "txt" };

// ---- settings: the text of every control, as sessions, links and undo hold it ----

const CHOICES = ["method", "target", "form", "taps", "format", "rate", "file", "hybrid", "lend_wearing", "gain"];
// Controls by the name of their setting: that of the option, where there is one for the option alone.
const settingInputs = () => ({
  ...Object.fromEntries([...SLIDERS, ...CHOICES].map((id) => [id, $(id)])), max_gain_db: $("ceiling-curve"), chain: $("sign"),
  ...Object.fromEntries([...made, ...wished].map(({ setting, id }) => [setting, $(id)])),
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

export function showOutputs() {
  for (const id of SLIDERS) document.querySelector(`output[for=${id}]`).textContent = $(id).value;
}

// ---- what requests say ----

// Read `frequency:value` pairs; null for an empty text.
function curveFromText(text, name, values) {
  if (!text.trim()) return null;
  const pairs = text.split(",").map((pair) => pair.split(":").map(Number));
  if (pairs.some((pair) => pair.length !== 2 || !pair.every(Number.isFinite))) throw new Error(`${name}: write pairs of Hz and value such as 100:12,1000:24`);
  if (pairs.some(([hz], i) => hz <= (i ? pairs[i - 1][0] : 0))) throw new Error(`${name}: write the frequencies in rising order, above 0 Hz`);
  return { frequency_hz: pairs.map(([hz]) => hz), [values]: pairs.map(([, value]) => value) };
}

// Points of the ceiling, dB over Hz; a single one for a number, and for text that is no curve, which no request takes.
export function ceilingPoints() {
  let curve = null;
  try { curve = curveFromText($("ceiling-curve").value, "ceiling", "gain_db"); } catch { /* said when a design is requested */ }
  return curve ? curve.frequency_hz.map((hz, i) => [hz, curve.gain_db[i]]) : [[1000, +$("ceiling").value]];
}

function numberIn(text, { type, minimum, maximum }, name) {
  const value = +text, isWhole = type === "integer";
  if (!(value >= minimum && value <= maximum && (!isWhole || Number.isInteger(value)))) throw new Error(`${name}: write a ${isWhole ? "whole number" : "number"} from ${minimum} to ${maximum}`);
  return value;
}

// Value of an option, or null if it is the default.
function valueOf({ name, id, schema }) {
  const input = $(id), values = curveOf(schema);
  if (input.type !== "checkbox" && input.value === "") return null;
  if (values) return curveFromText(input.value, labelOf(name), values);
  const value = input.type === "checkbox" ? input.checked : isNumber(schema) ? numberIn(input.value, schema, labelOf(name)) : input.value;
  return value === schema.default ? null : value;
}

const valuesOf = (items) => Object.fromEntries(items.map((item) => [item.name, valueOf(item)]).filter(([, value]) => value !== null));

// What a new controller has to be.
export const wishes = () => valuesOf(wished);

// Whether the chosen measurements give an option an effect; the service refuses one without.
function hasEffect(name) {
  const ears = chosenEars();
  if (/^min_.*_margin/.test(name)) return ears.some((ear) => ear.feedback);
  if (name === "exact" || name === "snr_db") return ears.some((ear) => !ear.coherence && !ear.uncertainty);
  return name !== "leave_one_out" || ears.length > 1;
}

// Options that differ from their defaults, for a request of one kind: refine, export or verify.
export function optionsFor(kind) {
  const options = { k: +$("k").value, method: $("method").value };
  options.max_gain_db = curveFromText($("ceiling-curve").value, "ceiling", "gain_db") ?? +$("ceiling").value;
  if (+$("latency").value) options.latency_samples = +$("latency").value;
  Object.assign(options, valuesOf(made.filter(({ name }) => hasEffect(name))));
  if (state.noise) options.reference_psd = state.noise.psd;
  const known = [...model.of[kind], "reference_psd"];
  return Object.fromEntries(Object.entries(options).filter(([name]) => known.includes(name)));
}

