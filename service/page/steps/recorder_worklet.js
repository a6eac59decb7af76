// In the audio thread: play a probe, record the input from the probe's first sample on, report levels.

const REPORT_FRAMES = 4800, N_CHANNELS = 2;
const FULL = 0.99; // of full scale: a sample that is this large counts as clipped

class Recorder extends AudioWorkletProcessor {
  constructor() {
    super();
    this.take = null;
    this.clear();
    this.port.onmessage = ({ data }) => { this.take = data && { ...data, place: 0, gaps: 0, clipped: 0, recorded: Array.from({ length: N_CHANNELS }, () => new Float32Array(data.length)) }; };
  }

  clear() { this.meter = { frames: 0, peak: [0, 0], energy: [0, 0] }; }

  process([input], [output]) {
    const { take, meter } = this, frames = output[0].length, channels = Array.from({ length: N_CHANNELS }, (_, i) => input[i] ?? new Float32Array(frames));
    meter.frames += frames;
    channels.forEach((samples, i) => {
      for (const sample of samples) {
        meter.peak[i] = Math.max(meter.peak[i], Math.abs(sample));
        meter.energy[i] += sample * sample;
      }
    });
    if (take) this.go(take, channels, output, frames);
    if (meter.frames >= REPORT_FRAMES) {
      this.port.postMessage({ peak: meter.peak, rms: meter.energy.map((sum) => Math.sqrt(sum / meter.frames)), share: this.take && take.place / take.length });
      this.clear();
    }
    return true;
  }

  go(take, channels, output, frames) {
    const n = Math.min(frames, take.length - take.place);
    if (channels.every((samples) => samples.every((sample) => sample === 0))) take.gaps++;
    channels.forEach((samples, i) => take.recorded[i].set(samples.subarray(0, n), take.place));
    take.clipped += channels[0].reduce((count, _, at) => count + channels.some((samples) => Math.abs(samples[at]) >= FULL), 0);
    for (const samples of output) samples.set(take.probe.subarray(take.place, take.place + n));
    take.place += n;
    if (take.place < take.length) return;
    this.take = null;
    const { recorded, gaps, clipped } = take;
    this.port.postMessage({ recorded, gaps, clipped }, recorded.map((samples) => samples.buffer));
  }
}

registerProcessor("recorder", Recorder);
