// Numbers as text, transforms and noise, in double precision.

export const RATE = 48000, N_FFT = 32768;

// A number as text; what rounds to zero has no sign.
export const fixed = (value, digits = 1) => value.toFixed(digits).replace(/^-(?=[0.]+$)/, "");

// The same with either sign.
export const signed = (value) => fixed(value).replace(/^(?!-)/, "+");

// A mean, with its interval if that is known.
export const withInterval = ({ mean_noise_reduction_db: mean, interval_db: interval }) => `${fixed(mean)}${interval ? ` ± ${fixed(interval)}` : ""} dB`;

// In-place radix-2 transform of length 2^m; sign -1 forward, +1 inverse (unscaled).
function fft(re, im, sign = -1) {
  const n = re.length;
  for (let i = 1, j = 0; i < n; i++) {
    let bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) { [re[i], re[j]] = [re[j], re[i]]; [im[i], im[j]] = [im[j], im[i]]; }
  }
  for (let size = 2; size <= n; size <<= 1) {
    const half = size >> 1, step = sign * 2 * Math.PI / size;
    for (let k = 0; k < half; k++) {
      const c = Math.cos(step * k), s = Math.sin(step * k);
      for (let i = k; i < n; i += size) {
        const j = i + half, x = re[j] * c - im[j] * s, y = re[j] * s + im[j] * c;
        re[j] = re[i] - x; im[j] = im[i] - y; re[i] += x; im[i] += y;
      }
    }
  }
}

// One-sided spectrum of real samples: {re, im}, n / 2 + 1 bins.
export function rfft(samples, n = N_FFT) {
  const re = new Float64Array(n), im = new Float64Array(n);
  re.set(samples.slice(0, n));
  fft(re, im);
  return { re: re.slice(0, n / 2 + 1), im: im.slice(0, n / 2 + 1) };
}

// Real samples from a one-sided spectrum.
export function irfft({ re, im }) {
  const half = re.length - 1, n = 2 * half, a = new Float64Array(n), b = new Float64Array(n);
  a.set(re); b.set(im);
  for (let k = 1; k < half; k++) { a[n - k] = re[k]; b[n - k] = -im[k]; }
  fft(a, b, 1);
  return a.map((value) => value / n);
}

export const powers = ({ re, im }) => re.map((value, k) => value ** 2 + im[k] ** 2);

// Points of a curve over frequency, the means over 1/24 octave of values from 0 Hz to half the rate: [[hz, value], ...].
export function curve(values) {
  const points = [], perHz = 2 * (values.length - 1) / RATE, half = 2 ** (1 / 48);
  for (let hz = 15; hz < 22000; hz *= half) {
    const part = values.subarray(Math.round(hz / half * perHz), Math.round(hz * half * perHz) + 1);
    points.push([hz, part.reduce((sum, value) => sum + value, 0) / part.length]);
  }
  return points;
}

export const rms = (samples) => Math.sqrt(samples.reduce((sum, value) => sum + value * value, 0) / samples.length);

// Seeded noise of a kind that has passed a `gain` over frequency, without seams when it is repeated; n is a power of two.
export function noise(kind, seed, gain = () => 1, n = 2 ** 18) {
  let state = seed * 2654435761 >>> 0 || 1;
  const uniform = () => { state ^= state << 13; state ^= state >>> 17; state ^= state << 5; state >>>= 0; return state / 4294967296; };
  const re = new Float64Array(n / 2 + 1), im = new Float64Array(n / 2 + 1);
  for (let k = 1; k < n / 2; k++) {
    const hz = k * RATE / n, size = SHAPES[kind](hz) * gain(hz) * Math.sqrt(-2 * Math.log(uniform() + 1e-12)), phase = 2 * Math.PI * uniform();
    re[k] = size * Math.cos(phase); im[k] = size * Math.sin(phase);
  }
  return irfft({ re, im });
}

const SHAPES = {
  white: () => 1,
  pink: (hz) => 1 / Math.sqrt(Math.max(hz, 20)),
  cabin: (hz) => 1 / Math.max(hz, 60) / (1 + (hz / 6000) ** 2),
  street: (hz) => (1 + 6 * Math.exp(-(((hz - 90) / 30) ** 2))) / Math.max(hz, 80) ** 0.8,
};

// Share of samples at the extremes, as in the service's `clipped_share`; resampling would hide it.
export function clippedShare(samples) {
  let high = 0, low = 0;
  for (const value of samples) { high = Math.max(high, value); low = Math.min(low, value); }
  let nHigh = 0, nLow = 0;
  for (const value of samples) { nHigh += value >= high * (1 - 1e-6); nLow += value <= low * (1 - 1e-6); }
  const share = ((high > 0 ? nHigh - 1 : 0) + (low < 0 ? nLow - 1 : 0)) / samples.length;
  return Math.abs(rms(samples) / Math.max(high, -low) - Math.SQRT1_2) < 0.02 ? Math.max(share - 0.01, 0) : share; // a sine has many samples at its extremes
}
