"""A condition without measured data is named; for bands see `tests/cases/test_paths.py`."""

import numpy as np

from service.api.warnings import collect_warnings
from synthesis.conventions import N_BINS
from synthesis.design import predict_all
from synthesis.errors import answer_or_raise
from synthesis.model import Model
from synthesis.types import Paths, Problem
from tests.model_store import cases


def test_condition_without_data_is_named() -> None:
    response, good = np.ones(1, np.float32), np.full(N_BINS, 0.9, np.float32)
    ear = Problem((Paths(response, response, good), Paths(response, response, 0.01 * good)))
    backend = Model.on("cpu", cases.checkpoint(1).parameters)
    silent = answer_or_raise(predict_all([ear], [np.zeros(2048, np.float32)], backend)[0])
    (detail,) = [
        collect_warning["detail"]
        for collect_warning in collect_warnings((), ear, silent)
        if collect_warning["code"] == "low_coherence"
    ]
    assert detail.startswith("conditions.1: the mean is 0.01")
