"""What an earphone's listeners have in common, learnt from their calibrations.

With MIN_LISTENERS, measurements are compared with theirs: level, delay, sign and shape, with a spread that hardly
trusts so few. With PRIOR_LISTENERS, recordings are estimated under the prior of their paths. With TRAINED_LISTENERS, a
generator trained on them is worth its minutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from prime_anc.measure.prior import learn_path_prior
from prime_anc.method.conventions import DESIGN_N_FFT
from prime_anc.method.support.explanation import SupportPrior
from prime_anc.method.support.statistics import SupportStatistics, learn_support_statistics, learn_uncertainty
from prime_anc.method.types import Float32, ModelParameters

MIN_LISTENERS, PRIOR_LISTENERS, TRAINED_LISTENERS = 2, 5, 10

# Weight of the prior's spread in ears. Of 15 persons, 2 to 10 of them known, with 1 ear 1 % of right measurements of
# the others are refused, with 3 none; with 6 a level that is 6 dB off is missed on 14 % of ears.
PRIOR_EARS = 3.0


@dataclass(frozen=True, eq=False)
class ListenerEar:
    """One ear's calibration that passed: its estimates, and nothing of its recordings."""

    # Name of the listener; two ears of a listener count as one.
    listener: str
    # Impulse responses, float32 [<= 8192] and [<= 4096].
    primary: Float32
    secondary: Float32
    # Float32 [16385].
    coherence: Float32


def learn_device(ears: Sequence[ListenerEar], base: ModelParameters) -> tuple[ModelParameters, SupportStatistics]:
    """Learn a device's statistics beside the generator of another model.

    Parameters
    ----------
    ears
        Of at least MIN_LISTENERS listeners; right ears only.
    base
        Model whose generator and reference noise the device's model has.

    Returns
    -------
    ModelParameters
        `base` with the device's statistics, uncertainty and, from PRIOR_LISTENERS on, prior.
    SupportStatistics
        The statistics, for a manifest.
    """
    primary, secondary = (_stacked([getattr(ear, name) for ear in ears]) for name in ("primary", "secondary"))
    listeners = [ear.listener for ear in ears]
    statistics = learn_support_statistics(primary, secondary, PRIOR_EARS)
    coherence = np.stack([ear.coherence for ear in ears]).astype(np.float64)
    prior = None
    if len(set(listeners)) >= PRIOR_LISTENERS:
        prior = learn_path_prior(list(primary), list(secondary), listeners)
    spectra = np.fft.rfft(primary, DESIGN_N_FFT)
    uncertainty = learn_uncertainty(spectra, coherence, base.reference_psd.astype(float))
    learnt = replace(
        base,
        band_uncertainty=uncertainty.astype(np.float32),
        path_prior=prior,
        support=SupportPrior(statistics),
    )
    return learnt, statistics


def _stacked(responses: Sequence[Float32]) -> np.ndarray:
    """Stack responses padded to the longest, float64 [n, taps]."""
    longest = max(map(len, responses))
    return np.stack([np.pad(item.astype(np.float64), (0, longest - len(item))) for item in responses])
