// From dropped files to samples: recordings, impulse responses, the expected noise.

import { N_FFT, N_ZEROS, RATE, clippedShare, fft, resampledResponse } from "./dsp.js";
import { MAX_RESPONSE } from "./bench_file.js";
import { CUT, lengthFault, promisedLength, rateOf } from "./wav.js";

export const MAX_SECONDS = 60;
const MAX_BYTES = 200e6;
const MAX_LOST = 1e-5; // largest share of energy before time zero, as in prime_anc.measure.files.resampling

const channelsOf = (sound) => Array.from({ length: sound.numberOfChannels }, (_, i) => sound.getChannelData(i).slice());

// Decode a sound file: {rate (of the file), recorded, channels (at 48 kHz), clippedShares (if resampled)}.
export async function decoded(file) {
  const head = new DataView(await file.slice(0, 44).arrayBuffer());
  const isWav = head.byteLength === 44 && head.getUint32(0) === 0x52494646 && head.getUint32(12) === 0x666d7420;
  const seconds = isWav ? file.size / head.getUint32(28, true) : 0;
  const tooLong = (duration) => new Error(`it lasts ${Math.round(duration)} s; cut it to 4 to ${MAX_SECONDS} s`);
  if (seconds > MAX_SECONDS + 1) throw tooLong(seconds); // before long files fill the memory
  if (file.size > MAX_BYTES) throw new Error(`it has ${Math.round(file.size / 1e6)} MB; cut it to 4 to ${MAX_SECONDS} s`);
  const bytes = await file.arrayBuffer(), view = new DataView(bytes), fault = lengthFault(view);
  if (fault) throw new Error(fault);
  const rate = rateOf(view);
  const decodedAt = (hz) => new OfflineAudioContext(1, 1, hz).decodeAudioData(bytes.slice(0)); // it consumes its buffer
  let sound;
  try {
    sound = await decodedAt(rate);
  } catch {
    throw new Error("it is not a readable audio file, or contains no samples; export it as WAV or FLAC");
  }
  if (sound.duration > MAX_SECONDS) throw tooLong(sound.duration);
  const promised = promisedLength(view);
  if (sound.length < promised) throw new Error(`its header promises ${promised} samples, the file holds ${sound.length}; ${CUT}`);
  const recorded = channelsOf(sound);
  if (rate === RATE) return { rate, recorded, channels: recorded, clippedShares: [] };
  return { rate, recorded, channels: channelsOf(await decodedAt(RATE)), clippedShares: recorded.map(clippedShare) };
}

export const resampledFrom = (rate) => `resampled from ${rate} to ${RATE} Hz${rate < RATE ? `; it holds nothing above ${rate / 2} Hz` : ""}`;

export function checkNotSilent(channels, nUsed) {
  for (let i = 0; i < nUsed; i++) {
    if (!channels[i].some((sample) => sample)) throw new Error(`channel ${i + 1} is silent; check the microphone and record again`);
  }
}

// Convert impulse responses {name: {samples, rate}} to 48 kHz and cut them to the request's limit. A resampled response
// reaches before zero; a common delay of the primary and secondary path preserves that part and changes no filter.
export function responsesOf(recorded) {
  const energy = (values) => values.reduce((sum, value) => sum + value * value, 0);
  const late = Object.entries(recorded).map(([name, { samples, rate }]) => {
    const margin = rate === RATE ? 0 : Math.ceil(N_ZEROS * Math.max(1, RATE / rate));
    return { name, margin, samples: resampledResponse(samples, rate, margin) };
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

// Read rows of two numbers, such as frequency and level; heads and comments are skipped.
export function readTable(text) {
  const cells = (line) => (line.includes(";") ? line.replaceAll(",", ".") : line).trim().split(/[\s,;]+/).map(Number); // decimal commas
  const rows = text.split(/\r?\n/).map(cells);
  const found = rows.filter((row) => row.length >= 2 && row.slice(0, 2).every(Number.isFinite) && row[0] > 0).map((row) => row.slice(0, 2));
  if (!found.length) throw new Error("it has no rows of frequency in Hz and another number");
  if (found.some(([hz], i) => i && hz <= found[i - 1][0])) throw new Error("its frequencies do not rise");
  return found;
}

// Power spectrum of the expected noise, mean square per bin of the design grid, as `prime-anc design --reference-psd`
// reads it: Welch's method on a recording's first channel, or a table of power density in dB over log frequency.
export async function noiseSpectrum(file) {
  const nBins = N_FFT / 2 + 1;
  if (/\.(csv|txt|frd)$/i.test(file.name)) {
    const rows = readTable(await file.text());
    return Float32Array.from({ length: nBins }, (_, k) => 10 ** (interpolated(rows, k * RATE / N_FFT) / 10));
  }
  const { channels: [samples] } = await decoded(file);
  checkNotSilent([samples], 1);
  if (samples.length < N_FFT) throw new Error(`it has ${samples.length} samples; record at least ${N_FFT}, four seconds at best`);
  const psd = new Float64Array(nBins), window = Float64Array.from({ length: N_FFT }, (_, n) => 0.5 - 0.5 * Math.cos(2 * Math.PI * n / N_FFT));
  const scale = window.reduce((sum, value) => sum + value * value, 0) * N_FFT; // density times the width of a bin
  let nFrames = 0;
  for (let start = 0; start + N_FFT <= samples.length; start += N_FFT / 2, nFrames++) {
    const re = window.map((value, n) => value * samples[start + n]), im = new Float64Array(N_FFT);
    fft(re, im);
    for (let k = 0; k < nBins; k++) psd[k] += (k && k < nBins - 1 ? 2 : 1) * (re[k] ** 2 + im[k] ** 2) / scale;
  }
  return Float32Array.from(psd, (value) => value / nFrames);
}

// Linear over log frequency, held beyond the ends.
export function interpolated(rows, hz) {
  if (hz <= rows[0][0]) return rows[0][1];
  if (hz >= rows.at(-1)[0]) return rows.at(-1)[1];
  const i = rows.findIndex(([x]) => x > hz), [[x0, y0], [x1, y1]] = [rows[i - 1], rows[i]];
  return y0 + (y1 - y0) * Math.log(hz / x0) / Math.log(x1 / x0);
}
