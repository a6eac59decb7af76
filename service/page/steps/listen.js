// The sound at the ear as predicted: noise at the open ear, past the earphone, and with its bands as loud as the filter leaves them.

import { $, currentEar, on, state } from "../state.js";
import { N_FFT, RATE, noise, powers, rfft, rms } from "../dsp.js";

const FADE_S = 0.03;
const RMS = 0.1; // of the noise at the open ear and past the earphone, whatever the paths' unit
const LARGEST = 10 ** (-1 / 20); // limit on samples, -1 dB of full scale; smaller ones are unchanged

// Gains over frequency: open, passive, active.
function gainsOf(ear, { prediction }) {
  const { band_centre_hz: centres, out_of_band_db: { low, high } } = prediction, first = Math.round(10 * Math.log10(centres[0])), passed = powers(rfft(ear.primary));
  const { noise_reduction_db: reduction } = prediction.conditions?.find(({ label }) => label === ear.label) ?? prediction;
  const louder = (hz) => { const band = Math.round(10 * Math.log10(hz)) - first; return band < 0 ? low : -(reduction[band] ?? -high); };
  const passive = (hz) => Math.sqrt(passed[Math.round(hz * N_FFT / RATE)]);
  return { open: () => 1, passive, active: (hz) => passive(hz) * 10 ** (louder(hz) / 20) };
}

// Loops of a kind of noise: open, passive, active.
function loopsOf(ear, design, kind) {
  const [open, passive, active] = Object.values(gainsOf(ear, design)).map((gain) => noise(kind, 1, gain)), level = rms(passive) || 1;
  const scaled = (samples, before) => Float32Array.from(samples, (value) => RMS * value / before);
  return { open: scaled(open, rms(open)), passive: scaled(passive, level), active: scaled(active, level) };
}

function limiter(context) {
  const scale = new GainNode(context, { gain: 1 / LARGEST });
  scale.connect(new WaveShaperNode(context, { curve: [-LARGEST, LARGEST] })).connect(context.destination); // it clips at 1
  return scale;
}

// Audio graph in any context; `hear` is open, passive or active.
function build(context, loops, hear, destination) {
  const parts = Object.entries(loops).map(([name, samples]) => {
    const buffer = context.createBuffer(1, samples.length, RATE), gain = new GainNode(context, { gain: name === hear ? 1 : 0 });
    buffer.copyToChannel(samples, 0);
    const source = new AudioBufferSourceNode(context, { buffer, loop: true });
    source.connect(gain).connect(destination);
    source.start();
    return { name, source, gain };
  });
  const choose = (wanted) => { for (const { name, gain } of parts) gain.gain.setTargetAtTime(name === wanted ? 1 : 0, context.currentTime, FADE_S / 3); };
  return { choose, stop() { choose(null); for (const { source } of parts) source.stop(context.currentTime + 0.2); } };
}

// The sound as samples, for tests.
export async function rendered(kind, hear, seconds) {
  const context = new OfflineAudioContext(1, seconds * RATE, RATE);
  build(context, loopsOf(currentEar(), state.design, kind), hear, limiter(context));
  return (await context.startRendering()).getChannelData(0);
}

let context = null, master = null, graph = null, isPlaying = false;

const chosen = () => document.querySelector("input[name=hear]:checked").value;
const setVolume = () => master?.gain.setTargetAtTime(10 ** (+$("volume").value / 20) * 3, context.currentTime, FADE_S);

async function update() {
  if (!isPlaying) return;
  if (!context) {
    context = new AudioContext({ sampleRate: RATE });
    master = new GainNode(context);
    master.connect(limiter(context));
  }
  await context.resume();
  setVolume();
  graph?.stop();
  graph = build(context, loopsOf(currentEar(), state.design, $("noise").value), chosen(), master);
}

function setPlaying(isOn) {
  isPlaying = isOn;
  $("play").setAttribute("aria-pressed", isPlaying);
  $("play").textContent = isPlaying ? "Stop" : "Play";
  if (!isPlaying) { graph?.stop(); graph = null; }
  update();
}

export function startListening() {
  on(["rest"], update);
  on(["design"], () => { if (!state.design && isPlaying) setPlaying(false); });
  $("play").onclick = () => setPlaying(!isPlaying);
  $("noise").onchange = update;
  $("volume").addEventListener("input", setVolume);
  for (const radio of document.querySelectorAll("input[name=hear]")) radio.onchange = () => graph?.choose(chosen());
}
