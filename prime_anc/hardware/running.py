"""Run an exported filter sample by sample, with the arithmetic of the hardware.

Fixed point follows `fixed_point`: direct form I in integers, one rounding of the accumulator per section, data words of
as many bits as the coefficients that saturate, and the input shifted down by the headroom. Outputs that a section feeds
back are kept in double width, as every export needs, or rounded to the data word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from prime_anc.hardware.fixed_point import parse_format
from prime_anc.method.arrays import Real
from prime_anc.method.errors import InvalidOption

# Share of a response's peak below which its first samples, which interpolation to another rate spreads before the
# onset, count as 0: the filters run in blocks as long as these.
ONSET = 0.005


class Machine:
    """A filter that runs: it keeps its past samples between calls."""

    def __init__(self, coefficients: Mapping[str, Any], *, is_wide: bool = True) -> None:
        """Prepare a filter.

        Parameters
        ----------
        coefficients
            `coefficients` of an export: `form`, `sample_rate`, `sos` or `taps`; in fixed point `number_format`,
            `words`, `shift`, `scaling`, `denominator`.
        is_wide
            Whether sections feed back outputs of double width.

        Raises
        ------
        InvalidOption
            The number format is not one.
        """
        name = coefficients.get("number_format")
        number_format = parse_format(name) if name else None
        self.sample_rate_hz = float(coefficients["sample_rate"])
        self._is_fir = coefficients["form"] == "fir"
        self._format = number_format
        if number_format is None:
            self._rows = np.asarray(coefficients["taps" if self._is_fir else "sos"], np.float64)
            self._past: Real = np.zeros(len(self._rows) - 1 if self._is_fir else (len(self._rows), 2))
            return
        if number_format.n_bits > 32 and self._is_fir:
            raise InvalidOption(f"number_format: taps in {name} cannot be run; use at most 32 bits")
        self._headroom = int(coefficients["scaling"]["headroom_bits"])
        self._full_scale = float(1 << (number_format.n_bits - 1))
        self._extra = number_format.n_bits if is_wide else 0
        shift = np.asarray(coefficients["shift"]).tolist()
        if self._is_fir:
            scale = 2.0 ** (shift - number_format.fraction_bits)
            self._rows = np.asarray(coefficients["words"], np.float64) * scale
            self._past = np.zeros(len(self._rows) - 1)
            return
        sign = -1 if coefficients.get("denominator") == "added" else 1
        self._words = [
            (*row[:3], sign * row[3], sign * row[4], number_format.fraction_bits - n)
            for row, n in zip(np.asarray(coefficients["words"]).tolist(), shift, strict=True)
        ]
        self._states = [(0, 0, 0, 0) for _ in self._words]

    def run(self, samples: Real) -> Real:
        """Filter the next samples, real [n], in units of full scale, at the filter's rate."""
        if self._format is None:
            return self._taps(samples) if self._is_fir else self._float_sections(samples)
        largest = self._format.largest_word
        units = np.rint(np.asarray(samples, np.float64) * self._full_scale).clip(-largest - 1, largest)
        units = np.floor(units / 2.0**self._headroom + 0.5)
        if self._is_fir:
            # Exact but for ties: products of two 32-bit words leave float64's rounding far below one unit.
            outputs = np.floor(self._taps(units) + 0.5).clip(-largest - 1, largest)
        else:
            outputs = self._sections(units, largest)
        return (outputs * 2.0**self._headroom / self._full_scale).clip(-1, 1)

    def _taps(self, samples: Real) -> Real:
        from scipy.signal import oaconvolve

        held = np.concatenate((self._past, samples))
        self._past = held[len(held) - len(self._past) :]
        convolve = np.convolve if len(samples) < 64 else oaconvolve
        return np.asarray(convolve(held, self._rows, "valid"), np.float64)

    def _float_sections(self, samples: Real) -> Real:
        from scipy.signal import sosfilt

        found, self._past = sosfilt(self._rows, samples, zi=self._past)
        return np.asarray(found, np.float64)

    def _sections(self, units: Real, largest: int) -> Real:
        """Run direct form I in integers; words may have up to 64 bits, sums more."""
        extra = self._extra
        half_extra = (1 << extra) >> 1
        widest = (largest << extra) + half_extra
        signal = units.astype(np.int64).tolist()
        for number, (b0, b1, b2, a1, a2, down) in enumerate(self._words):
            x1, x2, y1, y2 = self._states[number]
            half = (1 << down) >> 1
            for i, x in enumerate(signal):
                y = ((((b0 * x + b1 * x1 + b2 * x2) << extra) - a1 * y1 - a2 * y2) + half) >> down
                if y > widest:
                    y = widest
                elif y < -widest:
                    y = -widest
                x2, x1, y2, y1 = x1, x, y1, y
                signal[i] = (y + half_extra) >> extra
            self._states[number] = (x1, x2, y1, y2)
        return np.array(signal, np.float64)


def run_in_loop(
    machines: Sequence[Machine], sounds: Sequence[Real], paths: Sequence[Sequence[Real | None]]
) -> list[Real]:
    """Run filters whose loudspeaker reaches their microphones, m_i = x_i - sum_j g_ij * w_j * m_j (theory 19).

    Parameters
    ----------
    machines
        The filters, all at one rate.
    sounds
        What each filter's microphone picks up while the loudspeaker is silent, real [n] each, at that rate.
    paths
        Responses g_ij from filter j to the microphone of filter i at that rate, of equal lengths; None: none.

    Returns
    -------
    list[Real]
        The filters' outputs, real [n] each.
    """
    found = [path for row in paths for path in row if path is not None and path.any()]
    if not found:
        return [machine.run(sound) for machine, sound in zip(machines, sounds, strict=True)]
    block = max(1, min(int(np.argmax(np.abs(path) > ONSET * np.abs(path).max())) for path in found))
    tails = [[None if path is None else path[block:] for path in row] for row in paths]
    n_before = len(found[0]) - 1
    microphones = np.array(sounds, np.float64)
    outputs = np.zeros((len(machines), n_before + microphones.shape[1]))
    for start in range(0, microphones.shape[1], block):
        end = min(start + block, microphones.shape[1])
        for microphone, row in zip(microphones, tails, strict=True):
            for output, tail in zip(outputs, row, strict=True):
                if tail is not None:  # the outputs up to `block` samples ago are known
                    played = output[start : end - block + n_before]
                    microphone[start:end] -= np.convolve(played, tail, "valid")
        for machine, microphone, output in zip(machines, microphones, outputs, strict=True):
            output[n_before + start : n_before + end] = machine.run(microphone[start:end])
    return list(outputs[:, n_before:])
