// What lies on the bench, and who reacts when a part of it changes.

export const $ = (id) => document.getElementById(id);

export const state = {
  ears: [], // measurements: {id, label, used, stabilityOnly?, primary, secondary, coherence?, feedback?, uncertainty?, sign, verdict?}
  current: 0,
  takes: [], // recordings for a calibration: {id, name, role, channels, rate, clippedShares, isCalibrated?}
  runs: [], // recordings for a verification, likewise
  controller: null, // feedback controller: {document, purpose, plants, name}
  kept: [], // designs to compare with: {name, color, design}
  chip: null, // filter of a file that a chip runs: {name, document}
  noise: null, // expected noise: {name, psd}
  verification: null, // {answer, earId, runs, filter, isTaps}
  design: null, rival: null, realised: null, isRealising: false,
};

const reactions = new Map();

// Call `react` whenever one of these parts has changed.
export function on(parts, react) {
  for (const part of parts) reactions.set(part, [...(reactions.get(part) ?? []), react]);
}

export function changed(...parts) {
  for (const react of new Set(parts.flatMap((part) => reactions.get(part) ?? []))) react(parts);
}

// The same, when Tab has moved the keyboard on from the control that made the change.
export const changedSoon = (...parts) => setTimeout(() => changed(...parts));

export const isJoint = () => $("joint").checked;
export const currentEar = () => state.ears[state.current];

// Whether a measurement's calibration did not pass; it is believed all the same.
export const hasFailed = ({ verdict }) => verdict?.passed === false;

// The measurements that a filter is designed for.
export function chosenEars() {
  return isJoint() ? state.ears.filter((ear) => ear.used) : [currentEar()].filter(Boolean);
}

// The measurements in which a controller's loop only has to be stable.
export const stableEars = () => (isJoint() && $("hybrid").checked ? state.ears.filter((ear) => ear.stabilityOnly) : []);

export function element(tag, fields = {}, ...children) {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
}

export const row = (kind, ...cells) => element("tr", {}, ...cells.map((textContent) => element(kind, { textContent })));

// Replace a list's rows; the keyboard stays where it was in it.
export function refill(list, rows) {
  const controls = () => [...list.querySelectorAll("button, input, select")], at = controls().indexOf(document.activeElement);
  list.replaceChildren(...rows);
  if (at >= 0) (controls()[at] ?? controls().at(-1))?.focus();
}

// Disable a button while `work` runs, and give it back the keyboard.
export async function whileDisabled(button, work) {
  const isFocused = document.activeElement === button;
  button.disabled = true;
  try { await work(); } finally {
    button.disabled = false;
    if (isFocused && document.activeElement === document.body) button.focus();
  }
}

export const newId = () => crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`; // absent without TLS

// Run `work` once at a time, and again if requested meanwhile: always with the newest settings, without a queue. `done`
// is the promise of what is running.
export function newest(work) {
  let isRequested = false;
  async function loop() {
    try {
      while (isRequested) { isRequested = false; await work(); }
    } finally {
      run.done = null;
    }
  }
  function run() {
    isRequested = true;
    return run.done ??= loop();
  }
  return run;
}
