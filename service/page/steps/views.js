// What the page draws: the figures and the noise reduction, always in view, and one further plot.

import { $, chosenEars, currentEar, element, hasFailed, on, row, state } from "../state.js";
import { curve, fixed, powers, rfft, withInterval } from "../dsp.js";
import { judged, reasonOf, wordOf } from "./judgement.js";
import { formOf } from "./load.js";
import { Plot } from "../plot.js";
import { judgedRun, verified } from "./verify.js";

const WIDE = { name: "Frequency", range: [15, 22000] }, BANDS = { name: "Band", range: [40, 9500] };

const [reduction, detail] = ["nr", "detail"].map((name) => new Plot($(`plot-${name}`), $(`legend-${name}`), $(`readout-${name}`)));

function bandEdges(hz) {
  const centre = 10 ** (Math.round(10 * Math.log10(hz)) / 10);
  return [centre * 10 ** -0.05, centre * 10 ** 0.05];
}

// A line of steps over the bands of a prediction or measurement.
function stepsOf(name, color, { band_centre_hz: centres, noise_reduction_db: values }, more = {}) {
  return { name, color, points: centres.flatMap((hz, i) => bandEdges(hz).map((edge) => [edge, values[i]])), ...more };
}

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

const KEPT = { dash: "5 3", kind: "kept" };

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
    ...(rival ? [stepsOf(wienerName(design), "--b", rival.prediction)] : []),
    ...(realised ? [stepsOf(formOf(realised), "--c", realised.prediction)] : []),
    ...(seen ? [stepsOf("measured", "--m", seen)] : []),
    ...state.kept.map((kept) => stepsOf(kept.name, kept.color, kept.design.prediction, KEPT)),
  ];
  const drawn = [nr, found.feedforward_noise_reduction_db, seen?.noise_reduction_db, rival?.prediction.noise_reduction_db].flatMap((bands) => bands ?? []);
  reduction.show({ ...BANDS, y: { name: "Reduction", unit: "dB", range: around(drawn, -5, 30, 2) }, bars: reductionBars(found), lines });
  $("plot-nr").setAttribute("aria-label", `Noise reduction per band: ${found.band_centre_hz.map((hz, i) => `${hz} Hz ${fixed(nr[i])} dB`).join(", ")}`);
  showFigures();
  if ($("bands").open) $("band-table").replaceChildren(...bandTable(state.kept));
}

function showFigures() {
  const { design: { prediction: found, method, loop }, rival } = state, seen = verified()?.answer.measured;
  const counted = found.counted_bands_hz, range = counted ? `${counted[0]} Hz to ${counted.at(-1)} Hz` : "50 Hz to 5 kHz";
  const level = found.level_reduction_db, loss = found.sensitivity_db, db = (value, digits) => `${fixed(value, digits)} dB`;
  const failed = chosenEars().filter(hasFailed), judgement = judged(found, [
    ...failed.map(({ label }) => ({ rank: 2, why: `the calibration of ${label} did not pass`, next: "Follow what step 1 says, and measure again." })),
    ...(loop?.stable === false ? [{ rank: 2, why: "the feedback loop howls", next: "Lower the ceiling in step 2, or improve the seal." }] : []),
  ], "Load it (step 4), then verify it on the ear (step 5).");
  const figures = [
    ["Noise reduction", [wordOf(judgement), ` ${withInterval(found)}`], `predicted mean, ${range}`],
    ...(seen ? [[`Measured, ${verified().filter}`, [wordOf(judgedRun()), ` ${withInterval(seen)}`], "from the last verification"]] : []),
    ...(rival ? [[wienerName(state.design), db(rival.prediction.mean_noise_reduction_db), "a design without training"]] : []),
    ["Amplification", db(found.amplification_db, 2), "mean over bands that become louder"],
    ["Largest |W|", db(found.max_gain_db), ""],
    ...(level ? [["Level, A-weighted", db(level.a_weighted), `unweighted ${db(level.unweighted)}`]] : []),
    ...(loss ? [["1 dB of gain error costs", db(loss.gain_1_db), `a sample of delay at 48 kHz ${db(loss.delay_1_sample)}`]] : []),
    ...(found.conditions ?? []).map((condition) => [condition.label, db(condition.mean_noise_reduction_db), ""]),
    ...(loop ? [[`Feedback loop, ${loop.conditions ? "worst of all plants at ±3 dB" : "as designed"}`, loop.stable ? "stable" : "UNSTABLE", `largest 1/|1+L| ${db(loop.max_sensitivity_db)} at ${loop.nearest_hz.toFixed(0)} Hz`],
      [`Margins, ${loop.conditions ? "worst of all plants at ±3 dB" : "as designed"}`, `${db(loop.gain_margin_db)}, ${loop.phase_margin_deg.toFixed(0)}°`, "gain and phase of the loop"]] : []),
    ...(method === $("method").value ? [] : [["Method used", method, ""]]),
  ];
  $("figures").replaceChildren(...figures.map(([name, value, title]) => element("div", { title },
    element("dt", {}, element("button", { type: "button", className: "term", textContent: name, popoverTargetElement: $("terms") })), element("dd", {}, ...[value].flat()))));
  $("judgement").textContent = reasonOf(seen ? judgedRun() : judgement);
  const texts = [...failed.map(({ label, verdict: { reasons = [] } }) => `calibration of ${label}: it did not pass (${reasons.map(({ code }) => code).join(", ")})`), ...state.design.warnings.map(({ code, detail }) => `${code}: ${detail}`)];
  $("warnings").replaceChildren(...texts.map((textContent) => element("p", { className: "warning", textContent })));
}

// Head and body of a table of the design's bands, beside kept designs.
export function bandTable(kept) {
  const { design, rival, realised } = state, found = design.prediction;
  const share = (name) => (found[name] ? { noise_reduction_db: found[name] } : null);
  const columns = [["designed", found], ["filter", share("feedforward_noise_reduction_db")], ["controller", share("feedback_noise_reduction_db")],
    ["playback", share("playback_change_db")], [wienerName(design), rival?.prediction], ["on hardware", realised?.prediction], ["measured", verified()?.answer.measured],
    ...kept.map(({ name, design: { prediction } }) => [name, prediction])].filter(([, values]) => values);
  const rows = found.band_centre_hz.map((hz, i) => row("td", hz, ...columns.map(([, { noise_reduction_db: nr }]) => (nr[i] === undefined ? "" : fixed(nr[i])))));
  return [element("thead", {}, row("th", "Hz", ...columns.map(([name]) => `${name}, dB`))), element("tbody", {}, ...rows)];
}

// ---- the other plot ----

const levels = new WeakMap(); // curves of spectra in dB, by samples

function levelsOf(samples) {
  if (!levels.has(samples)) levels.set(samples, curve(powers(rfft(samples))).map(([hz, power]) => [hz, 10 * Math.log10(Math.max(power, 1e-30))]));
  return levels.get(samples);
}

function gainFigure({ design }) {
  const ceiling = +$("ceiling").value;
  const lines = [
    ...(design ? [{ name: "|W|", color: "--a", points: levelsOf(design.fir) }] : []),
    { name: `ceiling ${ceiling} dB`, color: "--b", dash: "6 4", points: [WIDE.range[0], WIDE.range[1]].map((hz) => [hz, ceiling]) },
    ...state.kept.map(({ name, color, design: { fir } }) => ({ name, color, points: levelsOf(fir), ...KEPT })),
  ];
  return { ...WIDE, y: { name: "|W|", unit: "dB", range: [-50, 45] }, lines };
}

function magnitudeFigure() {
  const ear = currentEar(), colors = { primary: "--a", secondary: "--b", feedback: "--c" };
  const lines = Object.entries(colors).filter(([name]) => ear[name]).map(([name, color]) => ({ name, color, points: levelsOf(ear[name]) }));
  const [, top] = around(lines.flatMap(({ points }) => points.map(([, y]) => y)), -200, -100, 3);
  return { ...WIDE, y: { name: "Magnitude", unit: "dB", range: [top - 80, top] }, lines };
}

function coherenceFigure() {
  const { coherence } = currentEar(), lines = coherence ? [{ name: "coherence", color: "--a", points: curve(coherence) }] : [];
  return { ...WIDE, y: { name: coherence ? "Coherence" : "No coherence in this measurement", unit: "", range: [0, 1.05], digits: 3 }, lines };
}

function deviationFigure() {
  const { measured: { band_centre_hz: centres }, band_deviation_db: values } = verified().answer;
  return { ...BANDS, y: { name: "Difference", unit: "dB", range: around(values, -3, 3, 1) }, bars: barsOf("measured less predicted", centres, values) };
}

const FIGURES = { gain: gainFigure, magnitude: magnitudeFigure, coherence: coherenceFigure, deviation: deviationFigure };

function showDetail() {
  if (!state.ears.length) return;
  const choice = $("detail-view"), deviation = choice.querySelector("[value=deviation]");
  deviation.hidden = deviation.disabled = !verified();
  if (choice.selectedOptions[0].disabled) choice.value = "gain";
  detail.show(FIGURES[choice.value](state));
  $("plot-detail").setAttribute("aria-label", choice.selectedOptions[0].textContent);
}

export function showView(view) {
  if (view !== "deviation" || verified()) $("detail-view").value = view;
  showDetail();
}

export function startViewing() {
  const redraw = () => { showReduction(); showDetail(); };
  on(["design", "rival", "realised", "kept", "verification", "runs", "ears"], redraw);
  on(["verification"], () => showView("deviation"));
  $("detail-view").onchange = showDetail;
  $("bands").ontoggle = redraw;
  const resized = new ResizeObserver(redraw);
  for (const id of ["plot-nr", "plot-detail"]) resized.observe($(id));
}
