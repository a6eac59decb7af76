// The sound at the ear: open, with the filter off, with it on.

import { $, currentEar, on, state } from "./state.js";
import { Player, render, responses } from "./audio.js";

const player = new Player();
let isPlaying = false;

const chosen = () => document.querySelector("input[name=hear]:checked").value;
const sounds = () => responses(currentEar(), state.design);

function update() {
  if (isPlaying) player.play(sounds(), $("noise").value, chosen(), +$("volume").value);
}

function setPlaying(isOn) {
  isPlaying = isOn;
  $("play").setAttribute("aria-pressed", isPlaying);
  $("play").textContent = isPlaying ? "Stop" : "Play";
  if (isPlaying) update(); else player.stop();
}

// The sound as samples, for tests.
export const rendered = (kind, hear, seconds) => render(sounds(), kind, hear, seconds);

export function startListening() {
  on(["rest"], update);
  on(["design"], () => { if (!state.design && isPlaying) setPlaying(false); });
  $("play").onclick = () => setPlaying(!isPlaying);
  $("noise").onchange = update;
  $("volume").addEventListener("input", () => player.volume(+$("volume").value));
  for (const radio of document.querySelectorAll("input[name=hear]")) radio.onchange = () => player.choose(chosen());
}
