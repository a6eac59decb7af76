// What a sound file's head says, which browsers do not tell.

import { RATE } from "./dsp.js";

const text = (view, place) => String.fromCharCode(...Array.from({ length: 4 }, (_, i) => view.getUint8(place + i)));

function isWav(view) { return view.byteLength >= 12 && text(view, 0) === "RIFF" && text(view, 8) === "WAVE"; }

// [name, place of its contents, length] of each chunk.
function* chunks(view) {
  for (let place = 12; place + 8 <= view.byteLength;) {
    const length = view.getUint32(place + 4, true);
    yield [text(view, place), place + 8, length];
    place += 8 + length + length % 2;
  }
}

// Sample rate of a WAV or FLAC file; of others the page's, to which the browser resamples them.
export function rateOf(view) {
  let rate = RATE;
  if (isWav(view)) {
    for (const [name, place, length] of chunks(view)) if (name === "fmt " && length >= 16 && place + 16 <= view.byteLength) rate = view.getUint32(place + 4, true);
  } else if (view.byteLength > 22 && text(view, 0) === "fLaC") rate = view.getUint32(18) >>> 12;
  return rate >= 3000 && rate <= 768000 ? rate : RATE;
}

// What a WAV file lacks of what its head promises, as `measurement.files.wav_length` finds it; else null.
export function whatIsMissing(view) {
  if (!isWav(view)) return null;
  const isUnknown = (length) => length >= 0x7ffff000, promised = view.getUint32(4, true);
  let block = 1;
  for (const [name, place, length] of chunks(view)) {
    const held = view.byteLength - place;
    if (name === "fmt " && Math.min(length, held) >= 16) block = view.getUint16(place + 12, true);
    if (name !== "data") continue;
    if (isUnknown(length)) return null;
    if (length > held) return `its header promises ${length} bytes of samples, the file holds ${held}`;
    if (length === 0 && held > 0) return `its header promises no samples, the file holds ${held} bytes`;
    if (block && length % block) return `it ends within a sample: ${length} bytes of samples are no multiple of ${block}`;
    if (!isUnknown(promised) && promised > view.byteLength - 8 + length % 2) return `its header promises ${promised + 8} bytes, the file holds ${view.byteLength}`;
    return null;
  }
  return `its header promises ${promised + 8} bytes, the file holds ${view.byteLength} and no samples`;
}
