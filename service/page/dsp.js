// Transforms and spectra, in double precision.

export const RATE = 48000, N_FFT = 32768;

// A number as text; what rounds to zero has no sign.
export const fixed = (value, digits = 1) => value.toFixed(digits).replace(/^-(?=[0.]+$)/, "");

// The same with either sign.
export const signed = (value) => fixed(value).replace(/^(?!-)/, "+");

// A mean, with its interval if that is known.
export const withInterval = ({ mean_noise_reduction_db: mean, interval_db: interval }) => `${fixed(mean)}${interval ? ` ± ${fixed(interval)}` : ""} dB`;

// In-place radix-2 transform of length 2^m; sign -1 forward, +1 inverse (unscaled).
export function fft(re, im, sign = -1) {
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
  re.set(samples.length > n ? samples.subarray(0, n) : samples);
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

export function times(a, b) {
  const re = new Float64Array(a.re.length), im = new Float64Array(a.re.length);
  for (let k = 0; k < re.length; k++) {
    re[k] = a.re[k] * b.re[k] - a.im[k] * b.im[k];
    im[k] = a.re[k] * b.im[k] + a.im[k] * b.re[k];
  }
  return { re, im };
}

export function minus(a, b) {
  return { re: a.re.map((value, k) => value - b.re[k]), im: a.im.map((value, k) => value - b.im[k]) };
}

// A spectrum of the design grid, later by a number of samples.
export function delayed(spectrum, samples) {
  if (!samples) return spectrum;
  const re = spectrum.re.slice(), im = spectrum.im.slice();
  for (let k = 0; k < re.length; k++) {
    const angle = -2 * Math.PI * k * samples / N_FFT, c = Math.cos(angle), s = Math.sin(angle);
    [re[k], im[k]] = [spectrum.re[k] * c - spectrum.im[k] * s, spectrum.re[k] * s + spectrum.im[k] * c];
  }
  return { re, im };
}

// a / b, bin by bin.
export function over(a, b) {
  const re = new Float64Array(a.re.length), im = new Float64Array(a.re.length);
  for (let k = 0; k < re.length; k++) {
    const square = b.re[k] ** 2 + b.im[k] ** 2;
    re[k] = (a.re[k] * b.re[k] + a.im[k] * b.im[k]) / square;
    im[k] = (a.im[k] * b.re[k] - a.re[k] * b.im[k]) / square;
  }
  return { re, im };
}

export function plus(a, b) {
  return { re: a.re.map((value, k) => value + b.re[k]), im: a.im.map((value, k) => value + b.im[k]) };
}

export const scaled = (a, factor) => ({ re: a.re.map((value) => value * factor), im: a.im.map((value) => value * factor) });

export const power = (a, k) => a.re[k] ** 2 + a.im[k] ** 2;
export const decibel = (ratio) => 10 * Math.log10(Math.max(ratio, 1e-30));
export const hertz = (k, nBins) => k * RATE / 2 / (nBins - 1);

// Points of a curve over frequency, at most a few per pixel: [[hz, value], ...].
export function curve(nBins, value, perOctave = 48) {
  const points = [];
  let last = -1;
  for (let hz = 15; hz < 22000; hz *= 2 ** (1 / perOctave)) {
    const k = Math.round(hz * 2 * (nBins - 1) / RATE);
    if (k > last && k < nBins) { points.push([hertz(k, nBins), value(k)]); last = k; }
  }
  return points;
}

// The biquads' response at bin k of the design grid.
export function sectionsResponse(rows, hz, rate) {
  const w = -2 * Math.PI * hz / rate, c1 = Math.cos(w), s1 = Math.sin(w), c2 = Math.cos(2 * w), s2 = Math.sin(2 * w);
  let re = 1, im = 0;
  for (const [b0, b1, b2, a0, a1, a2] of rows) {
    const br = b0 + b1 * c1 + b2 * c2, bi = b1 * s1 + b2 * s2, ar = a0 + a1 * c1 + a2 * c2, ai = a1 * s1 + a2 * s2;
    const d = ar * ar + ai * ai, hr = (br * ar + bi * ai) / d, hi = (bi * ar - br * ai) / d;
    [re, im] = [re * hr - im * hi, re * hi + im * hr];
  }
  return [re, im];
}

// Spectrum on the design grid of what a chip runs, as /export describes it: zero above half its rate.
export function responseOf({ sos, taps, sample_rate: rate }) {
  const nBins = N_FFT / 2 + 1, re = new Float64Array(nBins), im = new Float64Array(nBins), isMultiple = taps && rate >= RATE && Number.isInteger(Math.log2(rate / RATE));
  const W = isMultiple ? rfft(Float64Array.from(taps), rate / RATE * N_FFT) : null; // the design grid's bins come first
  for (let k = 0; k < nBins && k * RATE / N_FFT <= rate / 2; k++) {
    [re[k], im[k]] = W ? [W.re[k], W.im[k]] : (sos ? sectionsResponse : tapsResponse)(sos ?? taps, k * RATE / N_FFT, rate);
  }
  return { re, im };
}

function tapsResponse(taps, hz, rate) {
  const angle = -2 * Math.PI * hz / rate, c = Math.cos(angle), s = Math.sin(angle);
  let re = 0, im = 0;
  for (let n = taps.length - 1; n >= 0; n--) [re, im] = [taps[n] + re * c - im * s, re * s + im * c]; // Horner
  return [re, im];
}

// Mean of values over 1 / `fraction` octave around each bin; `fraction` 0: as they are.
export function smoother(values, fraction) {
  if (!fraction) return (k) => values[k];
  const sums = new Float64Array(values.length + 1);
  for (let k = 0; k < values.length; k++) sums[k + 1] = sums[k] + values[k];
  const half = 2 ** (0.5 / fraction);
  return (k) => {
    const low = Math.max(0, Math.round(k / half)), high = Math.min(values.length - 1, Math.round(k * half));
    return (sums[high + 1] - sums[low]) / (high + 1 - low);
  };
}

export const powers = ({ re, im }) => re.map((value, k) => value ** 2 + im[k] ** 2);

// Phase in degrees, continuous over frequency: [[hz, degrees], ...]. The delay of the largest sample is taken out while the
// phase is unwrapped, and the spectrum averaged over 1 / `fraction` octave, so that noise makes no turns.
export function unwrappedPhase({ re, im }, samples, fraction) {
  let late = 0;
  for (let n = 1; n < samples.length; n++) if (Math.abs(samples[n]) > Math.abs(samples[late])) late = n;
  const step = 2 * Math.PI * late / (2 * (re.length - 1)), c = re.map((_, k) => Math.cos(step * k)), s = re.map((_, k) => Math.sin(step * k));
  const [a, b] = [re.map((value, k) => value * c[k] - im[k] * s[k]), re.map((value, k) => value * s[k] + im[k] * c[k])].map((part) => smoother(part, fraction || 24));
  let before = null, turns = 0;
  return curve(re.length, (k) => {
    const phase = Math.atan2(b(k), a(k)) / (2 * Math.PI);
    if (before !== null) turns -= Math.round(phase - before);
    before = phase;
    return 360 * (phase + turns) - step * k * 180 / Math.PI;
  });
}

// Group delay in ms at each bin: -dphi/dw from the product with the conjugate of the next bin.
export function groupDelay(spectrum, k) {
  const { re, im } = spectrum, j = Math.min(k + 4, re.length - 1), i = Math.max(k - 4, 0);
  const phase = Math.atan2(im[j] * re[i] - re[j] * im[i], re[j] * re[i] + im[j] * im[i]);
  return -phase / (2 * Math.PI * (hertz(j, re.length) - hertz(i, re.length))) * 1000;
}

// Seeded noise of several kinds, RMS 0.1; deterministic.
export function noise(kind, seed, n = 6 * RATE) {
  let state = seed * 2654435761 >>> 0 || 1;
  const uniform = () => { state ^= state << 13; state ^= state >>> 17; state ^= state << 5; state >>>= 0; return state / 4294967296; };
  const size = 1 << Math.ceil(Math.log2(n)), re = new Float64Array(size), im = new Float64Array(size);
  for (let i = 0; i < size; i++) re[i] = Math.sqrt(-2 * Math.log(uniform() + 1e-12)) * Math.cos(2 * Math.PI * uniform());
  fft(re, im);
  const half = size / 2, shape = SHAPES[kind];
  for (let k = 0; k <= half; k++) {
    const gain = k === 0 ? 0 : shape(k * RATE / size);
    re[k] *= gain; im[k] *= gain;
    if (k > 0 && k < half) { re[size - k] = re[k]; im[size - k] = -im[k]; }
  }
  fft(re, im, 1);
  const out = re.slice(0, n), rms = Math.sqrt(out.reduce((sum, value) => sum + value * value, 0) / n);
  const fade = 2400;
  const loop = Float32Array.from(out, (value) => 0.1 * value / rms);
  for (let i = 0; i < fade; i++) { // the end runs into the beginning
    const t = i / fade;
    loop[n - fade + i] = loop[n - fade + i] * Math.sqrt(1 - t) + loop[i] * Math.sqrt(t);
  }
  return loop.slice(fade);
}

const SHAPES = {
  white: () => 1,
  pink: (hz) => 1 / Math.sqrt(Math.max(hz, 20)),
  cabin: (hz) => 1 / Math.max(hz, 60) / (1 + (hz / 6000) ** 2),
  street: (hz) => (1 + 6 * Math.exp(-(((hz - 90) / 30) ** 2))) / Math.max(hz, 80) ** 0.8,
};

export const N_ZEROS = 32;

// Resample a response to RATE from time zero, delayed by a number of samples, with the same transfer function below the
// lower Nyquist frequency: the windowed sinc of prime_anc.measure.files.resampling, N_ZEROS on either side.
export function resampledResponse(samples, rate, delay) {
  const ratio = RATE / rate, cutoff = Math.min(1, ratio), width = N_ZEROS / cutoff;
  if (ratio === 1) { const late = new Float32Array(samples.length + delay); late.set(samples, delay); return late; }
  const found = new Float32Array(Math.ceil((samples.length + width) * ratio) + delay);
  for (let n = 0; n < found.length; n++) {
    const place = (n - delay) / ratio;
    const first = Math.max(0, Math.ceil(place - width)), last = Math.min(samples.length - 1, Math.floor(place + width));
    let sum = 0;
    for (let i = first; i <= last; i++) {
      const distance = place - i, angle = Math.PI * cutoff * distance, taper = Math.cos(Math.PI * distance / width / 2);
      sum += samples[i] * (angle ? Math.sin(angle) / angle : 1) * taper * taper;
    }
    found[n] = sum * cutoff / ratio;
  }
  return found;
}

// Share of samples at the extremes, as in the service's `clipped_share`; resampling would hide it.
export function clippedShare(samples) {
  let high = 0, low = 0, energy = 0;
  for (const value of samples) { high = Math.max(high, value); low = Math.min(low, value); energy += value * value; }
  let nHigh = 0, nLow = 0;
  for (const value of samples) { nHigh += value >= high * (1 - 1e-6); nLow += value <= low * (1 - 1e-6); }
  const share = ((high > 0 ? nHigh - 1 : 0) + (low < 0 ? nLow - 1 : 0)) / samples.length;
  const rms = Math.sqrt(energy / samples.length) / Math.max(high, -low);
  return Math.abs(rms - Math.SQRT1_2) < 0.02 ? Math.max(share - 0.01, 0) : share; // a sine has many samples at its extremes
}
