"""The expected error of a filter for paths that are known in part: theory (12).

With u_p and u_s unknown over known power of P and S in a band, the error has the expected power

    E_b = sum r |P - S W|^2 + u_p sum r |P|^2 + u_s sum r |S W|^2
        = sum r |P / sqrt(1 + u_s) - sqrt(1 + u_s) S W|^2 + (1 + u_p - 1 / (1 + u_s)) sum r |P|^2,

so that a minimiser needs the paths `weighed` by u_s and a constant. Without a filter it is (1 + u_p) sum r |P|^2. A
band of which nothing is known has a large u_s: its best W is zero.
"""

from __future__ import annotations

from prime_anc.method.arrays import Array, array_namespace
from prime_anc.method.bands import WIDE_BANDS, band_matrix


def weighed(primary: Array, secondary: Array, unknown_secondary: Array) -> tuple[Array, Array]:
    """Return P / sqrt(1 + u_s) and S sqrt(1 + u_s).

    Parameters
    ----------
    primary, secondary
        Spectra, complex [..., n_bins].
    unknown_secondary
        u_s, [..., 31].
    """
    xp = array_namespace(unknown_secondary)
    membership = band_matrix(WIDE_BANDS, 2 * (primary.shape[-1] - 1), unknown_secondary)
    scale = xp.sqrt(1 + unknown_secondary @ membership.T)
    return primary / scale, secondary * scale


def constant_shares(unknown_primary: Array, unknown_secondary: Array) -> tuple[Array, Array]:
    """Return what E_b holds with W = 0, and whatever W is, over the power of the weighed primary path in a band."""
    whole = (1 + unknown_primary) * (1 + unknown_secondary)
    return whole, whole - 1
