// Step 1 where the earphone is a sound device of this computer: play a probe, record both microphones.

import { $, element, on, state, whileDisabled } from "../state.js";
import { note, say } from "../messages.js";
import { RATE, fixed, irfft, noise, powers, rfft, rms } from "../dsp.js";
import { addRecording } from "./recordings.js";

const TAIL_S = 0.7; // recorded after the probe: the computer's latency and the last echo
const SEGMENT = 65536; // samples of which a delay is estimated, at either end of a take
const SWEEP = 32768; // samples of a sweep, which is repeated; no latency may be longer
const SOUND_M_S = 343;
const ONSET = 0.3; // of a response's peak, above the ripple before it
const MOST_SLIP_SAMPLES = 0.5; // between loudspeaker and microphones, within a take
const LEAST_DBFS = -50; // RMS of a channel below which a take is likely to be noisy

let context = null, recorder = null, source = null, stream = null, waiting = null;

const dbfs = (value) => 20 * Math.log10(Math.max(value, 1e-6));

// ---- probes ----

function sweeps(length) {
  const low = 20, high = 20000, seconds = SWEEP / RATE, rate = Math.log(high / low);
  const fade = (n) => Math.min(1, n / 256, (SWEEP - n) / 256);
  const one = Float32Array.from({ length: SWEEP }, (_, n) => fade(n) * Math.sin(2 * Math.PI * low * seconds / rate * (Math.exp(n / SWEEP * rate) - 1)));
  return Float32Array.from({ length }, (_, n) => one[n % SWEEP]);
}

// Samples that are played, the loudest of pink noise at 12 dB above its RMS.
function probeOf(kind, length, levelDb) {
  const samples = kind === "sweep" ? sweeps(length) : noise("pink", 3, undefined, 2 ** Math.ceil(Math.log2(length))).subarray(0, length);
  const gain = 10 ** (levelDb / 20) / rms(samples);
  return Float32Array.from(samples, (value) => Math.max(-1, Math.min(1, gain * value)));
}

// ---- delays ----

// Spectrum of b times the conjugate of that of a, over `weight`.
const crossed = (b, a, weight) => ({ re: b.re.map((value, k) => (value * a.re[k] + b.im[k] * a.im[k]) / weight[k]), im: b.im.map((value, k) => (value * a.re[k] - b.re[k] * a.im[k]) / weight[k]) });

// Response from a drive to a recording, within a segment from `start` on.
function responseBetween(drive, recorded, start) {
  const [D, E] = [drive, recorded].map((samples) => rfft(samples.subarray(start, start + SEGMENT), 2 * SEGMENT));
  const power = powers(D), least = 1e-4 * power.reduce((most, value) => Math.max(most, value), 0);
  return irfft(crossed(E, D, power.map((value) => value + least))).subarray(0, SWEEP);
}

const peakOf = (values) => values.reduce((best, value, n) => (value > values[best] ? n : best), 0);

// Samples by which response `b` is later than `a`, between samples: where their correlation is largest.
function shiftBetween(a, b) {
  const A = rfft(a, SWEEP), correlation = irfft(crossed(rfft(b, SWEEP), A, A.re.map(() => 1)));
  const at = peakOf(correlation), [before, most, after] = [-1, 0, 1].map((step) => correlation.at((at + step) % SWEEP));
  return (at > SWEEP / 2 ? at - SWEEP : at) + (before - after) / (2 * (before - 2 * most + after) || 1);
}

// Take the computer's latency out of a recording, so that sound reaches the error microphone as late as by its distance.
function aligned(probe, [x, e]) {
  const last = SWEEP * Math.floor((probe.length - SEGMENT) / SWEEP), begin = responseBetween(probe, e, 0), end = responseBetween(probe, e, last), size = begin.map(Math.abs);
  const first = size.findIndex((value) => value >= ONSET * size[peakOf(size)]), acoustic = Math.round((+$("probe-distance").value || 0) / 1000 / SOUND_M_S * RATE);
  const late = Math.max(0, first - acoustic), length = Math.min(probe.length, x.length - late), slip = shiftBetween(begin, end);
  return { channels: [probe.slice(0, length), x.slice(late, late + length), e.slice(late, late + length)], late, slip, ppm: slip / last * 1e6 };
}

// ---- devices ----

async function fillDevices() {
  const devices = await navigator.mediaDevices.enumerateDevices();
  for (const [id, kind] of [["record-input", "audioinput"], ["record-output", "audiooutput"]]) {
    const chosen = $(id).value, found = devices.filter((device) => device.kind === kind && device.deviceId && device.deviceId !== "default");
    $(id).replaceChildren(element("option", { value: "", textContent: "the system's" }), ...found.map(({ deviceId, label }, i) => element("option", { value: deviceId, textContent: label || `device ${i + 1}` })));
    $(id).value = found.some(({ deviceId }) => deviceId === chosen) ? chosen : "";
  }
}

async function openMicrophones() {
  if (!navigator.mediaDevices) throw new Error("browsers give microphones only to pages from https or from this computer (127.0.0.1)");
  closeMicrophones();
  const asRecorded = { echoCancellation: false, noiseSuppression: false, autoGainControl: false, channelCount: { ideal: 2 }, sampleRate: { ideal: RATE } };
  stream = await navigator.mediaDevices.getUserMedia({ audio: { ...asRecorded, ...($("record-input").value ? { deviceId: { exact: $("record-input").value } } : {}) } });
  const settings = stream.getAudioTracks()[0].getSettings();
  if (settings.channelCount === 1) note("Microphones", "this device has one channel; the outer and the error microphone need two of one device.");
  if (settings.sampleRate && settings.sampleRate !== RATE) note("Microphones", `the device runs at ${settings.sampleRate} Hz and is resampled; ${RATE} Hz is better.`, { isBad: false });
  if (!context) {
    context = new AudioContext({ sampleRate: RATE, latencyHint: "playback" });
    await context.audioWorklet.addModule("workbench/steps/recorder_worklet.js");
  }
  recorder = new AudioWorkletNode(context, "recorder", { channelCount: 2, channelCountMode: "explicit", channelInterpretation: "discrete", outputChannelCount: [2] });
  recorder.port.onmessage = ({ data }) => (data.recorded ? waiting?.(data) : showLevels(data));
  source = new MediaStreamAudioSourceNode(context, { mediaStream: stream });
  source.connect(recorder).connect(context.destination);
  await context.resume();
  await fillDevices();
  $("record").disabled = false;
  $("microphones").textContent = "Close the microphones";
  $("record-state").textContent = "The levels are live. Play, and set the gains so that peaks stay below -6 dB.";
}

function closeMicrophones() {
  source?.disconnect();
  recorder?.disconnect();
  stream?.getTracks().forEach((track) => track.stop());
  source = recorder = stream = null;
  $("record").disabled = true;
  $("microphones").textContent = "Use the microphones";
  $("record-state").textContent = "";
}

function showLevels({ peak, rms, share }) {
  ["x", "e"].forEach((name, i) => {
    $(`level-${name}`).value = dbfs(rms[i]);
    $(`level-${name}-text`).textContent = `${fixed(dbfs(rms[i]), 0)} dB, peak ${fixed(dbfs(peak[i]), 0)}`;
  });
  if (share !== null) $("record-state").textContent = `Recording: ${Math.round(100 * share)} %`;
}

// ---- a take ----

function freshName(kind, list) {
  for (let i = 1; ; i++) if (!state[list].some(({ name }) => name === `${kind} ${i}`)) return `${kind} ${i}`;
}

async function record() {
  const kind = $("record-what").value, list = ["quiet", "running"].includes(kind) ? "runs" : "takes", name = freshName(kind, list);
  const seconds = Math.min(60, Math.max(4, +$("probe-seconds").value || 8)), length = Math.round(seconds * RATE);
  const isDriven = kind === "drive", probe = isDriven || kind === "room" ? probeOf($("probe").value, length, +$("probe-level").value) : new Float32Array(length);
  if (context.setSinkId) await context.setSinkId($("record-output").value);
  recorder.port.postMessage({ probe, length: length + (isDriven ? TAIL_S * RATE : 0) });
  const { recorded, gaps, clipped } = await new Promise((resolve) => { waiting = resolve; });
  say(`${name} is recorded.`);
  const found = isDriven ? aligned(probe, recorded) : { channels: recorded };
  addRecording(list, name, { channels: found.channels, clippedShares: [], rate: RATE });
  const level = recorded.map((samples) => dbfs(rms(samples)));
  const said = [`x ${fixed(level[0], 0)} dB, e ${fixed(level[1], 0)} dB of full scale`];
  if (isDriven) said.push(`latency ${found.late} samples, taken out`, `clock slip ${fixed(found.ppm)} ppm`);
  $("record-state").textContent = `${name}: ${said.join("; ")}.`;
  if (clipped) note(name, `${clipped} samples are clipped; turn the microphones or the probe down and record it again.`);
  if (gaps) note(name, `${gaps} blocks of 128 samples are missing; close other programs and record it again.`);
  if (Math.abs(found.slip ?? 0) > MOST_SLIP_SAMPLES) note(name, `loudspeaker and microphones have different clocks: ${found.slip.toFixed(1)} samples within the take; use one sound device for both.`);
  if (Math.min(...level) < LEAST_DBFS) note(name, "it is quiet; turn the probe or the microphones up.");
}

async function guarded(button, subject, work) {
  try { await whileDisabled(button, work); } catch (error) { note(subject, error.message); say(`${subject} failed.`, true); }
  $("record").disabled = !recorder;
}

export function startRecording() {
  $("microphones").onclick = () => (recorder ? closeMicrophones() : guarded($("microphones"), "Microphones", openMicrophones));
  $("record").onclick = () => guarded($("record"), "Recording", record);
  $("record-input").onchange = () => { if (recorder) guarded($("microphones"), "Microphones", openMicrophones); };
  on(["ears"], () => { if (state.ears.length && !$("step-measure").open && recorder) closeMicrophones(); });
}
