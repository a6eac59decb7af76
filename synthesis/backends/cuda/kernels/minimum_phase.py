"""Real sequences of 8192 points, and minimum phases, by complex transforms of 4096 points.

The mathematics is that of `synthesis.minimum_phase`. A real sequence x is transformed as x[2 n] + i x[2 n + 1]. A
program holds a spectrum at the bins k of `stored_bins` (k_re, k_im) and at their mirror images 4096 - k (h_re,
h_im), [16, 256] each, and e^(i pi k / 4096) as turn_re, turn_im. HALF is 4096; constants is the second tensor of
`toeplitz.transform_constants`.
"""

import triton
import triton.language as tl

from synthesis.backends.cuda.kernels.fft import inverse, offsets, product, store_forward, stored_bins


@triton.jit
def load_turns(constants, HALF: tl.constexpr):
    """turn_re, turn_im."""
    turn = constants + 4 * HALF + offsets(HALF // 16)
    return tl.load(turn), tl.load(turn + HALF)


@triton.jit
def inverse_real(k_re, k_im, h_re, h_im, turn_re, turn_im, constants, HALF: tl.constexpr):
    """x[2 n] and x[2 n + 1], [16, 256] each, from the spectrum of x."""
    even_re, even_im = (k_re + h_re) * 0.5, (k_im - h_im) * 0.5
    odd_re, odd_im = product((k_re - h_re) * 0.5, (k_im + h_im) * 0.5, turn_re, turn_im)
    return inverse((even_re - odd_im) / HALF, (even_im + odd_re) / HALF, constants, HALF // 16)


@triton.jit
def store_taps(re, im, taps, TAPS: tl.constexpr, HALF: tl.constexpr):
    """The first TAPS samples of x[2 n] = re and x[2 n + 1] = im."""
    place = 2 * offsets(HALF // 16)
    tl.store(taps + place, re, mask=place < TAPS)
    tl.store(taps + place + 1, im, mask=place < TAPS)


@triton.jit
def store_cepstrum(re, im, constants, cepstrum, HALF: tl.constexpr):
    """Fold the anticausal half of a cepstrum, x[2 n] = re and x[2 n + 1] = im, onto the causal half, and store the
    transform of that, [2, 4096]. Samples 0 and 4096 stay, those between count twice."""
    place = offsets(HALF // 16)
    ends = (place == 0) | (place == HALF // 2)
    re = tl.where(ends, re, tl.where(place < HALF // 2, 2 * re, 0.0))
    im = tl.where(place < HALF // 2, 2 * im, 0.0)
    store_forward(re, im, constants, cepstrum, cepstrum + HALF, 1)


@triton.jit
def minimum_phases(cepstrum, turn_re, turn_im, HALF: tl.constexpr):
    """Phases at the bins k and at their mirror images, from what `store_cepstrum` has stored.

    log F[k] = U + V, and the conjugate of log F[4096 - k] is U - V; only the imaginary parts are computed here.
    """
    bins = stored_bins(HALF // 16)
    mirrored = (HALF - bins) % HALF
    k_re, k_im = tl.load(cepstrum + bins), tl.load(cepstrum + HALF + bins)
    h_re, h_im = tl.load(cepstrum + mirrored), tl.load(cepstrum + HALF + mirrored)
    even = 0.5 * (k_im - h_im)
    odd = -0.5 * ((k_re - h_re) * turn_re + (k_im + h_im) * turn_im)
    return even + odd, odd - even
