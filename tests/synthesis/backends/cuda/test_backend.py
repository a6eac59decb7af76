"""`CudaBackend` on a CPU over the same buffers, and on a GPU as it serves, against the reference."""

import numpy as np
import pytest
import torch

from synthesis.backends.cuda import CudaBackend, graphs
from synthesis.backends.cuda.graphs import BatchGraphs
from synthesis.backends.reference import ReferenceBackend
from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.errors import DeviceLost, InvalidPaths, NonFiniteFilter
from synthesis.generator_config import GeneratorConfig
from synthesis.types import Backend, Design, DesignOptions, ModelParameters, Paths, Prediction, Problem
from tests.problems import changed
from tests.synthesis.backends.cuda.taped import capture_on_tape
from tests.synthesis.cases import example_parameters, random_case, relative_error


@pytest.fixture(scope="module")
def parameters() -> ModelParameters:
    return example_parameters(GeneratorConfig.prime_log())


@pytest.fixture(scope="module")
def reference(parameters: ModelParameters) -> ReferenceBackend:
    return ReferenceBackend(parameters)


@pytest.fixture(scope="module")
def backend(parameters: ModelParameters) -> CudaBackend:
    return CudaBackend(parameters, "cuda" if torch.cuda.is_available() else "cpu")


def ears() -> list[Problem]:
    """Spectra; responses with a coherence and a ceiling; spectra with a noise of their own."""
    case = random_case(n_cases=3, n_fft=DESIGN_N_FFT)
    primary, secondary = case.primary.astype(np.complex64), case.secondary.astype(np.complex64)
    responses = (np.fft.irfft(each[1])[:300].astype(np.float32) for each in (primary, secondary))
    coherence = np.full(N_BINS, 0.9, np.float32)
    return [
        Problem((Paths(primary[0], secondary[0]),)),
        Problem((Paths(*responses, coherence=coherence),), max_gain_db=12.0),
        Problem((Paths(primary[2], secondary[2]),), reference_psd=np.full(N_BINS, 1e-3, np.float32)),
    ]


def designs(backend: Backend, inputs: list[Problem], options: DesignOptions) -> list[Design]:
    answers = backend.design(inputs, options)
    assert all(isinstance(each, Design) for each in answers)
    return answers  # type: ignore[return-value]


def assert_same_prediction(found: Prediction, expected: Prediction) -> None:
    assert found.basis == expected.basis
    assert found.mean_noise_reduction_db == pytest.approx(expected.mean_noise_reduction_db, abs=0.01)
    np.testing.assert_allclose(found.noise_reduction_db, expected.noise_reduction_db, atol=0.05)
    assert found.max_gain_db == pytest.approx(expected.max_gain_db, abs=0.05)
    assert found.control_rms == pytest.approx(expected.control_rms, rel=0.01)


@pytest.mark.parametrize(
    "options",
    [
        DesignOptions("prime", 0),
        DesignOptions("prime", 3),
        DesignOptions("prime", 1, "fine"),
        DesignOptions("ratio_base", 1, "paper"),
        DesignOptions("projected_ratio", 0),
        DesignOptions("wmmse", 2),
    ],
    ids=lambda each: f"{each.method}-{each.n_updates}-{each.profile}",
)
def test_designs_are_the_references(
    options: DesignOptions, backend: CudaBackend, reference: ReferenceBackend
) -> None:
    for found, expected in zip(designs(backend, ears(), options), designs(reference, ears(), options), strict=True):
        assert relative_error(found.taps[None], expected.taps[None]) < 5e-3
        assert found.refinement.stopped == expected.refinement.stopped
        assert found.refinement.applied == expected.refinement.applied
        np.testing.assert_allclose(found.refinement.objective, expected.refinement.objective, atol=0.03)
        assert found.refinement.step_scale == expected.refinement.step_scale
        np.testing.assert_allclose(
            found.refinement.pcg_residual, expected.refinement.pcg_residual, rtol=0.5, atol=1e-5
        )
        assert_same_prediction(found.prediction, expected.prediction)
        assert set(found.times_ms) == {"decode", "generate", "refine", "predict"}


def test_designs_of_prime_are_the_references() -> None:
    parameters = example_parameters(GeneratorConfig.prime(n_fft=4096))
    backends = CudaBackend(parameters, "cuda" if torch.cuda.is_available() else "cpu"), ReferenceBackend(parameters)
    for found, expected in zip(*(designs(each, ears()[:1], DesignOptions()) for each in backends), strict=True):
        assert relative_error(found.taps[None], expected.taps[None]) < 1e-3
        assert_same_prediction(found.prediction, expected.prediction)


def test_given_filters_are_predicted_and_evaluated(backend: CudaBackend, reference: ReferenceBackend) -> None:
    taps = [each.taps for each in designs(reference, ears(), DesignOptions())]
    for method in ("predict", "evaluate"):
        answers = [getattr(each, method)(ears(), taps) for each in (backend, reference)]
        for found, expected in zip(*answers, strict=True):
            assert_same_prediction(found, expected)
    with_noise = [taps[0], np.full_like(taps[1], np.nan), taps[2]]
    answers = backend.predict(ears(), with_noise)
    assert isinstance(answers[1], NonFiniteFilter)
    assert [isinstance(each, Prediction) for each in answers] == [True, False, True]


def test_an_ear_is_the_same_whatever_lies_beside_it_and_was_there_before(backend: CudaBackend) -> None:
    """Batches of other sizes run in other buffers, rows that are not used hold what they held."""
    plain, with_coherence, with_noise = ears()
    options = DesignOptions("prime", 1)
    beside = designs(backend, [with_coherence, with_noise, plain], options)[2]
    designs(backend, [with_noise, with_coherence] * 5, options)
    in_turn = [designs(backend, inputs, options) for inputs in ([plain], [plain] * 8, [plain] * 9)]
    for answers in in_turn:
        for each in answers:
            assert relative_error(each.taps[None], beside.taps[None]) < 1e-4
            assert each.prediction.basis == "model"


def test_one_ears_fault_is_its_own(backend: CudaBackend) -> None:
    good = ears()[0]
    long = changed(good, secondary=np.zeros(DESIGN_N_FFT + 1, np.float32))
    loud = changed(good, primary=good.conditions[0].primary * np.float32(1e25))
    answers = backend.design([long, good, loud], DesignOptions("prime", 1))
    assert [type(each) for each in answers] == [InvalidPaths, Design, NonFiniteFilter]
    with pytest.raises(ValueError, match="33 ears were given; give 1 to 32"):
        backend.design([good] * 33, DesignOptions())


def test_without_a_solution_wmmse_fails_for_that_ear_alone(backend: CudaBackend) -> None:
    good = ears()[0]
    spoilt = changed(good, secondary=good.conditions[0].secondary * np.float32(np.nan))
    answers = backend.design([good, spoilt], DesignOptions("wmmse"))
    assert [type(each) for each in answers] == [Design, NonFiniteFilter]


@pytest.fixture
def recorded(parameters: ModelParameters, monkeypatch: pytest.MonkeyPatch) -> CudaBackend:
    """On a CPU, its stages captured on tape before anything is designed."""
    monkeypatch.setattr(graphs, "capture", capture_on_tape)
    own = CudaBackend(parameters, "cpu")
    for batch in own._batches.values():
        batch._pool = "on tape"
    return own


def test_recorded_stages_replay_for_one_ear_after_another(
    recorded: CudaBackend, reference: ReferenceBackend
) -> None:
    for options in (DesignOptions("prime", 2), DesignOptions("wmmse", 1), DesignOptions("prime", 0)):
        for ear in (*ears(), ears()[0]):
            (found,), (expected,) = (designs(each, [ear], options) for each in (recorded, reference))
            assert relative_error(found.taps[None], expected.taps[None]) < 5e-3
            assert found.refinement.applied == expected.refinement.applied
            assert_same_prediction(found.prediction, expected.prediction)


def test_a_moved_buffer_is_noticed(backend: CudaBackend) -> None:
    batch = BatchGraphs(backend._stages, 1)
    batch.record(("decode",))
    batch.start = batch.start.clone()
    with pytest.raises(AssertionError, match="moved"):
        batch.run("decode")


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (torch.AcceleratorError, DeviceLost, r"out of reach.*restart the process"),
        (torch.OutOfMemoryError, MemoryError, r"no memory left \(out of reach"),
    ],
)
def test_errors_of_a_gpu_are_told_apart(
    error: type[Exception],
    expected: type[Exception],
    message: str,
    backend: CudaBackend,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*key: str) -> None:
        raise error("out of reach")

    monkeypatch.setattr(backend._batches[1], "run", fail)
    with pytest.raises(expected, match=message):
        backend.design(ears()[:1], DesignOptions())
