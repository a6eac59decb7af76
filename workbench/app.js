// State of the page and reactions to its changes.

import { N_FFT, N_ZEROS, RATE, clippedShare, curve, decibel, groupDelay, hertz, power, resampledResponse, rfft, sectionsResponse } from "./dsp.js";
import { CUT, promisedLength, rateOf, lengthFault } from "./wav.js";
import { draw, forgetColors } from "./plot.js";
import { Player, render, responses } from "./audio.js";
import { encoded } from "./tensors.js";
import { MAX_RESPONSE, earFromDocument, readBench, sessionDocument } from "./bench_file.js";

const $ = (id) => document.getElementById(id);
const KEPT_COLORS = ["--d", "--e"];
const SLIDERS = ["k", "ceiling", "latency", "sections", "volume"], CHOICES = ["method", "form", "taps", "format", "rate"];
const LATENCIES = [0, 1, 2, 4, 8, 16, 32];
const REST_MS = 80; // pause after the last change before the Wiener filter and the sound are updated
const MAX_LOST = 1e-5; // largest share of energy before time zero, as in measurement.files.resampling
const N_GAIN = 16384; // transform length for drawing 2048 taps

const state = {
  ears: [], // {label, primary, secondary, coherence?, feedback?, uncertainty?, sign, used}
  current: 0,
  design: null, rival: null, realised: null, latencyCurve: null,
  kept: [], takes: [],
  past: [], future: [],
};
const player = new Player();

// ---- requests ----

async function ask(path, request, kind = "json") {
  const headers = { "Content-Type": "application/x-safetensors" };
  if ($("key").value) headers.Authorization = `Bearer ${$("key").value}`;
  const answer = await fetch(path, { method: "POST", headers, body: new Blob(encoded({ sample_rate: 48000, ...request })) });
  if (answer.status === 401) $("key-row").hidden = false;
  if (!answer.ok) {
    let detail = `status ${answer.status}`;
    try { detail = (await answer.json()).detail; } catch { /* not a problem document */ }
    throw new Error(detail);
  }
  return kind === "blob" ? answer.blob() : answer.json();
}

const PARTS = ["primary", "secondary", "coherence", "feedback", "uncertainty"];
const fieldsOf = (ear) => Object.fromEntries(PARTS.filter((part) => ear[part]).map((part) => [part, ear[part]]));

function chosenEars() {
  return $("joint").checked ? state.ears.filter((ear) => ear.used) : [state.ears[state.current]].filter(Boolean);
}

function requestOf(options) {
  const ears = chosenEars(), [{ sign }] = ears;
  if (ears.some((ear) => ear.sign !== sign)) throw new Error("the measurements have different signs; calibrate all with the same sign");
  if (ears.length === 1) return { sign, ...options, ...fieldsOf(ears[0]) };
  return { sign, ...options, conditions: ears.map((ear) => ({ ...fieldsOf(ear), label: ear.label })) };
}

const askDesign = (k, options) => ask("refine", requestOf({ k: +k, ...options }));

function designOptions() {
  const options = { method: $("method").value, max_gain_db: +$("ceiling").value };
  if (+$("latency").value) options.latency_samples = +$("latency").value;
  return options;
}

// ---- designing ----

// Run `work` once at a time, and again if requested meanwhile: always with the newest settings, without a queue.
function newest(work) {
  let isBusy = false, isRequested = false;
  return async () => {
    isRequested = true;
    if (isBusy) return;
    isBusy = true;
    try {
      while (isRequested) { isRequested = false; await work(); }
    } finally {
      isBusy = false;
    }
  };
}

const redesign = newest(async () => {
  if (!chosenEars().length) return;
  const began = performance.now();
  try {
    state.design = await askDesign($("k").value, designOptions());
    realise();
    showDesign();
    const ms = performance.now() - began;
    document.body.dataset.redrawMs = ms.toFixed(1);
    say(`Designed and drawn in ${ms.toFixed(0)} ms.`);
    rest();
  } catch (error) {
    say(`The design failed: ${error.message}`, true);
  }
});

// Slower updates run once the settings rest, so that no plot waits for them.
let resting = 0;

function rest() {
  clearTimeout(resting);
  resting = setTimeout(() => { updateSound(); compare(); }, REST_MS);
}

const compare = newest(async () => {
  try {
    state.rival = await askDesign(0, { ...designOptions(), method: "wmmse" });
    showReduction();
  } catch (error) {
    say(`The Wiener filter failed: ${error.message}`, true);
  }
});

function say(text, isBad = false) {
  $("status").textContent = text;
  $("status").className = isBad ? "warning" : "";
}

// ---- drawing ----

function bandEdges(hz) {
  const centre = 10 ** (Math.round(10 * Math.log10(hz)) / 10);
  return [centre * 10 ** -0.05, centre * 10 ** 0.05];
}

function steps(prediction) {
  return prediction.band_centre_hz.flatMap((hz, i) => bandEdges(hz).map((edge) => [edge, prediction.noise_reduction_db[i]]));
}

// |W| of a design, computed once.
function gainCurve(design) {
  const W = design.gainCurve ? null : rfft(Float64Array.from(design.fir), N_GAIN);
  design.gainCurve ||= curve(W.re.length, (k) => decibel(power(W, k)));
  return design.gainCurve;
}

const keptLines = (points) => state.kept.map((kept, i) => ({ points: points(kept.design), color: KEPT_COLORS[i % 2], name: kept.name, dash: [5, 3] }));

function showDesign() {
  if (!state.design) return;
  showReduction();
  const ceiling = +$("ceiling").value;
  gainScale = draw($("plot-gain"), { x: [15, 22000], y: [-50, 45], isLog: true }, {
    lines: [
      { points: gainCurve(state.design), color: "--a", name: "|W|" },
      { points: [[15, ceiling], [22000, ceiling]], color: "--b", dash: [6, 4], name: `ceiling ${ceiling} dB` },
      ...keptLines(gainCurve),
    ],
  });
  drawLatency();
  drawRealised();
}

function showReduction() {
  const { design, rival, realised } = state;
  if (!design) return;
  const found = design.prediction, nr = found.noise_reduction_db;
  const top = Math.max(30, ...nr) + 4, bottom = Math.min(-5, ...nr) - 2;
  const half = found.interval_db;
  draw($("plot-nr"), { x: [40, 9500], y: [bottom, top], isLog: true }, {
    bars: nr.map((y, i) => { const [x0, x1] = bandEdges(found.band_centre_hz[i]); return { x0, x1, y, half, color: y < -1 ? "--b" : "--a" }; }),
    lines: [
      ...(rival ? [{ points: steps(rival.prediction), color: "--b", name: "Wiener (wmmse)" }] : []),
      ...(realised ? [{ points: steps(realised.prediction), color: "--c", name: formOf(realised) }] : []),
      ...keptLines((design) => steps(design.prediction)),
    ],
  });
  $("plot-nr").setAttribute("aria-label", `Noise reduction per band: ${found.band_centre_hz.map((hz, i) => `${hz} Hz ${nr[i].toFixed(1)} dB`).join(", ")}`);
  const level = found.level_reduction_db, loss = found.sensitivity_db;
  const counted = found.counted_bands_hz || [], range = counted.length ? `${counted[0]} to ${counted.at(-1)} Hz` : "50 Hz to 5 kHz";
  const parts = [`Mean noise reduction ${range}: ${found.mean_noise_reduction_db.toFixed(1)} dB${half ? ` ± ${half.toFixed(1)}` : ""}`];
  if (rival) parts.push(`Wiener filter: ${rival.prediction.mean_noise_reduction_db.toFixed(1)} dB`);
  if (level) parts.push(`level ${level.unweighted.toFixed(1)} dB, A-weighted ${level.a_weighted.toFixed(1)} dB`);
  parts.push(`amplification ${found.amplification_db.toFixed(2)} dB`, `largest |W| ${found.max_gain_db.toFixed(1)} dB`);
  if (loss) parts.push(`1 dB of gain error costs ${loss.gain_1_db.toFixed(1)} dB`);
  for (const condition of found.conditions || []) parts.push(`${condition.label}: ${condition.mean_noise_reduction_db.toFixed(1)} dB`);
  if (design.method !== $("method").value) parts.push(`method used: ${design.method}`);
  $("figures").textContent = `${parts.join(" · ")}.`;
  const loop = design.loop;
  $("loop").textContent = loop ? `Feedback loop: ${loop.stable ? "stable" : "UNSTABLE"}, gain margin ${loop.gain_margin_db?.toFixed(1)} dB, phase margin ${loop.phase_margin_deg?.toFixed(0)} degrees.` : "";
  $("warnings").replaceChildren(...design.warnings.map(({ code, detail }) => paragraph(`${code}: ${detail}`)));
  if ($("bands").open) showTable();
}

function showTable() {
  const { design, rival, realised } = state;
  if (!design) return;
  const found = design.prediction, others = [rival, realised].map((other) => other?.prediction.noise_reduction_db);
  const rows = found.band_centre_hz.map((hz, i) => row(hz, ...[found.noise_reduction_db, ...others].map((bands) => bands?.[i].toFixed(1) ?? "")));
  $("band-table").replaceChildren(row("Hz", "designed, dB", "Wiener, dB", "on hardware, dB", "th"), ...rows);
}

let gainScale = null;

function paragraph(text) {
  const p = document.createElement("p");
  p.className = "warning";
  p.textContent = text;
  return p;
}

function row(...cells) {
  const kind = cells.at(-1) === "th" ? cells.pop() : "td", tr = document.createElement("tr");
  tr.append(...cells.map((cell) => Object.assign(document.createElement(kind), { textContent: cell })));
  return tr;
}

function drawPaths() {
  const ear = state.ears[state.current], view = $("path-view").value;
  if (!ear) return;
  ear.spectra ||= [rfft(ear.primary), rfft(ear.secondary)];
  $("plot-paths").setAttribute("aria-label", `Measured paths of ${ear.label}: ${view}`);
  const [P, S] = ear.spectra, n = P.re.length;
  const value = {
    magnitude: (a) => (k) => decibel(power(a, k)),
    phase: (a) => (k) => Math.atan2(a.im[k], a.re[k]) * 180 / Math.PI,
    delay: (a) => (k) => groupDelay(a, k),
  }[view];
  const y = { magnitude: [-60, 30], phase: [-180, 180], delay: [-5, 15], coherence: [0, 1.05] }[view];
  const lines = view === "coherence"
    ? (ear.coherence ? [{ points: curve(ear.coherence.length, (k) => ear.coherence[k]), color: "--a", name: "coherence" }] : [])
    : [{ points: curve(n, value(P)), color: "--a", name: "primary" }, { points: curve(n, value(S)), color: "--b", name: "secondary" }];
  draw($("plot-paths"), { x: [15, 22000], y, isLog: true }, { lines });
}

function drawLatency() {
  const points = state.latencyCurve || [];
  const here = state.design ? [[+$("latency").value, state.design.prediction.mean_noise_reduction_db]] : [];
  draw($("plot-latency"), { x: [0, 33], y: [0, 32] }, {
    lines: [{ points, color: "--a" }],
    bars: here.map(([x, y]) => ({ x0: x, x1: x + 0.4, y, color: "--b" })),
  });
}

const formOf = ({ coefficients: { sos, taps } }) => (sos ? `${sos.length} sections` : `${taps.length} taps`);

function drawRealised() {
  const { realised, design } = state;
  const lines = design ? [{ points: gainCurve(design), color: "--a", name: "2048 taps" }] : [];
  if (realised) {
    realised.points ||= realisedCurve(realised.coefficients);
    lines.push({ points: realised.points, color: "--c", name: formOf(realised) });
  }
  draw($("plot-realised"), { x: [15, 22000], y: [-50, 45], isLog: true }, { lines });
}

function realisedCurve({ sos, taps, sample_rate: rate }) {
  if (sos) return curve(N_FFT / 2 + 1, (k) => { const [re, im] = sectionsResponse(sos, hertz(k, N_FFT / 2 + 1), rate); return decibel(re * re + im * im); });
  const factor = rate / 48000, W = rfft(Float64Array.from(taps), factor * N_GAIN); // the design grid's bins come first
  return curve(N_GAIN / 2 + 1, (k) => decibel(power(W, k)));
}

// ---- measurements ----

function addEar(ear) {
  state.ears.push({ used: true, ...ear });
  state.current = state.ears.length - 1;
  changeEars();
}

// Results of the previous ears are discarded.
function changeEars() {
  state.latencyCurve = state.rival = state.realised = null;
  showConditions();
  drawPaths();
  redesign();
}

function showConditions() {
  $("conditions").hidden = !state.ears.length;
  $("condition-list").replaceChildren(...state.ears.map((ear, i) => {
    const label = document.createElement("label"), radio = document.createElement("input"), tick = document.createElement("input");
    Object.assign(radio, { type: "radio", name: "ear", checked: i === state.current, onchange: () => { state.current = i; changeEars(); document.querySelectorAll("input[name=ear]")[i].focus(); } });
    Object.assign(tick, { type: "checkbox", checked: ear.used, ariaLabel: `use ${ear.label} for one filter`, onchange: () => { ear.used = tick.checked; if ($("joint").checked) { state.realised = null; redesign(); } } });
    label.append(radio, ` ${ear.label} `, tick);
    const div = document.createElement("div");
    div.append(label);
    return div;
  }));
}

async function loadExample() {
  const answer = await fetch("workbench/example.json");
  const found = await answer.json();
  for (const [label, ear] of Object.entries(found)) state.ears.push({ used: true, ...earFromDocument(label, ear) });
  state.current = state.ears.length - Object.keys(found).length;
  changeEars();
}

async function takeFiles(files) {
  const separate = {};
  for (const file of files) {
    try {
      if (/\.json$/i.test(file.name)) takeDocument(file.name, JSON.parse(await file.text()));
      else {
        const { recorded, sound, clippedShares } = await decoded(file);
        if (sound.numberOfChannels >= 2) addTake(file.name, sound, clippedShares);
        else {
          checkNotSilent(sound, 1);
          const kind = ["primary", "secondary", "feedback"].find((name) => file.name.toLowerCase().includes(name));
          if (!kind) throw new Error("it has one channel: record outer and error microphone in one stereo file, or name an impulse response primary or secondary");
          separate[kind] = recorded;
        }
      }
    } catch (error) {
      say(`${file.name}: ${error.message}`, true);
    }
  }
  if (separate.primary && separate.secondary) {
    try {
      addEar({ label: "impulse responses", sign: "minus", ...responsesOf(separate) });
    } catch (error) {
      say(error.message, true);
    }
  } else if (Object.keys(separate).length) say("Drop the primary and the secondary impulse response together.", true);
}

const MAX_SECONDS = 60, MAX_BYTES = 200e6;

async function decoded(file) {
  const head = new DataView(await file.slice(0, 44).arrayBuffer());
  const isWav = head.byteLength === 44 && head.getUint32(0) === 0x52494646 && head.getUint32(12) === 0x666d7420;
  const seconds = isWav ? file.size / head.getUint32(28, true) : 0;
  const tooLong = (duration) => new Error(`it lasts ${Math.round(duration)} s; cut it to 4 to ${MAX_SECONDS} s`);
  if (seconds > MAX_SECONDS + 1) throw tooLong(seconds); // before long files fill the memory
  if (file.size > MAX_BYTES) throw new Error(`it has ${Math.round(file.size / 1e6)} MB; cut it to 4 to ${MAX_SECONDS} s`);
  const bytes = await file.arrayBuffer();
  const missing = lengthFault(new DataView(bytes));
  if (missing) throw new Error(missing);
  const rate = rateOf(new DataView(bytes));
  const decodedAt = (hz) => new OfflineAudioContext(1, 1, hz).decodeAudioData(bytes.slice(0)); // decoding consumes its buffer
  let recorded;
  try {
    recorded = await decodedAt(rate);
  } catch {
    throw new Error("it is not a readable audio file, or contains no samples; export it as WAV or FLAC");
  }
  if (recorded.duration > MAX_SECONDS) throw tooLong(recorded.duration);
  const promised = promisedLength(new DataView(bytes));
  if (recorded.length < promised) throw new Error(`its header promises ${promised} samples, the file holds ${recorded.length}; ${CUT}`);
  if (rate === RATE) return { recorded, sound: recorded, clippedShares: [] };
  say(`${file.name}: resampled from ${rate} to ${RATE} Hz.`);
  const clippedShares = Array.from({ length: recorded.numberOfChannels }, (_, i) => clippedShare(recorded.getChannelData(i)));
  return { recorded, sound: await decodedAt(RATE), clippedShares };
}

function checkNotSilent(sound, nUsed) {
  for (let i = 0; i < nUsed; i++) {
    if (!sound.getChannelData(i).some((sample) => sample)) throw new Error(`channel ${i + 1} is silent; check the microphone and record again`);
  }
}

// Convert impulse responses to 48 kHz and cut them to the request's limit. A resampled response reaches before zero;
// a common delay of the primary and secondary path preserves that part and changes no filter.
function responsesOf(recorded) {
  const energy = (values) => values.reduce((sum, value) => sum + value * value, 0);
  const late = Object.entries(recorded).map(([name, sound]) => {
    const margin = sound.sampleRate === RATE ? 0 : Math.ceil(N_ZEROS * Math.max(1, RATE / sound.sampleRate));
    return { name, margin, samples: resampledResponse(sound.getChannelData(0), sound.sampleRate, margin) };
  });
  const paths = late.filter(({ name }) => name !== "feedback");
  const isKept = (delay) => paths.every(({ samples, margin }) => energy(samples.subarray(0, Math.max(0, margin - delay))) <= MAX_LOST * energy(samples));
  let delay = 0;
  while (!isKept(delay) && paths.some(({ margin }) => margin > delay)) delay++;
  return Object.fromEntries(late.map(({ name, margin, samples }) => {
    const shift = name === "feedback" ? 0 : delay, begun = new Float32Array(samples.length - margin + shift);
    begun.set(samples.subarray(Math.max(0, margin - shift)), Math.max(0, shift - margin));
    if (energy(begun.subarray(MAX_RESPONSE)) > 1e-4 * energy(begun)) throw new Error(`the ${name} response lasts ${begun.length} samples; window it to ${MAX_RESPONSE}`);
    return [name, begun.slice(0, MAX_RESPONSE)];
  }));
}

// Signals of the first channels of a recording.
const CHANNELS = { off: ["x", "e"], on: ["x", "e"], drive: ["drive", "x", "e"] };

function addTake(name, sound, clippedShares) {
  const states = Object.keys(CHANNELS).filter((kind) => CHANNELS[kind].length <= sound.numberOfChannels);
  const named = (kind) => new RegExp(`(^|[^a-z])${kind}([^a-z]|$)`, "i").test(name);
  const kind = states.find((kind) => kind !== "off" && named(kind)) || "off";
  checkNotSilent(sound, CHANNELS[kind].length);
  if (sound.duration < 4) say(`${name}: it lasts only ${sound.duration.toFixed(1)} s; record 4 to ${MAX_SECONDS} s for low frequencies and less noise.`, true);
  state.takes.push({ name, state: kind, states, sound, clippedShares });
  $("recordings").hidden = false;
  $("recording-rows").replaceChildren(...state.takes.map((take) => {
    const select = document.createElement("select"), tr = document.createElement("tr");
    for (const text of take.states) select.append(Object.assign(document.createElement("option"), { textContent: text, selected: text === take.state }));
    select.ariaLabel = `loudspeaker during ${take.name}`;
    select.onchange = () => { take.state = select.value; };
    tr.append(Object.assign(document.createElement("td"), { textContent: take.name }), document.createElement("td"));
    tr.lastChild.append(select);
    return tr;
  }));
}

function takeFields({ state, sound, clippedShares }) {
  const names = CHANNELS[state], fields = state === "drive" ? {} : { gain: state === "on" ? +$("gain").value : 0 };
  names.forEach((name, i) => { fields[name] = sound.getChannelData(i); });
  if (clippedShares.length) fields.clipped_share = Object.fromEntries(names.map((name, i) => [name, clippedShares[i]]));
  return fields;
}

async function calibrate() {
  say("Estimating the paths ...");
  try {
    const takes = state.takes.map(takeFields);
    const found = await ask("calibrate", { takes, sign: $("sign").value });
    const verdict = found.verdict, box = $("verdict");
    box.hidden = false;
    box.replaceChildren(Object.assign(document.createElement("p"), { textContent: verdict.passed ? "The calibration passed." : "The calibration did not pass:" }),
      ...[...verdict.reasons, ...verdict.not_judged].map(({ code, detail }) => paragraph(`${code}: ${detail}`)));
    addEar(earFromDocument(state.takes.map((take) => take.name).join(" + "), found));
  } catch (error) {
    say(`The calibration failed: ${error.message}`, true);
  }
}

// ---- sessions, links, undo ----

const settings = () => Object.fromEntries([...SLIDERS, ...CHOICES].map((id) => [id, $(id).value]));

function restore(values) {
  for (const [id, value] of Object.entries(values)) {
    if (!SLIDERS.includes(id) && !CHOICES.includes(id)) continue;
    const before = $(id).value;
    $(id).value = value;
    if (!$(id).value) $(id).value = before; // unknown choice
  }
  showOutputs();
}

function showOutputs() {
  for (const id of SLIDERS) document.querySelector(`output[for=${id}]`).textContent = $(id).value;
}

let before = null;

function remember() {
  const now = JSON.stringify(settings());
  if (before !== null && before !== now) { state.past.push(before); state.future = []; }
  before = now;
  $("undo").disabled = !state.past.length;
  $("redo").disabled = !state.future.length;
}

function travel(from, to) {
  if (!from.length) return;
  to.push(JSON.stringify(settings()));
  before = from.pop();
  restore(JSON.parse(before));
  $("undo").disabled = !state.past.length;
  $("redo").disabled = !state.future.length;
  redesign();
}

function takeDocument(name, document) {
  const found = readBench(name, document); // before anything changes
  if (!found.isSession) {
    for (const ear of found.ears) addEar(ear);
  } else {
    const { ears, current } = found;
    Object.assign(state, { ears, current, kept: [] });
    restore(found.settings);
    $("joint").checked = found.joint;
    $("kept").replaceChildren();
  }
  for (const { name, design } of found.kept) keep(name, design);
  if (found.isSession) changeEars(); else showDesign();
}

const saveJson = (document, name) => saveFile(new Blob([JSON.stringify(document)], { type: "application/json" }), name);

function saveSession() {
  const { ears, current, kept } = state;
  saveJson(sessionDocument({ ears, current, kept, joint: $("joint").checked, settings: settings() }), "session.json");
}

function saveFile(blob, name) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// ---- export ----

const target = () => ({
  form: $("form").value, ...($("form").value === "sos" ? { n_sections: +$("sections").value } : { n_taps: +$("taps").value }),
  sample_rate: +$("rate").value, number_format: $("format").value,
});

const exportRequest = (more = {}) => requestOf({
  fir: Float32Array.from(state.design.fir), target: target(), max_gain_db: +$("ceiling").value,
  ...(+$("latency").value ? { latency_samples: +$("latency").value } : {}), ...more,
});

// Settings of the last export; sections and fewer taps do not depend on the design's taps.
let realisedFor = "";

const realise = newest(async () => {
  if (!state.design) return;
  const requested = JSON.stringify([target(), $("ceiling").value, $("latency").value]);
  if (state.realised && requested === realisedFor && state.realised.coefficients.taps?.length !== state.design.fir.length) { showLoss(); return; }
  try {
    state.realised = await ask("export", exportRequest());
    realisedFor = requested;
    showLoss();
  } catch (error) {
    state.realised = null;
    $("realised").textContent = `The export failed: ${error.message}`;
  }
  showReduction();
  drawRealised();
});

function showLoss() {
  const { design, realised: { coefficients, prediction } } = state, scaling = coefficients.scaling;
  const reduction = prediction.mean_noise_reduction_db, loss = design.prediction.mean_noise_reduction_db - reduction;
  $("realised").textContent = `${formOf(state.realised)}: ${reduction.toFixed(1)} dB, ${loss.toFixed(1)} dB less than the taps`
    + (scaling ? `; headroom ${scaling.headroom_bits} bit${scaling.headroom_bits === 1 ? "" : "s"}, round-off noise ${scaling.noise_db.toFixed(0)} dB (${scaling.wide_noise_db.toFixed(0)} dB with double-precision feedback).` : ".");
}

// Whether the export is the designed filter itself: 2048 taps at 48 kHz in floating point.
const realisedAsDesigned = () => !state.realised || ($("form").value === "fir" && $("taps").value === "2048" && $("rate").value === "48000" && $("format").value === "float32");

async function download() {
  if (!state.design) { say("Design a filter first.", true); return; }
  const kind = $("file").value;
  if (kind === "json") { saveJson(realisedAsDesigned() ? state.design : state.realised, "control_filter.json"); return; }
  const suffix = { c: "h", minidsp: "txt", apo: "txt" }[kind] || kind;
  try {
    saveFile(await ask("export", exportRequest({ file: kind }), "blob"), `control_filter.${suffix}`);
    say(`Saved control_filter.${suffix}.`);
  } catch (error) {
    say(`The export failed: ${error.message}`, true);
  }
}

// ---- listening ----

const listening = () => document.querySelector("input[name=hear]:checked").value;
const sounds = () => { const ear = state.ears[state.current]; return responses(ear.primary, ear.secondary, Float64Array.from(state.design.fir), state.design.prediction, +$("latency").value); };

let isPlaying = false;

function updateSound() {
  if (isPlaying) player.play(sounds(), $("noise").value, listening(), +$("volume").value);
}

function togglePlay() {
  if (!state.design) { say("Design a filter first.", true); return; }
  isPlaying = !isPlaying;
  $("play").setAttribute("aria-pressed", isPlaying);
  $("play").textContent = isPlaying ? "Stop" : "Play";
  if (isPlaying) updateSound(); else player.stop();
}

// ---- events ----

for (const id of SLIDERS) {
  $(id).addEventListener("input", () => {
    showOutputs();
    if (id === "volume") player.volume(+$("volume").value);
    else if (id === "sections") realise();
    else redesign();
  });
  $(id).addEventListener("change", remember);
}
for (const id of CHOICES) $(id).addEventListener("change", () => { remember(); if (id === "method") redesign(); else realise(); });
$("example").onclick = () => loadExample().catch((error) => say(`The example could not be loaded: ${error.message}`, true));
$("save").onclick = saveSession;
$("calibrate").onclick = calibrate;
$("joint").onchange = changeEars;
$("bands").ontoggle = showTable;
$("path-view").onchange = drawPaths;
$("undo").onclick = () => travel(state.past, state.future);
$("redo").onclick = () => travel(state.future, state.past);
$("print").onclick = () => window.print();
$("download").onclick = download;
$("play").onclick = togglePlay;
$("noise").onchange = updateSound;
for (const radio of document.querySelectorAll("input[name=hear]")) radio.onchange = () => player.choose(listening());
$("link").onclick = async () => {
  const hash = `#${new URLSearchParams(settings())}`;
  history.replaceState(null, "", hash);
  try { await navigator.clipboard.writeText(location.href); say("The link with these settings is in the clipboard; a session file also holds the measurement."); }
  catch { say("The address bar has the link with these settings; a session file also holds the measurement."); }
};
$("keep").onclick = () => {
  if (!state.design) return;
  keep(`${$("method").value} k=${$("k").value} ${$("ceiling").value} dB`, state.design);
  showDesign();
};

function keep(name, design) {
  const li = document.createElement("li"), button = Object.assign(document.createElement("button"), { type: "button", textContent: "Remove" });
  const kept = { name, design };
  state.kept.push(kept);
  li.append(`${name}: ${design.prediction.mean_noise_reduction_db.toFixed(1)} dB `, button);
  button.onclick = () => { state.kept.splice(state.kept.indexOf(kept), 1); li.remove(); showDesign(); };
  $("kept").append(li);
}

$("latency-curve").onclick = async () => {
  if (!chosenEars().length) return;
  const points = [];
  try {
    for (const samples of LATENCIES) {
      const found = await ask("refine", requestOf({ k: +$("k").value, ...designOptions(), latency_samples: samples }));
      points.push([samples, found.prediction.mean_noise_reduction_db]);
      state.latencyCurve = points;
      drawLatency();
    }
    say(`Latency: ${points.map(([x, y]) => `${x} samples ${y.toFixed(1)} dB`).join(", ")}.`);
  } catch (error) { say(`The latency curve failed: ${error.message}`, true); }
};
const drop = $("drop");
drop.onclick = () => $("files").click();
drop.onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); $("files").click(); } };
$("files").onclick = (event) => event.stopPropagation();
$("files").onchange = () => { takeFiles([...$("files").files]); $("files").value = ""; };
for (const kind of ["dragover", "dragleave", "drop"]) drop.addEventListener(kind, (event) => {
  event.preventDefault();
  drop.classList.toggle("over", kind === "dragover");
  if (kind === "drop") takeFiles([...event.dataTransfer.files]);
});
addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && event.target.type !== "password") {
    event.preventDefault();
    if (event.shiftKey) travel(state.future, state.past); else travel(state.past, state.future);
  }
});
const canvas = $("plot-gain");
canvas.onpointerdown = (event) => { canvas.setPointerCapture(event.pointerId); dragCeiling(event); };
canvas.onpointermove = (event) => { if (canvas.hasPointerCapture(event.pointerId)) dragCeiling(event); };
canvas.onpointerup = remember;
function dragCeiling(event) {
  if (!gainScale) return;
  const value = Math.round(2 * gainScale.fromY(event.offsetY)) / 2;
  $("ceiling").value = Math.min(40, Math.max(-10, value));
  showOutputs();
  redesign();
}
function redraw() { showDesign(); drawPaths(); }
addEventListener("resize", redraw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forgetColors(); redraw(); });
restore(Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
remember();

// For tests: the sound as samples.
window.workbench = { state, render: (kind, hear, seconds) => render(sounds(), kind, hear, seconds) };
