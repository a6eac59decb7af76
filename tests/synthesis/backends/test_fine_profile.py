"""Paths that a long window has left unsmoothed, through the bundled model: no worse than the paper's refinement."""

from pathlib import Path

import numpy as np
import pytest
import torch

from model_store.store import BUNDLED_ROOT, ModelStore
from synthesis.design import Model, design_all
from synthesis.paths import AcousticPaths
from synthesis.profiles import profile_for_resolution
from synthesis.types import Design, DesignOptions, Paths, Problem
from tests.oracles import measured
from tests.synthesis.cases import predictions

WINDOW = 32_768


@pytest.mark.measured
@pytest.mark.parametrize(("n_samples", "profile"), [(16_384, "fast"), (8192, "fine")])
def test_a_long_window_is_served_no_worse_than_by_the_paper(
    whole_database: Path, n_samples: int, profile: str
) -> None:
    """Ten ears, calibrated with windows of 32,768 samples, on their true paths; cut to 8192 samples where asked."""
    noises = measured.read_noises(whole_database)
    psd = torch.from_numpy(measured.reference_psd(noises))
    store = ModelStore(BUNDLED_ROOT)
    backend = Model.on("reference", store.load("default").parameters)
    suited = profile_for_resolution(profile, n_samples)
    assert suited == "fine"
    options = {
        "k = 1": DesignOptions(n_updates=1, profile=suited),
        "k = 3": DesignOptions(n_updates=3, profile=suited),
        "paper": DesignOptions("wmmse", 3, "paper"),
        "coarse": DesignOptions(n_updates=3),
    }
    reached: dict[str, list[float]] = {name: [] for name in options}
    for primary, secondary in list(measured.read_ears(whole_database).values())[::3]:
        p, s, coherence = measured.calibrate(noises, primary, secondary, WINDOW, n_samples)
        ear = Problem((Paths(p.astype(np.float32), s.astype(np.float32), coherence.astype(np.float32)),))
        truth = AcousticPaths.from_impulse_responses(
            torch.from_numpy(primary)[None], torch.from_numpy(secondary)[None]
        )
        for name, each in options.items():
            (answer,) = design_all([ear], each, backend)
            assert isinstance(answer, Design)
            (found,) = predictions(truth, torch.from_numpy(answer.taps).double()[None], psd)
            reached[name].append(found.mean_noise_reduction_db)
    mean = {name: float(np.mean(values)) for name, values in reached.items()}
    # Measured: 23.96 and 24.02 dB, the paper's 23.75, on the coarse grid 22.96. Ears differ by a decibel, so that
    # 0.1 dB is a third of what their mean is uncertain by.
    assert mean["k = 1"] > mean["paper"] + 0.1
    assert mean["k = 3"] > mean["paper"] + 0.1
    assert mean["coarse"] < mean["paper"]
    # No single ear is given up for the mean: measured 0.2 dB below at worst, for a tenth of the amplification.
    assert min(np.subtract(reached[name], reached["paper"]).min() for name in ("k = 1", "k = 3")) > -0.4
