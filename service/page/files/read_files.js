// From dropped files to samples: recordings, the expected noise.

import { N_FFT, RATE, clippedShare, powers, rfft } from "../dsp.js";
import { CUT, lengthFault, promisedLength, rateOf } from "./wav.js";

export const MAX_SECONDS = 60;
const MAX_BYTES = 200e6;

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

// Power spectrum of the expected noise, mean square per bin of the design grid, as `prime-anc design --reference-psd`
// reads it: Welch's method on a recording's first channel.
export async function noiseSpectrum(file) {
  const { channels: [samples] } = await decoded(file);
  checkNotSilent([samples], 1);
  if (samples.length < N_FFT) throw new Error(`it has ${samples.length} samples; record at least ${N_FFT}, four seconds at best`);
  const psd = new Float64Array(N_FFT / 2 + 1), window = Float64Array.from({ length: N_FFT }, (_, n) => 0.5 - 0.5 * Math.cos(2 * Math.PI * n / N_FFT));
  const scale = window.reduce((sum, value) => sum + value * value, 0) * N_FFT; // density times the width of a bin
  let nFrames = 0;
  for (let start = 0; start + N_FFT <= samples.length; start += N_FFT / 2, nFrames++) {
    powers(rfft(window.map((value, n) => value * samples[start + n]))).forEach((power, k) => { psd[k] += (k && k < N_FFT / 2 ? 2 : 1) * power / scale; });
  }
  return Float32Array.from(psd, (value) => value / nFrames);
}
