// Step 1: recordings, calibration, measurements.

import { $, changed, currentEar, element, isJoint, newId, on, state } from "./state.js";
import { note, say } from "./messages.js";
import { earFromDocument, measurementDocument } from "./bench_file.js";
import { removeItem, showRecordings, signalsOf } from "./recordings.js";
import { ask } from "./requests.js";
import { saveJson } from "./save.js";

export function addEars(ears, current = state.ears.length) {
  state.ears.push(...ears.map((ear) => ({ used: true, ...ear, id: newId() })));
  state.current = current;
  changed("ears");
}

const paragraph = (text) => element("p", { className: "warning", textContent: text });

async function calibrate() {
  say("Estimating the paths ...");
  $("calibrate").disabled = true;
  try {
    const takes = state.takes.map((take) => ({ ...signalsOf(take), ...(take.role === "drive" ? {} : { gain: take.role === "on" ? +$("gain").value : 0 }) }));
    const found = await ask("calibrate", { takes, sign: $("sign").value });
    const label = $("ear-name").value.trim() || state.takes.map((take) => take.name).join(" + ");
    const old = state.ears.find((ear) => ear.label === label), ear = earFromDocument(label, found);
    if (old) { // measured again
      Object.assign(old, { id: newId(), coherence: undefined, feedback: undefined, uncertainty: undefined }, ear);
      state.current = state.ears.indexOf(old);
      note(label, "measured again; the new measurement replaces the old one.", { isBad: false });
      changed("ears");
    } else addEars([ear]);
    say(found.verdict.passed ? "The calibration passed." : "The calibration did not pass.", !found.verdict.passed);
  } catch (error) {
    note("Calibration", error.message);
    say("The calibration failed.", true);
  } finally {
    $("calibrate").disabled = false;
  }
}

function showVerdict() {
  const verdict = currentEar()?.verdict;
  $("verdict").hidden = !verdict;
  if (!verdict) return;
  const head = element("p", { className: verdict.passed ? "good" : "bad", textContent: verdict.passed ? "The calibration passed." : "The calibration did not pass:" });
  const findings = [...(verdict.reasons ?? []), ...(verdict.not_judged ?? [])];
  $("verdict").replaceChildren(head, ...findings.map(({ code, detail }) => paragraph(`${code}: ${detail}`)));
}

const USES = { design: "design", stable: "stable", no: "unused" };

function earRow(ear, i) {
  const radio = element("input", { type: "radio", name: "ear", checked: i === state.current, ariaLabel: `design for ${ear.label}` });
  radio.onchange = () => { state.current = i; changed("ears"); document.querySelectorAll("input[name=ear]")[i].focus(); };
  const name = element("input", { type: "text", value: ear.label, maxLength: 80, ariaLabel: `name of measurement ${i + 1}` });
  name.onchange = () => { ear.label = name.value.trim() || ear.label; changed("names", "ears"); };
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
  const cells = [radio, name, ...(isJoint() ? [role] : []), save, remove];
  return element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
}

function showEars() {
  $("conditions").hidden = !state.ears.length;
  $("joint-row").hidden = state.ears.length < 2;
  $("condition-list").replaceChildren(...state.ears.map(earRow));
  showVerdict();
}

export function startMeasuring() {
  on(["takes"], () => { $("recordings").hidden = !state.takes.length; showRecordings("takes", "recording-rows"); });
  on(["ears"], showEars);
  $("calibrate").onclick = calibrate;
  $("clear-takes").onclick = () => { state.takes = []; changed("takes"); };
  $("joint").onchange = () => changed("ears");
}
