// Sound at the ear: noise unfiltered (open ear), through P, and through what filter and controller leave of it. The part that neither cancels,
// known per band from the prediction, is added to the latter two as independent noise of that spectrum.

import { N_FFT, RATE, irfft, noise, power } from "./dsp.js";
import { heard } from "./hybrid.js";

const FADE_S = 0.03;

// Responses to convolve with: passive, active, and the shape of the uncancelled part. All are divided by |P|'s level:
// paths may be in any unit, and the passive level equals that of the open ear.
export function responses(ear, design) {
  const { P, R, L } = heard(ear, design), { prediction } = design;
  const stays = { re: new Float64Array(P.re.length), im: new Float64Array(P.re.length) };
  const edges = prediction.band_centre_hz.map((hz) => 10 ** (Math.round(10 * Math.log10(hz)) / 10));
  edges.forEach((centre, band) => {
    const low = Math.ceil(centre * 10 ** -0.05 * N_FFT / RATE), high = Math.ceil(centre * 10 ** 0.05 * N_FFT / RATE);
    let p = 0, r = 0;
    for (let k = low; k < high; k++) { p += power(P, k); r += power(R, k); }
    const ratio = 10 ** (prediction.noise_reduction_db[band] / 10);
    // D + U = ratio (E + U)
    const unknown = ratio > 1.01 ? Math.max(0, (p - ratio * r) / (ratio - 1)) / (high - low) : 0;
    for (let k = low; k < high; k++) stays.re[k] = Math.sqrt(unknown) * (k % 2 ? -1 : 1); // centred at half the length
  });
  const passive = irfft(P), level = Math.sqrt(passive.reduce((sum, value) => sum + value * value, 0));
  const scaled = (samples, n) => Float32Array.from(samples.subarray(0, n), (value) => (level ? value / level : 0));
  return {
    passive: scaled(passive, ear.primary.length),
    active: scaled(irfft(R), L ? N_FFT : Math.min(N_FFT, ear.primary.length + design.fir.length)),
    stays: scaled(windowed(irfft(stays)), N_FFT),
  };
}

function windowed(samples) {
  const n = 8192, start = N_FFT / 2 - n / 2;
  return Float64Array.from({ length: n }, (_, i) => samples[start + i] * (0.5 - 0.5 * Math.cos(2 * Math.PI * i / n)));
}

function convolver(context, response) {
  const node = new ConvolverNode(context, { disableNormalization: true });
  const buffer = context.createBuffer(1, response.length, RATE);
  buffer.copyToChannel(response, 0);
  node.buffer = buffer;
  return node;
}

// Limit on samples, -1 dB of full scale; smaller ones are unchanged.
const LARGEST = 10 ** (-1 / 20);

function limiter(context) {
  const scale = new GainNode(context, { gain: 1 / LARGEST });
  scale.connect(new WaveShaperNode(context, { curve: [-LARGEST, LARGEST] })).connect(context.destination); // it clips at 1
  return scale;
}

function source(context, kind, seed) {
  const samples = noise(kind, seed), buffer = context.createBuffer(1, samples.length, RATE);
  buffer.copyToChannel(samples, 0);
  return new AudioBufferSourceNode(context, { buffer, loop: true });
}

// Audio graph in any context; `hear` is open, passive or active.
export function build(context, sounds, kind, hear, destination) {
  const noiseSource = source(context, kind, 1), other = source(context, kind, 2);
  const gains = {};
  const connect = (name, from, node) => {
    gains[name] ||= new GainNode(context, { gain: name === hear ? 1 : 0 });
    from.connect(node).connect(gains[name]).connect(destination);
  };
  connect("open", noiseSource, new GainNode(context));
  connect("passive", noiseSource, convolver(context, sounds.passive));
  connect("active", noiseSource, convolver(context, sounds.active));
  for (const name of ["passive", "active"]) connect(name, other, convolver(context, sounds.stays));
  noiseSource.start();
  other.start();
  return {
    choose(name) {
      for (const [key, node] of Object.entries(gains)) node.gain.setTargetAtTime(key === name ? 1 : 0, context.currentTime, FADE_S / 3);
    },
    stop() {
      for (const node of Object.values(gains)) node.gain.setTargetAtTime(0, context.currentTime, FADE_S / 3);
      setTimeout(() => { noiseSource.stop(); other.stop(); for (const node of Object.values(gains)) node.disconnect(); }, 200);
    },
  };
}

// Render seconds of the sound as samples.
export async function render(sounds, kind, hear, seconds = 4) {
  const context = new OfflineAudioContext(1, seconds * RATE, RATE);
  build(context, sounds, kind, hear, limiter(context));
  return (await context.startRendering()).getChannelData(0);
}

export class Player {
  constructor() { this.context = null; this.graph = null; }

  async play(sounds, kind, hear, volume) {
    this.context ||= new AudioContext({ sampleRate: RATE });
    if (!this.master) {
      this.master = new GainNode(this.context);
      this.master.connect(limiter(this.context));
    }
    await this.context.resume();
    this.volume(volume);
    const before = this.graph;
    this.graph = build(this.context, sounds, kind, hear, this.master);
    before?.stop();
  }

  volume(db) { this.master?.gain.setTargetAtTime(10 ** (db / 20) * 3, this.context.currentTime, FADE_S); }

  choose(name) { this.graph?.choose(name); }

  stop() { this.graph?.stop(); this.graph = null; }
}
