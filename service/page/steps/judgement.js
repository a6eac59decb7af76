// What a result is worth in a word, why, and what to do next. What is good is as in docs/guide.md, step 3.

import { element } from "../state.js";
import { fixed } from "../dsp.js";

const WORDS = ["good", "fair", "poor"];

// A figure is good from `good` on and fair from `fair` on, or below both where less is better; otherwise it is poor. An
// interval that reaches below counts as the worse word; without one the mean itself counts.
const THRESHOLDS = [
  { of: ({ mean_noise_reduction_db: mean, interval_db: interval }) => mean - (interval ?? 0), good: 16, fair: 3,
    why: "noise reduction at the low end", next: "Try a tighter fit, less latency, and louder noise in a quieter room; then measure again." },
  { of: ({ amplification_db }) => amplification_db, good: 0.1, fair: 1, isLess: true,
    why: "amplification", next: "Limit louder bands in step 2, or shorten the latency." },
  { of: ({ interval_db: interval }) => interval ?? 0, good: 5, fair: Infinity, isLess: true,
    why: "interval about the noise reduction", next: "Measure again, longer and with louder noise." },
  { of: ({ out_of_band_db: outside }) => Math.max(outside?.low ?? 0, outside?.high ?? 0), good: 1, fair: Infinity, isLess: true,
    why: "amplification below 45 Hz or above 9 kHz", next: "Limit louder bands in step 2." },
];

// Findings of a verification after which its figures count for nothing.
const INVALID = ["howling", "not_running", "unrelated", "exchanged_channels", "clipping", "implausible_reduction", "foreign_prediction", "controller_off"];

export function findingsOf({ diagnosis }) {
  return diagnosis.filter(({ code }) => code !== "as_predicted").map(({ code }) => ({ rank: INVALID.includes(code) ? 2 : 1, why: code.replaceAll("_", " "), next: "Do what the finding in step 5 says, then verify again." }));
}

// Judge figures of a prediction or measurement, besides findings {rank, why, next}; `next` follows a good result.
export function judged(figures, findings, next) {
  const found = THRESHOLDS.map(({ of, good, fair, isLess, ...texts }) => {
    const value = of(figures), meets = (bound) => (isLess ? value < bound : value >= bound);
    return { rank: meets(good) ? 0 : meets(fair) ? 1 : 2, why: `${texts.why}: ${fixed(value)} dB (good: ${isLess ? "less than" : "at least"} ${good})`, next: texts.next };
  });
  const worst = [...findings, ...found].reduce((a, b) => (b.rank > a.rank ? b : a));
  return worst.rank ? { ...worst, word: WORDS[worst.rank] } : { word: "good", why: found[0].why, next };
}

export const wordOf = ({ word }) => element("strong", { className: `word ${word}`, textContent: word });

export const reasonOf = ({ why, next }) => `${why[0].toUpperCase()}${why.slice(1)}. Next: ${next[0].toLowerCase()}${next.slice(1)}`;
