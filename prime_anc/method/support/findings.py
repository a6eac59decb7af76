"""Name the mistake in a measurement, in words that say what to do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prime_anc.method.conventions import DESIGN_N_FFT
from prime_anc.method.support.explanation import MAX_DISTANCE, Explanation, Path, SupportPrior, later
from prime_anc.method.support.statistics import peak_of

# Codes and meanings. All but the first compare with the listeners that the model was trained on.
PLAUSIBILITY = {
    "identical_paths": "Two of the paths are the same but for a factor, or two conditions have the same paths: one "
    "of them was sent twice.",
    "swapped_paths": "Primary and secondary path look exchanged.",
    "implausible_polarity": "The secondary path has the opposite sign of the support listeners'.",
    "implausible_level": "The secondary path is louder or quieter than the support listeners', relative to the "
    "primary path, by more than 3.5 dB.",
    "implausible_delay": "The secondary path is earlier or later than the support listeners', by more than 0.6 "
    "samples, or the primary path by more than 8.",
    "implausible_leak": "The secondary path lacks low frequencies like that of an earphone that does not seal.",
    "implausible_sample_rate": "The paths look like recordings at another sample rate than was stated.",
    "implausible_paths": "A path holds nothing at audible frequencies, or its spectrum is not that of a causal "
    "response.",
    "other_device": "The paths are those of another device than the model's: no single mistake explains how they "
    "differ from the support listeners'. The model's prior, uncertainty and checks are left out.",
}

# A larger value is no level: the bands of a path are empty.
MAX_LEVEL_DB = 300.0

# Largest cosine between both responses as vectors; ears reach 0.8.
MAX_LIKENESS = 0.98

# Largest share of a secondary path's energy in the second half of its response, if that has at least so many samples:
# 30 ears and 100 simulated systems reach 0.03, without their phases 0.5.
MAX_LATE_SHARE, LEAST_JUDGED_SAMPLES = 0.2, 4000

# -120 dB.
_AUDIBLE = 1e-12


@dataclass(frozen=True)
class Finding:
    """A fault of a measurement."""

    # One of PLAUSIBILITY or `prime_anc.measure.checks.REASONS`.
    code: str
    # Finding and remedy.
    detail: str


def find_implausible(
    prior: SupportPrior | None,
    primary: Path,
    secondary: Path,
    feedback: Path | None = None,
    *,
    explanation: Explanation | None = None,
) -> tuple[Finding, ...]:
    """Find implausible properties of two paths, in the order of PLAUSIBILITY.

    Parameters
    ----------
    prior
        Support's prior; without it only `identical_paths` and spectra that are not causal can be found.
    primary, secondary
        As for `SupportPrior.explain`.
    feedback
        Only checked for identity with the others.
    explanation
        Of the paths by the prior, if known.
    """
    if _are_alike(primary, secondary):
        return (_IDENTICAL,)
    if feedback is not None:
        for name, path in (("primary", primary), ("secondary", secondary)):
            if _are_alike(path, feedback):
                return (
                    Finding("identical_paths", _IDENTICAL_FEEDBACK.format(name)),
                    *_compared(prior, primary, secondary, explanation),
                )
    return _compared(prior, primary, secondary, explanation)


def _compared(
    prior: SupportPrior | None, primary: Path, secondary: Path, explanation: Explanation | None
) -> tuple[Finding, ...]:
    """Compare with the support's paths; without them, judge causality."""
    if prior is None:
        return (_ACAUSAL,) if np.iscomplexobj(secondary) and _is_acausal(secondary) else ()
    explanation = explanation or prior.explain(primary, secondary)
    if explanation.distance > MAX_DISTANCE:
        exchanged = prior.explain(secondary, primary)
        is_ear = exchanged.distance <= MAX_DISTANCE and not exchanged.is_primary_delay_off
        if is_ear and exchanged.distance < explanation.distance / 4:
            return (_SWAPPED,)
    return findings_of(explanation)


_IDENTICAL = Finding(
    "identical_paths",
    "primary and secondary path are the same but for a factor: one of them was sent twice; send the path from the "
    "outer microphone as primary and the path from the loudspeaker as secondary",
)
_IDENTICAL_FEEDBACK = (
    "feedback and {} path are the same but for a factor: send the path from the loudspeaker to the outer "
    "microphone as feedback, or none"
)
_SILENT = Finding(
    "implausible_paths",
    "the primary or the secondary path holds nothing at the frequencies where an ear hears, like a constant: send "
    "the impulse response or the spectrum that was measured",
)
_ACAUSAL = Finding(
    "implausible_paths",
    "the secondary path is heard before it is played: its spectrum lacks its phase, or is that of a response reversed "
    "in time or delayed by most of its length; send the impulse response or the complex spectrum that was measured",
)
_SWAPPED = Finding(
    "swapped_paths",
    "the primary path looks like a secondary path of the model's listeners and the secondary like a primary: "
    "exchange them",
)


def findings_of(explanation: Explanation) -> tuple[Finding, ...]:
    """Name the mistake of an explanation, or another device."""
    if abs(explanation.level_db) > MAX_LEVEL_DB:
        return (_SILENT,)
    if not explanation.is_device:
        text = f"unlike the model's earphone in {', '.join(explanation.differences)}: taken as another device, "
        text += "whose paths are believed as they were measured; name the model of this device, or `generic`"
        return (Finding("other_device", text),)
    found: dict[str, str] = {}
    if explanation.is_reversed:
        found["implausible_polarity"] = (
            "the secondary path has the opposite sign of that of the model's listeners: check `sign`, the wires of "
            "the loudspeaker, and which takes have gain 0"
        )
    if explanation.is_level_off:
        level_db = explanation.level_db
        found["implausible_level"] = (
            f"relative to the primary path the secondary path is {abs(level_db):.1f} dB "
            f"{'above' if level_db > 0 else 'below'} that of the model's listeners (SD {explanation.level_sd_db:.1f} "
            f"dB): if the gain was declared wrongly, declare {10 ** (level_db / 20):.3g} times as much; else check "
            "the amplifier, the gains of both microphones and how the earphone sits"
        )
    delays = []
    if explanation.is_delay_off:
        delays.append(
            f"the secondary path is {later(explanation.delay_samples, 1)} than that of the model's listeners: "
            "check the latency between filter and loudspeaker, and that x and e start with the same sample"
        )
    if explanation.is_primary_delay_off:
        delays.append(
            f"the primary path is {later(explanation.primary_delay_samples, 0)} than that of the model's "
            "listeners: check that x and e start with the same sample, and that both paths do and are of one ear"
        )
    if delays:
        found["implausible_delay"] = "; ".join(delays)
    if explanation.leak is not None:
        order, cutoff_hz = explanation.leak
        found["implausible_leak"] = (
            f"the secondary path lacks low frequencies like behind a {'first' if order == 1 else 'second'}-order "
            f"high-pass at about {cutoff_hz:.0f} Hz: seat the earphone again, try another tip, and look for a "
            "high-pass in the chain"
        )
    if explanation.other_rate is not None and explanation.is_other_rate:
        found["implausible_sample_rate"] = explanation.other_rate
    return tuple(Finding(*item) for item in found.items())


def _are_alike(primary: Path, secondary: Path) -> bool:
    """Return whether two paths are equal up to a factor, including the longer one's remainder."""
    if np.iscomplexobj(primary) != np.iscomplexobj(secondary):
        primary, secondary = (
            np.fft.irfft(path, DESIGN_N_FFT) if np.iscomplexobj(path) else path for path in (primary, secondary)
        )
    step = 8 if np.iscomplexobj(primary) else 1
    one, other = (path[::step] / peak_of(path) for path in (primary, secondary))
    n = min(one.shape[-1], other.shape[-1])
    norms = np.vdot(one, one).real * np.vdot(other, other).real
    return bool(np.abs(np.vdot(one[:n], other[:n])) ** 2 > MAX_LIKENESS**2 * norms)


def _is_acausal(secondary: Path) -> bool:
    """Judge whether much of a spectrum's response, from every eighth bin, comes before zero, which follows its end."""
    energy = np.square(np.fft.irfft(secondary[::8]))
    energy[0] = 0  # most of a response without phases
    audible = np.flatnonzero(energy > _AUDIBLE * energy.max())
    n = int(audible[-1]) + 1 if audible.size else 0
    return n >= LEAST_JUDGED_SAMPLES and bool(energy[n // 2 : n].sum() > MAX_LATE_SHARE * energy.sum())
