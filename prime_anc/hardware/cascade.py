"""Second-order sections by their unknowns, and Levenberg-Marquardt steps on them.

    W(s) = g prod_i (s^2 + s z_i / q_i + z_i^2) / (s^2 + s p_i / r_i + p_i^2),    s = j tan(pi f / f_s)

The variable is that of the bilinear transform, so one form serves every sample rate. The unknowns are the logarithms of
p, r, z, q and g: a section is stable for all their values, real poles (r < 1/2) included, and d ln W / d theta is a
short formula.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prime_anc.hardware.residual_power import Complex, Real
from prime_anc.method.errors import check_interruption
from prime_anc.method.loops.sections import Sections

# Highest frequency of a fit over the sample rate; at one half the variable s is infinite.
HIGHEST_SHARE = 0.499
# Stop when LOOK_EVERY steps have lowered no row's J by SETTLED (0.004 dB).
SETTLED, LOOK_EVERY = 1e-3, 10


class Cascade:
    """Rows of unknowns [ln p, ln r, ln z, ln q, ln g], real [n_starts, 4 n + 1]; p and z in tan(pi f / f_s)."""

    # Largest change of an unknown in one step, in nepers.
    max_step = 1.0
    # Number of the last sections whose numerator is s^2 + s z / q: they are 0 at 0 Hz.
    n_at_zero = 0
    # Damping of an unknown that changes nothing, over that of the others.
    least_damping = 1e-3

    def __init__(
        self,
        n_sections: int,
        frequency_hz: Real,
        sample_rate_hz: float,
        limits_hz: tuple[float, float],
        qualities: tuple[float, float],
    ) -> None:
        """Evaluate at frequencies below HIGHEST_SHARE of the rate; poles and zeros within limits_hz."""
        self.n, self.sample_rate_hz, self.qualities = n_sections, sample_rate_hz, qualities
        self.frequency = self.warped(frequency_hz)
        self.limits = np.log(self.warped(np.array(limits_hz)))
        self.sign = 1.0
        self.held = Sections(np.empty((0, 6)), sample_rate_hz)
        self.before: Complex = np.ones(len(self.frequency), complex)

    def objective(self, response: Complex, weight: float) -> tuple[Real, ...]:
        """Compute J of responses [n_starts, n], [n_starts], and what `normal_equations` needs, [n_starts, ...]."""
        raise NotImplementedError

    def normal_equations(
        self, polynomials: tuple[Real, Real, Real], response: Complex, *details: Real
    ) -> tuple[Real, Real]:
        """Compute J^T J, [n_starts, 4 n + 1, 4 n + 1], and J^T r, [n_starts, 4 n + 1, 1]."""
        raise NotImplementedError

    def warped(self, frequency_hz: Real) -> Real:
        """Map frequencies (Hz) to the variable of the fit, tan(pi f / f_s)."""
        warped: Real = np.tan(np.pi * frequency_hz / self.sample_rate_hz)
        return warped

    def within(self, unknowns: Real) -> Real:
        """Clip unknowns to their limits."""
        parts = unknowns[:, : 4 * self.n].reshape(-1, 4, self.n)
        parts[:, 0::2] = parts[:, 0::2].clip(*self.limits)
        parts[:, 1::2] = parts[:, 1::2].clip(*np.log(self.qualities))
        unknowns[:, : 4 * self.n] = parts.reshape(len(unknowns), -1)  # reshape has copied
        return unknowns

    def response(self, unknowns: Real) -> Complex:
        """Evaluate W, complex [n_starts, n]."""
        return self._ratio(unknowns, self.polynomials(unknowns))

    def _ratio(self, unknowns: Real, polynomials: tuple[Real, Real, Real]) -> Complex:
        real, imaginary, _ = polynomials
        values = np.empty(real.shape, complex)
        values.real, values.imag = real, imaginary
        ratio: Complex = values[:, 1].prod(1) / values[:, 0].prod(1)
        ratio *= self.before * (self.sign * np.exp(unknowns[:, -1:]))
        return ratio

    def polynomials(self, unknowns: Real) -> tuple[Real, Real, Real]:
        """Evaluate s^2 + s w / q + w^2, poles first: real and imaginary parts [n_starts, 2, n, n_bins], and w^2."""
        parts = unknowns[:, :-1].reshape(-1, 2, 2, self.n, 1)
        root, quality = np.exp(parts[:, :, 0]), np.exp(parts[:, :, 1])
        square = root**2
        square[:, 1, self.n - self.n_at_zero :] = 0
        return square - self.frequency**2, (root / quality) * self.frequency, square

    def slopes(self, polynomials: tuple[Real, Real, Real]) -> NDArray[np.float32]:
        """Compute real and imaginary parts of d ln W / d theta, [n_starts, 4 n + 1, 2, n].

        Single precision suffices for a step, since its gain is evaluated in double precision.
        """
        real, imaginary, square = (polynomial.astype(np.float32) for polynomial in polynomials)
        over = 1 / (real**2 + imaginary**2)
        over[:, 0] *= -1
        slopes = np.empty((len(real), 4 * self.n + 1, 2, len(self.frequency)), np.float32)
        # Derivative in ln w: (j b + 2 w^2) / (a + j b); in ln q: -j b / (a + j b).
        parts = slopes[:, :-1].reshape(-1, 2, 2, self.n, 2, len(self.frequency))
        imaginary_over = imaginary * over
        np.multiply(-imaginary, imaginary_over, out=parts[:, :, 1, :, 0])
        np.multiply(-real, imaginary_over, out=parts[:, :, 1, :, 1])
        square *= 2
        np.subtract(square * real * over, parts[:, :, 1, :, 0], out=parts[:, :, 0, :, 0])
        np.multiply(real - square, imaginary_over, out=parts[:, :, 0, :, 1])
        slopes[:, -1, 0], slopes[:, -1, 1] = 1, 0
        return slopes

    def steps(self, unknowns: Real, n_steps: int, weight: float) -> Real:
        """Take steps on every row as `descend` does, and sort the rows by J."""
        unknowns, value = self.descend(unknowns, n_steps, weight)
        return unknowns[np.argsort(value)]

    def descend(self, unknowns: Real, n_steps: int, weight: float) -> tuple[Real, Real]:
        """Take Levenberg-Marquardt steps on every row, and return the rows and their J.

        The weight is that of the penalties in `objective`. A step to an infinite J is refused.
        """
        damping = np.full(len(unknowns), 1e-2)
        polynomials = self.polynomials(unknowns)
        response = self._ratio(unknowns, polynomials)
        value, *details = self.objective(response, weight)
        normal, gradient = self.normal_equations(polynomials, response, *details)
        before = value.copy()
        for i in range(1, n_steps + 1):
            check_interruption()
            damped = normal.copy()
            diagonal = np.einsum("mii->mi", damped)
            diagonal += (
                damping[:, None] * (diagonal + self.least_damping * diagonal.mean(-1, keepdims=True)) + 1e-12
            )
            step = -np.linalg.solve(damped, gradient)[..., 0]
            step *= np.minimum(1, self.max_step / np.maximum(np.abs(step).max(-1, keepdims=True), 1e-30))
            trial = self.within(unknowns + step)
            polynomials = self.polynomials(trial)
            response = self._ratio(trial, polynomials)
            trial_value, *details = self.objective(response, weight)
            better = trial_value < value
            damping = np.where(better, np.maximum(damping / 3, 1e-7), np.minimum(damping * 4, 1e4))
            unknowns[better], value[better] = trial[better], trial_value[better]
            if i % LOOK_EVERY == 0:
                if (before - value < SETTLED).all():
                    break
                before = value.copy()
            if better.any():
                real, imaginary, square = polynomials
                normal[better], gradient[better] = self.normal_equations(
                    (real[better], imaginary[better], square[better]),
                    response[better],
                    *(detail[better] for detail in details),
                )
        return unknowns, value

    def realise(self, unknowns: Real) -> Sections:
        """Convert one row of unknowns to sections in the order of their poles, behind the quantised ones.

        The gain is in the first of them.
        """
        pole, pole_quality, zero, zero_quality = np.exp(unknowns[:-1].reshape(4, self.n))
        middle, last = zero / zero_quality, zero**2
        last[self.n - self.n_at_zero :] = 0
        # Pair each pole with the nearest zero, which gives the smallest peaks between sections.
        order, zero_order = np.argsort(pole), np.argsort(last)
        pole, pole_quality = pole[order], pole_quality[order]
        numerator = _bilinear(middle[zero_order], last[zero_order])
        denominator = _bilinear(pole / pole_quality, pole**2)
        rows = np.concatenate((numerator, denominator), 1) / denominator[:, :1]
        rows[0, :3] *= self.sign * np.exp(unknowns[-1])
        return Sections(np.concatenate((self.held.rows, rows)), self.sample_rate_hz)


def _bilinear(middle: Real, last: Real) -> Real:
    """Transform s^2 + s m + l by s = (1 - z^-1) / (1 + z^-1), times (1 + z^-1)^2: coefficients [n, 3]."""
    coefficients: Real = np.stack((1 + middle + last, 2 * (last - 1), 1 - middle + last), -1)
    return coefficients
