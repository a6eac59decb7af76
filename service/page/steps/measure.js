// Step 1: recordings, calibration, measurements.

import { $, changed, changedSoon, currentEar, element, hasFailed, isJoint, newId, on, refill, state, whileDisabled } from "../state.js";
import { forget, note, say } from "../messages.js";
import { earFromDocument, measurementDocument } from "../files/bench_file.js";
import { named, removeItem, removeRecordings, showRecordings, signalsOf } from "./recordings.js";
import { ask } from "../requests.js";
import { saveJson } from "../files/save.js";

const MAX_TAKES = 64, MIN_GAIN = 1e-6, MAX_GAIN = 1000; // of a request
const LOUDEST_PLAYED = 2; // loudspeaker's signal over full scale, as in prime-anc calibrate

export const withIds = (ears) => ears.map((ear) => ({ used: true, ...ear, id: newId() }));

export function addEars(ears, current = state.ears.length) {
  state.ears.push(...withIds(ears));
  state.current = current;
  changed("ears");
}

// What the service would refuse in its own words.
function checkTakes() {
  const has = (...roles) => state.takes.some(({ role }) => roles.includes(role)), gain = Math.abs(+$("gain").value);
  if (!has("off") || !has("on", "drive")) throw new Error("it needs a recording with the loudspeaker off, and one with it on or alone: add it, or say in the list what the loudspeaker did");
  if (state.takes.length > MAX_TAKES) throw new Error(`there are ${state.takes.length} recordings; remove all but ${MAX_TAKES}`);
  if (has("on") && !(gain >= MIN_GAIN && gain <= MAX_GAIN)) throw new Error(`write into “Gain that was played” the factor between outer microphone and loudspeaker, of a size from ${MIN_GAIN} to ${MAX_GAIN}`);
  for (const { name, role, channels } of state.takes) {
    const loudest = role === "on" ? gain * channels[0].reduce((most, value) => Math.max(most, Math.abs(value)), 0) : 0;
    if (loudest > LOUDEST_PLAYED) note(name, `with the gain ${gain} the loudspeaker's signal would have been ${loudest.toFixed(0)} times full scale; check the gain.`);
  }
}

async function calibrate() {
  say("Estimating the paths ...");
  forget("Calibration");
  $("verdict").hidden = true;
  const files = state.takes.map(({ name }) => name);
  try {
    checkTakes();
    const takes = state.takes.map((take) => ({ ...signalsOf(take), ...(take.role === "drive" ? {} : { gain: take.role === "on" ? +$("gain").value : 0 }) }));
    const found = await ask("calibrate", { takes, sign: $("sign").value });
    for (const finding of found.verdict.reasons) finding.detail = named(finding.detail, files);
    const label = $("ear-name").value.trim() || state.takes.map((take) => take.name).join(" + ");
    const old = state.ears.find((ear) => ear.label === label), ear = earFromDocument(label, found);
    if (found.verdict.passed) for (const take of state.takes) take.isCalibrated = true;
    if (old) { // measured again
      const before = { ...old, label: `${label}, before` };
      Object.assign(old, { id: newId(), coherence: undefined, feedback: undefined, uncertainty: undefined }, ear);
      state.current = state.ears.indexOf(old);
      note(label, "measured again; the new measurement replaces the old one.", { isBad: false, action: { label: "Keep both", run: () => addEars([before], state.current) } });
      changed("ears");
    } else addEars([ear]);
    say(found.verdict.passed ? "The calibration passed." : "The calibration did not pass.", !found.verdict.passed);
  } catch (error) {
    note("Calibration", named(error.message, files));
    say("The calibration failed.", true, () => $("calibrate").click());
  }
}

function showVerdict() {
  const verdict = currentEar()?.verdict;
  $("verdict").hidden = !verdict;
  if (!verdict) return;
  const head = element("p", { className: verdict.passed ? "good" : "bad", textContent: verdict.passed ? "The calibration passed." : "The calibration did not pass:" });
  const causes = new Map();
  for (const { code, detail } of verdict.not_judged ?? []) causes.set(detail, [...(causes.get(detail) ?? []), code]);
  $("verdict").replaceChildren(head, ...(verdict.reasons ?? []).map(({ code, detail }) => element("p", { className: "warning", textContent: `${code}: ${detail}` })),
    ...(verdict.passed && !currentEar().uncertainty ? [element("p", { className: "help", textContent: UNALIGNED })] : []),
    ...[...causes].map(([cause, codes]) => element("p", { className: "help", textContent: `Not judged (${cause}): ${codes.join(", ")}.` })));
}

// Without uncertainty takes do not repeat.
const UNALIGNED = "No recording with a gain repeats the noise of the silent one, sample for sample: predictions are lower and less certain; play one file from its start in both.";
const USES = { design: "design", stable: "stable", no: "unused" };

function earRow(ear, i) {
  const radio = element("input", { type: "radio", name: "ear", checked: i === state.current, ariaLabel: `design for ${ear.label}` });
  radio.onchange = () => { state.current = i; changed("ears"); };
  const name = element("input", { type: "text", value: ear.label, maxLength: 80, ariaLabel: `name of measurement ${i + 1}` });
  name.onchange = () => { ear.label = name.value.trim() || ear.label; changedSoon("ears"); };
  const role = element("select", { ariaLabel: `use of ${ear.label}` }, ...Object.entries(USES).filter(([use]) => use !== "stable" || $("hybrid").checked)
    .map(([value, textContent]) => element("option", { value, textContent, selected: value === (ear.used ? "design" : ear.stabilityOnly ? "stable" : "no") })));
  role.onchange = () => { Object.assign(ear, { used: role.value === "design", stabilityOnly: role.value === "stable" }); changed("ears"); };
  const save = element("button", { type: "button", textContent: "Save", ariaLabel: `Save ${ear.label}` });
  save.onclick = () => saveJson(measurementDocument(ear), `${ear.label}.json`);
  const remove = element("button", { type: "button", textContent: "Remove", ariaLabel: `Remove ${ear.label}` });
  remove.onclick = () => {
    if (state.current > i || state.current === state.ears.length - 1) state.current = Math.max(0, state.current - 1);
    removeItem("ears", ear, ear.label);
  };
  const mark = element("span", { className: "bad", textContent: hasFailed(ear) ? "did not pass" : "" });
  const cells = [radio, name, mark, ...(isJoint() ? [role] : []), save, remove];
  return element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
}

function showEars() {
  $("conditions").hidden = !state.ears.length;
  $("joint-row").hidden = state.ears.length < 2;
  refill($("condition-list"), state.ears.map(earRow));
  showVerdict();
}

export function startMeasuring() {
  on(["takes"], () => { $("recordings").hidden = !state.takes.length; showRecordings("takes", "recording-rows"); });
  on(["ears"], showEars);
  $("calibrate").onclick = () => whileDisabled($("calibrate"), calibrate);
  $("clear-takes").onclick = () => removeRecordings("takes");
  $("joint").onchange = () => changed("ears");
}
