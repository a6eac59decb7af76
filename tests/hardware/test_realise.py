"""Realised filters minimise J with the weights that are given."""

from dataclasses import replace

import numpy as np
import pytest

from hardware.realise import Target, realise
from synthesis.bands import WIDE_BANDS, band_membership
from synthesis.conventions import DESIGN_N_FFT
from synthesis.profiles import FAST


@pytest.mark.parametrize("target", [Target(n_sections=4), Target("fir", n_taps=256)], ids=["sos", "fir"])
def test_larger_risk_weight_lowers_worst_band(condition, pink, target):
    membership = band_membership(WIDE_BANDS, DESIGN_N_FFT)
    before = (pink * np.abs(condition.primary) ** 2) @ membership
    worst_db = []
    for risk_weight in (0.0, 0.4, 2.0, 10.0):
        profile = replace(FAST, risk_weight=risk_weight)
        response = realise([condition], pink, target, profile=profile).response
        after = (pink * np.abs(condition.primary - condition.secondary * response) ** 2) @ membership
        worst_db.append(10 * np.log10(after / before).max())
    assert (np.diff(worst_db) < -0.05).all(), worst_db
