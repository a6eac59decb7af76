// A fake sound device for the page: what it plays reaches two microphones late and through paths, beside outside noise.
// `fake` sets the paths before the microphones open; `gain` is that of the outside noise.
window.fake = { latency: 3000, slip_ppm: 0, primary: [1], secondary: [1], feedback: [1], gain: null };
const LASTS_S = 20; // the noise, and the change of the latency by the slip

class FakeDevice {
  constructor(context, speaker) {
    const { latency, slip_ppm, primary, secondary, feedback } = window.fake, rate = context.sampleRate;
    const buffered = (samples) => { const buffer = context.createBuffer(1, samples.length, rate); buffer.copyToChannel(Float32Array.from(samples), 0); return buffer; };
    const path = (response) => new ConvolverNode(context, { disableNormalization: true, buffer: buffered(response) });
    this.played = new GainNode(context, { channelCount: 1, channelCountMode: "explicit" });
    this.microphones = new ChannelMergerNode(context, { numberOfInputs: 2 });
    const late = new DelayNode(context, { delayTime: latency / rate, maxDelayTime: 1 });
    late.delayTime.linearRampToValueAtTime(latency / rate + 1e-6 * slip_ppm * LASTS_S, context.currentTime + LASTS_S);
    const noise = new AudioBufferSourceNode(context, { loop: true, buffer: buffered(Array.from({ length: LASTS_S * rate }, () => 0.1 * Math.random() - 0.05)) });
    const outside = new GainNode(context);
    this.played.connect(late);
    late.connect(path(secondary)).connect(this.microphones, 0, 1);
    late.connect(path(feedback)).connect(this.microphones, 0, 0);
    noise.connect(outside).connect(this.microphones, 0, 0);
    outside.connect(path(primary)).connect(this.microphones, 0, 1);
    this.microphones.connect(speaker);
    noise.start();
    window.fake.gain = outside.gain;
  }
}

window.AudioContext = class extends AudioContext {
  get destination() {
    this.device ??= new FakeDevice(this, super.destination);
    return this.device.played;
  }
};
window.MediaStreamAudioSourceNode = function (context) { return context.destination && context.device.microphones; };
