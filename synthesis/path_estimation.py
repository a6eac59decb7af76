"""Acoustic paths from recordings of two probe states (Eqs. 1-2).

With the control filter replaced by a known gain g, the error microphone hears e_g = (p - g s) * x. So

    P = H_{e0,x},        S = (H_{e0,x} - H_{eg,x}) / g,

where H_{e,x} is the Hann-windowed cross-spectrum of x and e, pooled over recordings and window positions and
divided by the equally pooled autospectrum of x.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from synthesis.conventions import N_BINS, SAMPLE_RATE_HZ
from synthesis.errors import InvalidOption, InvalidPaths
from synthesis.spectra import squared_magnitude

REGULARISATION = 1e-6
"""Of the pooled reference autospectrum, over its maximum."""


@dataclass(frozen=True)
class Take:
    """One recording of one probe state: gain g (0: loudspeaker silent), reference x and error e, real [..., n].

    Each take has its own reference, because a real earphone never records two states at once.
    """

    gain: float
    reference: Tensor
    error: Tensor


@dataclass(frozen=True)
class PathEstimate:
    """What a calibration knows: causal impulse responses [..., taps] and the coherence of x and e_0 per bin.

    coherence: magnitude-squared, in [0, 1], [..., 16385], interpolated linearly onto the design grid.
    """

    primary: Tensor
    secondary: Tensor
    coherence: Tensor


@dataclass(frozen=True)
class ProbeState:
    """Spectra of one probe state, pooled over its takes and windows, on the window's grid, [..., window // 2 + 1].

    transfer: H_{e,x}. coherence: magnitude-squared, of x and e, in [0, 1]; that of few frames is biased upwards,
    to 1 for a single one. reference_power: sum of |X|^2 over the frames. n_frames: how many were pooled.
    """

    gain: float
    transfer: Tensor
    coherence: Tensor
    reference_power: Tensor
    n_frames: int


def estimate_paths(
    takes: Sequence[Take],
    *,
    window: int = 8192,
    primary_taps: int = 8192,
    secondary_taps: int = 2048,
    n_offsets: int = 6,
    first_sample: int = 8192,
    last_sample: int = 4 * SAMPLE_RATE_HZ,
    regularisation: float = REGULARISATION,
) -> PathEstimate:
    """Estimate both paths from takes of at least one state with gain 0 and one without (Eqs. 1-2).

    window: samples of the Hann window; `n_offsets` windows start equally spaced in
    [first_sample, last_sample - window]. The pooled autospectrum is regularised by `regularisation` times its
    maximum. Several non-zero gains are pooled after division by their own gain.
    Raises InvalidPaths for takes too short or not finite, InvalidOption where a state is missing.
    """
    states = probe_states(
        takes,
        window=window,
        n_offsets=n_offsets,
        first_sample=first_sample,
        last_sample=last_sample,
        regularisation=regularisation,
    )
    return paths_of_states(states, primary_taps=primary_taps, secondary_taps=secondary_taps)


def probe_states(
    takes: Sequence[Take],
    *,
    window: int = 8192,
    n_offsets: int = 6,
    first_sample: int = 8192,
    last_sample: int = 4 * SAMPLE_RATE_HZ,
    regularisation: float = REGULARISATION,
) -> tuple[ProbeState, ...]:
    """The pooled spectra of each state, gain 0 first, then ascending; arguments and errors as `estimate_paths`."""
    offsets = _offsets(takes, window, n_offsets, first_sample, last_sample)
    gains = [0.0, *sorted({take.gain for take in takes} - {0.0})]
    return tuple(_pooled([t for t in takes if t.gain == gain], offsets, window, regularisation) for gain in gains)


def paths_of_states(
    states: Sequence[ProbeState], *, primary_taps: int = 8192, secondary_taps: int = 2048
) -> PathEstimate:
    """Causal responses of both paths from the states of `probe_states`."""
    return PathEstimate(
        primary=_causal_response(states[0].transfer, primary_taps),
        secondary=_causal_response(secondary_transfer(states), secondary_taps),
        coherence=onto_design_grid(states[0].coherence),
    )


def secondary_transfer(states: Sequence[ProbeState]) -> Tensor:
    """S on the window's grid, [..., window // 2 + 1]: the mean over the driven states (Eq. 2)."""
    silent, *driven = states
    return torch.stack([(silent.transfer - each.transfer) / each.gain for each in driven]).mean(0)


def _offsets(takes: Sequence[Take], window: int, n_offsets: int, first: int, last: int) -> list[int]:
    if not any(t.gain == 0 for t in takes) or not any(t.gain != 0 for t in takes):
        raise InvalidOption(
            f"takes: found gains {sorted({t.gain for t in takes})}, expected 0 and at least one other",
            field="takes",
        )
    for number, take in enumerate(takes):
        for name, signal in (("reference", take.reference), ("error", take.error)):
            if signal.shape[-1] < last:
                raise InvalidPaths(
                    f"take {number}, {name}: found {signal.shape[-1]} samples, expected at least {last}",
                    field="takes",
                )
            if not bool(torch.isfinite(signal).all()):
                raise InvalidPaths(f"take {number}, {name}: found NaN or infinity", field="takes")
    if not 0 <= first <= last - window:
        raise InvalidOption(f"window: found {window} samples, expected at most {last - first}", field="window")
    return [round(each) for each in torch.linspace(first, last - window, n_offsets, dtype=torch.float64).tolist()]


def _pooled(takes: Sequence[Take], offsets: list[int], window: int, regularisation: float) -> ProbeState:
    """One state's takes, all of the same gain."""
    cross: Tensor | float = 0.0
    reference_power: Tensor | float = 0.0
    error_power: Tensor | float = 0.0
    for take in takes:
        hann = torch.hann_window(window, dtype=take.reference.dtype, device=take.reference.device)
        for offset in offsets:
            frame = slice(offset, offset + window)
            reference = torch.fft.rfft(hann * take.reference[..., frame])
            error = torch.fft.rfft(hann * take.error[..., frame])
            cross = cross + reference.conj() * error
            reference_power = reference_power + squared_magnitude(reference)
            error_power = error_power + squared_magnitude(error)
    assert isinstance(cross, Tensor)
    assert isinstance(reference_power, Tensor)
    assert isinstance(error_power, Tensor)
    floor = regularisation * reference_power.amax(-1, keepdim=True)
    tiny = torch.finfo(reference_power.dtype).tiny
    coherence = squared_magnitude(cross) / (reference_power * error_power).clamp_min(tiny)
    return ProbeState(
        gain=takes[0].gain,
        transfer=cross / (reference_power + floor).clamp_min(tiny),
        coherence=coherence.clamp(0, 1),
        reference_power=reference_power,
        n_frames=len(takes) * len(offsets),
    )


def _causal_response(transfer: Tensor, n_taps: int) -> Tensor:
    """Samples 0 to n_taps - 1 of the inverse transform, zero-padded where the window is shorter."""
    response = torch.fft.irfft(transfer)[..., :n_taps]
    return torch.nn.functional.pad(response, (0, n_taps - response.shape[-1]))


def onto_design_grid(spectrum: Tensor) -> Tensor:
    """Linear interpolation over frequency of real [..., bins] onto the design grid's 16385 bins."""
    leading = spectrum.shape[:-1]
    flat = spectrum.reshape(-1, 1, spectrum.shape[-1])
    dense = torch.nn.functional.interpolate(flat, size=N_BINS, mode="linear", align_corners=True)
    return dense.reshape(*leading, N_BINS)
