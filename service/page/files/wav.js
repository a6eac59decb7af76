// Headers of sound files, which browsers do not expose.

import { RATE } from "../dsp.js";

export const CUT = "it was cut off: copy or record it again";

const text = (view, place) => String.fromCharCode(...Array.from({ length: 4 }, (_, i) => view.getUint8(place + i)));

function isWav(view) { return view.byteLength >= 12 && text(view, 0) === "RIFF" && text(view, 8) === "WAVE"; }

// Chunks as [name, position of the contents, length].
function* chunks(view) {
  for (let place = 12; place + 8 <= view.byteLength;) {
    const length = view.getUint32(place + 4, true);
    yield [text(view, place), place + 8, length];
    place += 8 + length + length % 2;
  }
}

// Sample rate of a WAV or FLAC file; for others the page's, to which the browser resamples them.
export function rateOf(view) {
  let rate = RATE;
  if (isWav(view)) {
    for (const [name, place, length] of chunks(view)) if (name === "fmt " && length >= 16 && place + 16 <= view.byteLength) rate = view.getUint32(place + 4, true);
  } else if (view.byteLength > 22 && text(view, 0) === "fLaC") rate = view.getUint32(18) >>> 12;
  return rate >= 3000 && rate <= 768000 ? rate : RATE;
}

// Describe a fault of the lengths in a WAV file's header; null if none.
export function lengthFault(view) {
  if (!isWav(view)) return null;
  const isUnknown = (length) => length >= 0x7ffff000, promised = view.getUint32(4, true);
  let block = 1;
  for (const [name, place, length] of chunks(view)) {
    const held = view.byteLength - place;
    if (name === "fmt " && Math.min(length, held) >= 16) {
      const [code, channels, bits] = [0, 2, 14].map((at) => view.getUint16(place + at, true));
      const [rate, perSecond] = [4, 8].map((at) => view.getUint32(place + at, true));
      block = view.getUint16(place + 12, true);
      if ((code === 1 || code === 3) && perSecond && perSecond !== rate * block && (8 * perSecond) % (channels * bits) === 0) return `its header states ${rate} Hz, and ${perSecond} bytes in a second; export it again`;
    }
    if (name !== "data") continue;
    if (isUnknown(length)) return null;
    if (length > held) return `its header promises ${length} bytes of samples, the file holds ${held}; ${CUT}`;
    if (length === 0 && held > 0) return `its header promises no samples, the file holds ${held} bytes; ${CUT}`;
    if (block && length % block) return `it ends within a sample: ${length} bytes of samples are no multiple of ${block}; ${CUT}`;
    if (!isUnknown(promised) && promised > view.byteLength - 8 + length % 2) return `its header promises ${promised + 8} bytes, the file holds ${view.byteLength}; ${CUT}`;
    return null;
  }
  return `its header promises ${promised + 8} bytes, the file holds ${view.byteLength} and no samples; ${CUT}`;
}

// Samples per channel that a FLAC file states; 0 for others, and if unknown.
export function promisedLength(view) {
  if (view.byteLength < 26 || text(view, 0) !== "fLaC") return 0;
  return (view.getUint8(21) & 15) * 2 ** 32 + view.getUint32(22);
}
