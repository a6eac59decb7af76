// What the page draws: the figures and the noise reduction, always in view, and one further plot.

import { $, changed, chosenEars, currentEar, element, hasFailed, on, stableEars, state } from "./state.js";
import { N_FFT, curve, decibel, fixed, groupDelay, powers, responseOf, rfft, smoother, unwrappedPhase, withInterval } from "./dsp.js";
import { loopOf, onePlus, sensitivityBound } from "./hybrid.js";
import { formOf } from "./load.js";
import { ceilingPoints } from "./options.js";
import { Plot, forgetColors } from "./plot.js";
import { verified } from "./verify.js";

const N_GAIN = 16384; // transform length for drawing 2048 taps
const HZ = { name: "Frequency", unit: "Hz", isLog: true };
const WIDE = { ...HZ, range: [15, 22000] }, BANDS = { ...HZ, name: "Band", range: [40, 9500] };

const reduction = new Plot($("plot-nr"), $("readout-nr"));
const detail = new Plot($("plot-detail"), $("readout-detail"));

function bandEdges(hz) {
  const centre = 10 ** (Math.round(10 * Math.log10(hz)) / 10);
  return [centre * 10 ** -0.05, centre * 10 ** 0.05];
}

// A line of steps over the bands.
function stepsOf(name, color, centres, values, dash) {
  return { name, color, dash, isStep: true, points: centres.flatMap((hz, i) => bandEdges(hz).map((edge) => [edge, values[i]])) };
}

const predicted = (name, color, { band_centre_hz, noise_reduction_db }, dash) => stepsOf(name, color, band_centre_hz, noise_reduction_db, dash);

function barsOf(name, centres, values, color = "--a", from = null) {
  return values.map((y, i) => { const [x0, x1] = bandEdges(centres[i]); return { name, x0, x1, y0: from?.[i] ?? 0, y, color: y < -1 && !from ? "--b" : color }; });
}

// Bars of the reduction; with a controller both shares, one on the other.
function reductionBars({ band_centre_hz: centres, noise_reduction_db: nr, feedforward_noise_reduction_db: share }) {
  return share ? [...barsOf("filter", centres, share), ...barsOf("controller", centres, nr, "--f", share)] : barsOf("designed", centres, nr);
}

function around(values, low, high, margin) {
  const finite = values.filter(Number.isFinite);
  return [Math.min(low, ...finite) - margin, Math.max(high, ...finite) + margin];
}

// ---- figures and noise reduction ----

// The Wiener filter has no controller beside it.
const wienerName = ({ controller }) => (controller ? "Wiener filter alone" : "Wiener filter");

function showReduction() {
  const { design, rival, realised } = state;
  $("welcome").hidden = !!state.ears.length;
  $("results").hidden = $("detail").hidden = !state.ears.length;
  if (!design) return;
  const found = design.prediction, nr = found.noise_reduction_db, seen = verified()?.answer.measured;
  const lines = [
    ...(rival ? [predicted(wienerName(design), "--b", rival.prediction)] : []),
    ...(realised ? [predicted(formOf(realised), "--c", realised.prediction)] : []),
    ...(seen ? [stepsOf("measured", "--m", seen.band_centre_hz, seen.noise_reduction_db)] : []),
    ...state.kept.map((kept) => predicted(kept.name, kept.color, kept.design.prediction, [5, 3])),
  ];
  reduction.show({
    x: BANDS, y: { name: "Reduction", unit: "dB", range: around([nr, found.feedforward_noise_reduction_db, seen?.noise_reduction_db, rival?.prediction.noise_reduction_db].flatMap((bands) => bands ?? []), -5, 30, 2) },
    bars: reductionBars(found), lines,
  });
  $("plot-nr").setAttribute("aria-label", `Noise reduction per band: ${found.band_centre_hz.map((hz, i) => `${hz} Hz ${fixed(nr[i])} dB`).join(", ")}`);
  showFigures();
  if ($("bands").open) showTable();
}

function showFigures() {
  const { design: { prediction: found, method, loop }, rival } = state, seen = verified()?.answer.measured;
  const counted = found.counted_bands_hz, range = counted ? `${counted[0]} Hz to ${counted.at(-1)} Hz` : "50 Hz to 5 kHz";
  const level = found.level_reduction_db, loss = found.sensitivity_db, db = (value, digits) => `${fixed(value, digits)} dB`;
  const figures = [
    ["Noise reduction", withInterval(found), `predicted mean, ${range}`],
    ...(seen ? [[`Measured, ${verified().filter}`, withInterval(seen), "from the last verification"]] : []),
    ...(rival ? [[wienerName(state.design), db(rival.prediction.mean_noise_reduction_db), "a design without training"]] : []),
    ["Amplification", db(found.amplification_db, 2), "mean over bands that become louder"],
    ["Largest |W|", db(found.max_gain_db), ""],
    ...(level ? [["Level, A-weighted", db(level.a_weighted), `unweighted ${db(level.unweighted)}`]] : []),
    ...(loss ? [["1 dB of gain error costs", db(loss.gain_1_db), `a sample of delay at 48 kHz ${db(loss.delay_1_sample)}`]] : []),
    ...(found.conditions ?? []).map((condition) => [condition.label, db(condition.mean_noise_reduction_db), "left_out_noise_reduction_db" in condition ? `left out: ${db(condition.left_out_noise_reduction_db)}` : ""]),
    ...(loop ? [[`Feedback loop, ${loop.conditions ? "worst of all plants at ±3 dB" : "as designed"}`, loop.stable ? "stable" : "UNSTABLE", `largest 1/|1+L| ${db(loop.max_sensitivity_db)} at ${loop.nearest_hz.toFixed(0)} Hz`],
      [`Margins, ${loop.conditions ? "worst of all plants at ±3 dB" : "as designed"}`, `${db(loop.gain_margin_db)}, ${loop.phase_margin_deg.toFixed(0)}°`, "gain and phase of the loop"]] : []),
    ...(method === $("method").value ? [] : [["Method used", method, ""]]),
  ];
  $("figures").replaceChildren(...figures.map(([name, value, title]) => element("div", { title }, element("dt", { textContent: name }), element("dd", { textContent: value }))));
  const failed = chosenEars().filter(hasFailed).map(({ label, verdict: { reasons = [] } }) => `calibration of ${label}: it did not pass (${reasons.map(({ code }) => code).join(", ")})`);
  const texts = [...failed, ...state.design.warnings.map(({ code, detail }) => `${code}: ${detail}`)];
  $("warnings").replaceChildren(...texts.map((textContent) => element("p", { className: "warning", textContent })));
}

function row(kind, ...cells) {
  return element("tr", {}, ...cells.map((textContent) => element(kind, { textContent })));
}

function showTable() {
  const { design, rival, realised } = state;
  if (!design) return;
  const found = design.prediction, seen = verified()?.answer.measured;
  const share = (name) => (found[name] ? { noise_reduction_db: found[name] } : null);
  const columns = [["designed", found], ["filter", share("feedforward_noise_reduction_db")], ["controller", share("feedback_noise_reduction_db")],
    ["playback", share("playback_change_db")], [wienerName(design), rival?.prediction], ["on hardware", realised?.prediction], ["measured", seen],
    ...state.kept.map(({ name, design: { prediction } }) => [name, prediction])].filter(([, values]) => values);
  const rows = found.band_centre_hz.map((hz, i) => row("td", hz, ...columns.map(([, { noise_reduction_db: nr }]) => (nr[i] === undefined ? "" : fixed(nr[i])))));
  $("band-table").replaceChildren(element("thead", {}, row("th", "Hz", ...columns.map(([name]) => `${name}, dB`))), element("tbody", {}, ...rows));
}

// ---- the other plot ----

const smoothing = () => +$("smoothing").value;

function levels(power, perOctave = 48) {
  const mean = smoother(power, smoothing());
  return curve(power.length, (k) => decibel(mean(k)), perOctave);
}

const computed = new WeakMap(); // what was computed from a list of numbers, by that list

function once(numbers, compute) {
  if (!computed.has(numbers)) computed.set(numbers, compute());
  return computed.get(numbers);
}

function gainLine(name, color, { fir }, dash) {
  return { name, color, dash, points: levels(once(fir, () => powers(rfft(Float64Array.from(fir), N_GAIN)))) };
}

function ceilingLine() {
  const points = ceilingPoints(), name = points.length > 1 ? "ceiling" : `ceiling ${points[0][1]} dB`;
  return { name, color: "--b", dash: [6, 4], points: [[15, points[0][1]], ...points, [22000, points.at(-1)[1]]] };
}

function gainFigure(isRealised) {
  const { design, realised } = state, handle = ceilingPoints().length > 1 || isRealised ? null : { y: +$("ceiling").value, move: moveCeiling, done: () => $("ceiling").dispatchEvent(new Event("change")) };
  const lines = design ? [gainLine(isRealised ? "2048 taps" : "|W|", "--a", design)] : [];
  if (isRealised && realised) {
    const { coefficients } = realised;
    lines.push({ name: formOf(realised), color: "--c", points: levels(once(coefficients, () => powers(responseOf(coefficients)))) });
  }
  if (!isRealised) lines.push(ceilingLine(), ...state.kept.map((kept) => gainLine(kept.name, kept.color, kept.design, [5, 3])));
  return { x: WIDE, y: { name: "|W|", unit: "dB", range: [-50, 45] }, lines, handle };
}

function moveCeiling(value) {
  $("ceiling").value = Math.min(40, Math.max(-10, Math.round(2 * value) / 2));
  $("ceiling").dispatchEvent(new Event("input"));
}

function pathsFigure(view) {
  const ear = currentEar();
  if (!ear) return { x: WIDE, y: { name: "", range: [0, 1] } };
  const colors = { primary: "--a", secondary: "--b", feedback: "--c" }, measured = Object.keys(colors).filter((name) => ear[name]);
  const linesOf = (points) => measured.map((name) => ({ name, color: colors[name], points: points(once(ear[name], () => rfft(ear[name])), name) }));
  if (view === "coherence") {
    const mean = ear.coherence && smoother(ear.coherence, smoothing());
    const lines = mean ? [{ name: "coherence", color: "--a", points: curve(ear.coherence.length, mean) }] : [];
    return { x: WIDE, y: { name: mean ? "Coherence" : "No coherence in this measurement", unit: "", range: [0, 1.05], digits: 3 }, lines };
  }
  if (view === "magnitude") {
    const lines = linesOf((spectrum) => levels(powers(spectrum))), top = around(lines.flatMap((line) => line.points.map(([, y]) => y)), -200, -100, 3)[1];
    return { x: WIDE, y: { name: "Magnitude", unit: "dB", range: [top - 80, top] }, lines };
  }
  if (view === "delay") return { x: WIDE, y: { name: "Group delay", unit: "ms", range: [-5, 15], digits: 2 }, lines: linesOf((spectrum) => curve(spectrum.re.length, (k) => groupDelay(spectrum, k))) };
  const isUnwrapped = view === "unwrapped";
  const phase = (spectrum) => curve(spectrum.re.length, (k) => Math.atan2(spectrum.im[k], spectrum.re[k]) * 180 / Math.PI);
  const lines = linesOf((spectrum, name) => (isUnwrapped ? unwrappedPhase(spectrum, ear[name], smoothing()) : phase(spectrum)));
  const range = isUnwrapped ? around(lines.flatMap((line) => line.points.map(([, y]) => y)), 0, 0, 90) : [-190, 190];
  return { x: WIDE, y: { name: isUnwrapped ? "Phase, unwrapped" : "Phase", unit: "degrees", range, digits: 0 }, lines };
}

// ---- the loop ----

const LOOP_COLORS = ["--a", "--c", "--b", "--k0", "--k2", "--k3", "--k1", "--k5"];

// L of every measurement in which the loop has to be stable: [{name, color, loop}].
function loops() {
  const { design } = state;
  if (!design) return [];
  return [...chosenEars(), ...stableEars()].map((ear, i) => ({ name: ear.label, color: LOOP_COLORS[i % LOOP_COLORS.length], loop: loopOf(ear, design) })).filter(({ loop }) => loop);
}

function nyquistFigure() {
  const bins = curve(N_FFT / 2 + 1, (k) => k, 400), radius = 10 ** (-sensitivityBound() / 20);
  const lines = loops().map(({ name, color, loop }) => ({ name, color, points: bins.map(([, k]) => [loop.re[k], loop.im[k]]) }));
  const most = Math.max(3, ...lines.flatMap(({ points }) => points.map((point) => 1.05 * Math.hypot(...point))));
  return {
    x: { name: "Re L", unit: "", range: [-3, 3], full: [-most, most] }, y: { name: "Im L", unit: "" }, lines,
    plane: {
      circles: [{ x: -1, y: 0, radius, name: `forbidden: |1+L| < ${radius.toFixed(2)}`, color: "--b" }],
      textAt: ({ name, points }, i) => `${bins[i][0].toFixed(0)} Hz: ${name} |L| ${fixed(decibel(points[i][0] ** 2 + points[i][1] ** 2))} dB, |1+L| ${Math.hypot(1 + points[i][0], points[i][1]).toFixed(2)}`,
    },
  };
}

function sensitivityFigure() {
  const bound = sensitivityBound(), lines = loops().map(({ name, color, loop }) => {
    const square = powers(onePlus(loop));
    return { name, color, points: curve(square.length, (k) => -decibel(square[k])) };
  });
  const range = around(lines.flatMap((line) => line.points.map(([, y]) => y)), -20, bound, 2);
  return { x: WIDE, y: { name: "1/|1+L|", unit: "dB", range }, lines: [...lines, { name: `bound ${bound} dB`, color: "--b", dash: [6, 4], points: [[15, bound], [22000, bound]] }] };
}

function latencyFigure() {
  const points = state.latencyCurve ?? [], { design } = state;
  const here = design ? [{ name: "this design", x0: +$("latency").value - 0.2, x1: +$("latency").value + 0.2, y: design.prediction.mean_noise_reduction_db, color: "--b" }] : [];
  return { x: { name: "Latency", unit: "samples at 48 kHz", range: [-0.5, 33] }, y: { name: "Mean reduction", unit: "dB", range: [0, 32] }, lines: [{ name: "mean noise reduction", color: "--a", points }], bars: here };
}

function differenceFigure(name, centres, values) {
  return { x: BANDS, y: { name: "Difference", unit: "dB", range: around(values, -3, 3, 1) }, bars: barsOf(name, centres, values) };
}

function detailFigure(view) {
  if (view === "gain" || view === "realised") return gainFigure(view === "realised");
  if (view === "latency") return latencyFigure();
  if (view === "nyquist") return nyquistFigure();
  if (view === "sensitivity") return sensitivityFigure();
  if (view === "playback" && state.design?.prediction.playback_change_db) return differenceFigure("change of playback", state.design.prediction.band_centre_hz, state.design.prediction.playback_change_db);
  if (view === "deviation" && verified()) {
    const { measured } = verified().answer;
    return differenceFigure("measured less predicted", measured.band_centre_hz, verified().answer.band_deviation_db);
  }
  if (view.startsWith("kept-")) {
    const kept = state.kept[+view.slice(5)], mine = state.design?.prediction;
    if (kept && mine) return differenceFigure(`present design less ${kept.name}`, mine.band_centre_hz, mine.noise_reduction_db.map((db, i) => db - kept.design.prediction.noise_reduction_db[i]));
  }
  return pathsFigure(["magnitude", "phase", "unwrapped", "delay", "coherence"].includes(view) ? view : "magnitude");
}

function showDetail() {
  if (!state.ears.length) return;
  const view = $("detail-view").value;
  $("latency-curve").hidden = view !== "latency";
  $("ceiling-help").hidden = view !== "gain";
  $("plot-detail").classList.toggle("tall", view === "nyquist");
  detail.show(detailFigure(view));
  $("plot-detail").setAttribute("aria-label", $("detail-view").selectedOptions[0].textContent);
}

// Views that exist only with a kept design or a verification.
function showChoices() {
  const chosen = $("detail-view").value, fixed = [...$("detail-view").options].filter((option) => !option.dataset.made);
  const hasLoop = !!state.design?.loop, isHybrid = !!state.design?.controller;
  const made = [...(hasLoop ? [["nyquist", "Feedback loop: Nyquist plot of L"], ["sensitivity", "Feedback loop: 1/(1+L)"]] : []),
    ...(isHybrid ? [["playback", "Change of what is played"]] : []), ...(verified() ? [["deviation", "Measured less predicted"]] : []), ...state.kept.map(({ name }, i) => [`kept-${i}`, `Difference from ${name}`])];
  $("detail-view").replaceChildren(...fixed, ...made.map(([value, textContent]) => { const option = element("option", { value, textContent }); option.dataset.made = "yes"; return option; }));
  $("detail-view").value = chosen;
  if (!$("detail-view").value) $("detail-view").value = "gain";
}

export function showView(view) {
  if ([...$("detail-view").options].some((option) => option.value === view)) $("detail-view").value = view;
  showDetail();
}

export function redraw() { showReduction(); showDetail(); }

export function startViewing() {
  on(["design", "kept", "verification", "runs", "ears"], showChoices);
  on(["design", "rival", "realised", "kept", "verification", "runs", "ears"], redraw);
  on(["latency"], showDetail);
  on(["verification"], () => showView("deviation"));
  $("detail-view").onchange = showDetail;
  $("smoothing").onchange = showDetail;
  $("bands").ontoggle = showTable;
  const resized = new ResizeObserver(redraw);
  for (const id of ["plot-nr", "plot-detail"]) resized.observe($(id));
  const recolor = () => { forgetColors(); redraw(); };
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
  for (const [event, isPrinting] of [["beforeprint", true], ["afterprint", false]]) {
    addEventListener(event, () => { document.documentElement.classList.toggle("printing", isPrinting); if (isPrinting) { showTable(); changed("print"); } recolor(); });
  }
}
