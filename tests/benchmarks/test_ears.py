"""The ears of a benchmark: estimates in, judged on the truth, simulated ones labelled."""

import argparse
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import ears as ears_module
from benchmarks.ears import Ears
from service.formats import wire
from synthesis.wiener import design_wmmse
from training.datasets.path_pairs import DatasetError


def test_bodies_are_what_the_service_reads(ears: Ears) -> None:
    primary, secondary, coherence = wire.decode(ears.bodies[3])
    assert np.array_equal(primary, ears.primary[3])
    assert np.array_equal(secondary, ears.secondary[3])
    assert coherence is None


def test_silence_reduces_nothing_and_a_design_does(ears: Ears) -> None:
    places = list(range(len(ears)))
    silent = ears.quality(places, torch.zeros(len(ears), 2048))
    assert silent["noise_reduction_db"] == pytest.approx(0, abs=1e-9)
    designed = ears.quality(places, design_wmmse(ears.estimated, ears.reference_psd))
    assert 10 < designed["worst_ear_db"] <= designed["noise_reduction_db"] < 60
    assert designed["n_ears"] == len(ears)


def test_rounds_come_round(ears: Ears) -> None:
    assert ears.batch(3, 3) == [3, 0, 1]


def test_simulated_ears_are_labelled(ears: Ears, capsys: pytest.CaptureFixture[str]) -> None:
    ears_module.measure(argparse.Namespace(data=None, noise=None), n_listeners=1)
    assert "SIMULATED ears: --data" in capsys.readouterr().err
    assert ears.data["measured"] is False


def test_a_folder_without_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=str(tmp_path)):
        ears_module.measure(argparse.Namespace(data=tmp_path, noise=None))


@pytest.mark.measured
def test_measured_ears_are_read(measured_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = Ears.of(ears_module.measure(argparse.Namespace(data=measured_data, noise=None)))
    assert (len(found), found.data["measured"], found.data["measured_noise"]) == (30, True, True)
    assert "SIMULATED" not in capsys.readouterr().err
