// Lists of recordings, for a calibration and for a verification: what the loudspeaker did in each, names, removal.

import { $, changed, changedSoon, element, newId, refill, state } from "../state.js";
import { forget, note } from "../messages.js";
import { RATE } from "../dsp.js";
import { MAX_SECONDS, checkNotSilent, resampledFrom } from "../files/read_files.js";

// Signals of the first channels, by what the loudspeaker did.
const CHANNELS = { off: ["x", "e"], on: ["x", "e"], drive: ["drive", "x", "e"] };
const TEXTS = {
  takes: { off: "off", on: "on, with the gain", drive: "alone (drive, x, e)" },
  runs: { off: "filter off", on: "filter on" },
};
const LEAST_SAMPLES = { takes: 3072, runs: 36864 }; // of a request
const CLUES = { on: "on|run|running|active", drive: "drive" };

const MEANINGS = { drive: "loudspeaker's signal", x: "outer microphone", e: "error microphone" };

// What reading a file changed or left out.
function changesOf(list, nChannels, used, rate) {
  const order = used.map((channel) => MEANINGS[channel]).join(", ");
  return [...(rate === RATE ? [] : [resampledFrom(rate) + (list === "takes" ? `; if the chip runs at ${rate} Hz, choose that in step 4` : "")]), ...(nChannels > used.length ? [`of ${nChannels} channels the first are taken for ${order}`] : [])];
}

// Put the files' names for the places of takes in a text of the service.
export const named = (text, files) => text.replace(/\btakes\.(\d+)/g, (place, n) => files[n] ?? place);

// Take away the recordings of a measurement that passed, before those of another would be averaged with them; a take of
// the loudspeaker alone belongs to them.
function startAnew(name, role) {
  if (role === "drive" || !state.takes.length || !state.takes.every((take) => take.isCalibrated)) return;
  const old = state.takes;
  state.takes = [];
  forget(...old.map((take) => take.name));
  $("ear-name").value = "";
  note(name, `begins another measurement; ${old.map((take) => take.name).join(", ")}, which passed, no longer count.`,
    { isBad: false, action: { label: "Calibrate all together", run: () => { state.takes = [...old, ...state.takes]; changed("takes"); } } });
}

// Add a recording to `takes` or `runs`, or replace the one of the same name.
export function addRecording(list, name, { channels, clippedShares, rate }) {
  const roles = Object.keys(TEXTS[list]).filter((role) => CHANNELS[role].length <= channels.length);
  const role = roles.find((role) => CLUES[role] && new RegExp(`(^|[^a-z])(${CLUES[role]})([^a-z]|$)`, "i").test(name)) ?? "off";
  checkNotSilent(channels, CHANNELS[role].length);
  if (channels[0].length < LEAST_SAMPLES[list]) throw new Error(`it lasts only ${(channels[0].length / RATE).toFixed(2)} s; record ${list === "runs" ? 8 : 4} to ${MAX_SECONDS} s`);
  if (list === "takes") startAnew(name, role);
  const other = state[list].find((take) => take.name !== name && take.rate !== rate);
  if (other) throw new Error(`it is at ${rate} Hz, ${other.name} at ${other.rate} Hz: record all at one rate`);
  for (const text of changesOf(list, channels.length, CHANNELS[role], rate)) note(name, text, { isBad: false });
  const seconds = channels[0].length / 48000;
  if (seconds < 4) note(name, `it lasts only ${seconds.toFixed(1)} s; record 4 to ${MAX_SECONDS} s for low frequencies and less noise.`);
  const take = { id: newId(), name, role, channels: channels.slice(0, 3), clippedShares, rate }, at = state[list].findIndex((other) => other.name === name);
  if (at >= 0) {
    state[list][at] = { ...take, role: state[list][at].role };
    note(name, "it replaces the recording of the same name.", { isBad: false });
  } else state[list].push(take);
  changed(list);
}

export function removeRecordings(list) {
  forget(...state[list].map(({ name }) => name));
  state[list] = [];
  changed(list);
}

export function showRecordings(list, body) {
  refill($(body), state[list].map((take) => {
    const roles = Object.entries(TEXTS[list]).filter(([role]) => CHANNELS[role].length <= take.channels.length);
    const select = element("select", { ariaLabel: `loudspeaker during ${take.name}` },
      ...roles.map(([value, textContent]) => element("option", { value, textContent, selected: value === take.role })));
    select.onchange = () => { take.role = select.value; changed(list); };
    const remove = element("button", { type: "button", textContent: "Remove", ariaLabel: `Remove ${take.name}` });
    remove.onclick = () => removeItem(list, take, take.name);
    const name = element("input", { type: "text", value: take.name, maxLength: 120, ariaLabel: `name of recording ${take.name}` });
    name.title = `${take.name}: ${(take.channels[0].length / 48000).toFixed(1)} s, ${take.channels.length} channels, recorded at ${take.rate} Hz`;
    name.onchange = () => { take.name = name.value.trim() || take.name; changedSoon(list); };
    const cells = [name, select, remove];
    return element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
  }));
}

// Remove an item of a list of the bench, with a way back.
export function removeItem(list, item, name) {
  const at = state[list].indexOf(item);
  state[list].splice(at, 1);
  changed(list);
  forget(name);
  note(name, "removed.", { isBad: false, action: { label: "Put back", run: () => { state[list].splice(at, 0, item); changed(list); } } });
}

// Fields of a request's take.
export function signalsOf({ role, channels, clippedShares }) {
  const names = CHANNELS[role], fields = Object.fromEntries(names.map((name, i) => [name, channels[i]]));
  if (clippedShares.length) fields.clipped_share = Object.fromEntries(names.map((name, i) => [name, clippedShares[i]]));
  return fields;
}
