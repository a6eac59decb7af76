"""Run an exported filter sample by sample, with the arithmetic of the hardware.

Fixed point follows `fixed_point`: direct form I in integers, one rounding of the accumulator per section, data words of
as many bits as the coefficients that saturate, and the input shifted down by the headroom. Outputs that a section feeds
back are kept in double width, as every export needs, or rounded to the data word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.fixed_point import parse_format
from synthesis.errors import InvalidOption

Real = NDArray[np.floating]


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


def run_in_loop(machine: Machine, sound: Real, feedback: Real | None) -> tuple[Real, Real]:
    """Run a filter whose loudspeaker reaches its own microphone, m = x - f * w * m (theory 19).

    Parameters
    ----------
    machine
        The filter.
    sound
        Outside sound at the outer microphone, real [n], at the filter's rate.
    feedback
        Response from the loudspeaker to the outer microphone at that rate, real [n_feedback]; None: none. Its first
        sample cannot be computed in time and counts as 0.

    Returns
    -------
    tuple[Real, Real]
        What the microphone records, and the filter's output, real [n] each.
    """
    if feedback is None or not feedback[1:].any():
        return sound, machine.run(sound)
    loud = np.flatnonzero(np.abs(feedback) > 1e-6 * np.abs(feedback).max())
    block = max(1, int(loud[0]))
    response = feedback[block:]
    microphone, output = np.array(sound, np.float64), np.zeros(len(sound))
    played = np.zeros(len(response) + block - 1)  # newest last
    reversed_response = response[::-1]
    for start in range(0, len(sound), block):
        here = slice(start, min(start + block, len(sound)))
        n = here.stop - here.start
        # Output up to `block` samples ago is known.
        returned = np.convolve(played, response, "valid") if block > 1 else [played @ reversed_response]
        microphone[here] -= np.asarray(returned)[:n]
        output[here] = machine.run(microphone[here])
        played = np.concatenate((played[n:], output[here]))
    return microphone, output
