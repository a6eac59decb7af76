// Files of the bench, as bench_file.schema.json declares them: measurements, filters and sessions that the page and
// prime-anc read and write. Numbers are float32, lists or base64, and come back bit by bit.

const MAX_RESPONSE = 32768; // most samples of a response in a request
const N_BINS = 16385, N_TAPS = 2048, N_UNCERTAINTY = 62, N_SECTIONS = 16;
const MAX_SAMPLES = 60 * 48000; // of a recording
const MAX_RECORDED = 60e6; // numbers in all recordings of a file, whose text would otherwise exceed what browsers hold

const floats = (text) => new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer);

function base64(samples) {
  const bytes = new Uint8Array(Float32Array.from(samples).buffer);
  let text = "";
  for (let i = 0; i < bytes.length; i += 8192) text += String.fromCharCode(...bytes.subarray(i, i + 8192));
  return btoa(text);
}

// Read the numbers of a file, as a list or in base64.
function numbersOf(name, given, most) {
  const found = typeof given?.float32 === "string" ? floats(given.float32) : given;
  if (!Array.isArray(found) && !(found instanceof Float32Array)) throw new Error(`${name}: a list of numbers is missing`);
  if (!found.length || found.length > most) throw new Error(`${name}: it has ${found.length} numbers; 1 to ${most} are needed`);
  const at = found.findIndex((value) => typeof value !== "number");
  if (at >= 0) throw new Error(`${name}: value ${at + 1} is ${JSON.stringify(found[at])}, no number`);
  const numbers = Float32Array.from(found);
  if (!numbers.every(Number.isFinite)) throw new Error(`${name}: it contains a value that is not a number`);
  return numbers;
}

const pathSamples = (name, path) => numbersOf(name, path?.impulse_response ?? path, MAX_RESPONSE);

export function earFromDocument(label, found) {
  const ear = { label: String(label), sign: found.sign === "plus" ? "plus" : "minus", primary: pathSamples("primary", found.primary), secondary: pathSamples("secondary", found.secondary) };
  if (found.coherence) ear.coherence = upsampled(numbersOf("coherence", found.coherence, N_BINS));
  if (found.feedback) ear.feedback = pathSamples("feedback", found.feedback);
  if (found.uncertainty) ear.uncertainty = numbersOf("uncertainty", found.uncertainty.flat?.() ?? found.uncertainty, N_UNCERTAINTY);
  if (found.verdict) ear.verdict = found.verdict;
  return ear;
}

// Interpolate a coherence on a coarser grid to the design grid's bins.
function upsampled(values) {
  if (values.length === N_BINS) return values;
  return Float32Array.from({ length: N_BINS }, (_, k) => {
    const place = k * (values.length - 1) / (N_BINS - 1), i = Math.min(Math.floor(place), values.length - 2), t = place - i;
    return values[i] * (1 - t) + values[i + 1] * t;
  });
}

// Read a feedback controller, without what follows from its sections.
export function controllerFromDocument({ sos, sample_rate, latency_us = 0, number_format = "float64" }) {
  const isRow = (row) => Array.isArray(row) && row.length === 6 && row.every(Number.isFinite);
  if (!Array.isArray(sos) || !sos.length || sos.length > N_SECTIONS || !sos.every(isRow)) throw new Error(`controller: its sos is no list of 1 to ${N_SECTIONS} rows of six numbers`);
  if (![sample_rate, latency_us].every(Number.isFinite)) throw new Error("controller: its sample_rate or latency_us is no number");
  return { sos, sample_rate, latency_us, number_format: String(number_format) };
}

const OF_CONTROLLER = ["controller_amplifies", "plant_unknown"]; // warnings that stay with it

// What an answer of /hybrid says of its controller; `label` is that of a measurement without one.
export function aboutOf({ controller, loop, warnings, max_louder_db }, label) {
  return controllerAbout({ plants: loop?.conditions, warnings: warnings?.filter(({ code }) => OF_CONTROLLER.includes(code)), needed_number_format: controller.needed_number_format, max_louder_db }, label);
}

// Read what a file says of its controller: `plants`, their loops at the level at which each is worst, warnings, and the
// limit of the filter beside it.
function controllerAbout({ name = "", plants = [], warnings = [], needed_number_format, max_louder_db }, label = "measurement 1") {
  const isPlant = (plant) => ["gain_margin_db", "phase_margin_deg", "max_sensitivity_db", "nearest_hz"].every((figure) => Number.isFinite(plant?.[figure]));
  if (![plants, warnings].every(Array.isArray) || !plants.every(isPlant)) throw new Error("what it says of its controller cannot be read");
  return {
    name: String(name), plants: plants.map((plant) => ({ ...plant, label: plant.label === "conditions.0" ? label : String(plant.label) })),
    warnings: warnings.map(({ code, detail }) => ({ code: String(code), detail: String(detail) })), ...(needed_number_format ? { needed_number_format: String(needed_number_format) } : {}),
    ...(Number.isFinite(max_louder_db) ? { max_louder_db } : {}),
  };
}

// Read a filter with its prediction.
function designFromDocument(found) {
  const fir = Array.from(numbersOf("taps", found.fir, MAX_SAMPLES));
  if (fir.length !== N_TAPS) throw new Error(`it has ${fir.length} taps; the page keeps filters of ${N_TAPS} taps at 48 kHz, as designs are`);
  if (!found.prediction) throw new Error("it has taps without a prediction; the page keeps filters as `prime-anc design` writes them");
  const { mean_noise_reduction_db, noise_reduction_db, band_centre_hz } = found.prediction;
  const bands = Array.from(numbersOf("noise_reduction_db", noise_reduction_db, 64));
  const centres = Array.from(numbersOf("band_centre_hz", band_centre_hz, 64));
  if (!Number.isFinite(mean_noise_reduction_db) || bands.length !== centres.length) throw new Error("a kept design has no prediction");
  const prediction = { ...found.prediction, noise_reduction_db: bands, band_centre_hz: centres };
  const { sign, latency_samples, controller, controller_about: about } = found;
  return { ...(controller ? { controller: controllerFromDocument(controller), controller_about: about ? controllerAbout(about) : aboutOf(found) } : {}), fir, prediction, ...(sign === "plus" ? { sign } : {}), ...(Number.isFinite(latency_samples) ? { latency_samples } : {}) };
}

const keptFromDocument = ({ name, design }) => ({ name: String(name), design: designFromDocument(design) });

// Read a recording: two channels or, with what the loudspeaker played, three.
function recordingFromDocument({ name, role, rate, channels, clipped_shares: clippedShares = [], calibrated }) {
  if (!Array.isArray(channels)) throw new Error(`${name}: its channels are no list`);
  const read = channels.map((channel) => numbersOf(String(name), channel, MAX_SAMPLES));
  if (!["off", "on", "drive"].includes(role) || read.length < (role === "drive" ? 3 : 2) || read.some(({ length }) => length !== read[0].length)) throw new Error(`${name}: it is no recording of two or three equal channels`);
  return { name: String(name), role, rate: +rate, channels: read, clippedShares: clippedShares.map(Number), isCalibrated: calibrated === true };
}

function chipOf(chip) {
  if (chip && !chip.document?.coefficients) throw new Error("the filter of its chip has no sections or taps");
  return chip ? { name: String(chip.name), document: chip.document } : null;
}

// Read a document completely, or throw. `ears` and `kept` are lists; a session also has the rest.
export function readBench(name, found) {
  const one = { isSession: false, ears: [], kept: [] };
  if (found.session) {
    const ears = found.session.map((ear) => ({ used: !!ear.used, stabilityOnly: !!ear.stability_only, ...earFromDocument(ear.label, ear) }));
    const kept = (found.kept ?? []).map(keptFromDocument), current = found.current ?? 0;
    if (!Object.hasOwn(ears, current)) throw new Error("its current measurement is not among its measurements");
    const noise = found.noise ? { name: String(found.noise.name), psd: numbersOf("noise", found.noise.psd, N_BINS) } : null;
    if (noise && noise.psd.length !== N_BINS) throw new Error(`noise: it has ${noise.psd.length} bins; send ${N_BINS}`);
    const controller = found.controller ? controllerFromDocument(found.controller) : null, about = found.controller_about ? controllerAbout(found.controller_about) : undefined;
    const [takes, runs] = [found.takes ?? [], found.runs ?? []].map((list) => {
      if (!Array.isArray(list)) throw new Error("its recordings are no list");
      return list.map(recordingFromDocument);
    });
    return { isSession: true, ears, kept, current, noise, controller, about, takes, runs, joint: !!found.joint, settings: Object(found.settings), chip: chipOf(found.chip) };
  }
  if (found.primary) return { ...one, ears: [{ used: true, ...earFromDocument(found.label ?? name, found) }] };
  if (found.fir) return { ...one, kept: [keptFromDocument({ name, design: found })] };
  if (found.controller) return { ...one, controller: controllerFromDocument(found.controller), about: found.controller_about && controllerAbout(found.controller_about) };
  if (found.coefficients) throw new Error("it holds sections or taps for a chip; the page shows filters of `prime-anc design`");
  throw new Error("it contains neither a measurement nor a filter nor a session");
}

export function measurementDocument(ear) {
  const series = (samples) => ({ float32: base64(samples) }), path = (samples) => ({ impulse_response: series(samples) });
  return {
    label: ear.label, sample_rate: 48000, sign: ear.sign, primary: path(ear.primary), secondary: path(ear.secondary),
    ...(ear.coherence ? { coherence: series(ear.coherence) } : {}),
    ...(ear.feedback ? { feedback: path(ear.feedback) } : {}),
    ...(ear.uncertainty ? { uncertainty: Array.from(ear.uncertainty) } : {}),
    ...(ear.verdict ? { verdict: ear.verdict } : {}),
  };
}

// Whether a file can hold these recordings.
export const fits = (...lists) => lists.flat().reduce((sum, { channels }) => sum + channels.length * channels[0].length, 0) <= MAX_RECORDED;

export function sessionDocument({ ears, current, joint, settings, kept, noise, controller, chip, takes = [], runs = [] }) {
  const recording = ({ name, role, rate, channels, clippedShares, isCalibrated }) => ({ name, role, rate, clipped_shares: clippedShares, ...(isCalibrated ? { calibrated: true } : {}), channels: channels.map((samples) => ({ float32: base64(samples) })) });
  const stored = ({ fir, prediction, sign, latency_samples, controller: beside, controller_about }) => ({
    fir: { float32: base64(fir) }, prediction, ...(sign ? { sign } : {}), ...(latency_samples ? { latency_samples } : {}), ...(beside ? { controller: beside, controller_about } : {}),
  });
  return {
    session: ears.map((ear) => ({ ...measurementDocument(ear), used: !!ear.used, ...(ear.stabilityOnly ? { stability_only: true } : {}) })),
    current, joint, settings, ...(noise ? { noise: { name: noise.name, psd: { float32: base64(noise.psd) } } } : {}),
    ...(controller ? { controller: controller.document, controller_about: controllerAbout(controller) } : {}),
    kept: kept.map(({ name, design }) => ({ name, design: stored(design) })), takes: takes.map(recording), runs: runs.map(recording), ...(chip ? { chip } : {}),
  };
}
