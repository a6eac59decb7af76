"""The compiled core against the reference in double precision: filters, updates, predictions, refusals."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from model_store.checkpoint import GOLDEN_TOLERANCE
from model_store.store import DEFAULT_ROOT, ModelStore
from prime_anc.core import Core, library
from prime_anc.core.build import LEVELS, library_file, machine
from prime_anc.method.backends.reference import ReferenceBackend
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.design import design, design_all, predict_all
from prime_anc.method.errors import InvalidOption, InvalidPaths, NonFiniteFilter
from prime_anc.method.methods import METHODS
from prime_anc.method.posing import pose
from prime_anc.method.predict import band_sums, predict
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.types import (
    BASES,
    MAX_CONDITIONS,
    Design,
    DesignOptions,
    Filter,
    Known,
    KnownFrom,
    Model,
    ModelParameters,
    Paths,
    Prediction,
    Problem,
)
from tests.method.cases import HOPELESS, Case, hopeless, random_case, relative_error
from tests.model_store import cases
from tests.problems import changed, one, open_loop

LOG = GeneratorConfig.prime_log()
# The paper's generator on a coarse grid, an eighth of the work.
LINEAR = GeneratorConfig.prime(n_fft=4096)
BUNDLED = ModelStore(DEFAULT_ROOT).load("bose-qc20")


Pair = tuple[Core, ReferenceBackend]


def pair(parameters: ModelParameters) -> Pair:
    return Core(parameters), ReferenceBackend(parameters, torch.float64)


def inputs_of(case: Case, every: int = 1, *, is_known: bool = True) -> list[Problem]:
    """Problems with paths, of which something is unknown unless `is_known`."""
    shares = np.random.default_rng(7).uniform(0, 0.01, (2, 31)).astype(np.float32)
    shares[:, 3], shares[1, 20:22] = 1e6, 0.5  # bands that are hardly known
    given = {} if is_known else {"uncertainty": shares}
    return [
        one(primary.astype(np.complex64), secondary.astype(np.complex64), **given)
        for primary, secondary in zip(case.primary[::every], case.secondary[::every], strict=True)
    ]


def filters(backend: Core | ReferenceBackend, problems: list[Problem], options: DesignOptions) -> list[Filter]:
    """Starts and updates, under the model's reference spectrum."""
    found = backend.filters([open_loop(item, BUNDLED.parameters.reference_psd) for item in problems], options)
    assert all(isinstance(item, Filter) for item in found), found
    return found


@pytest.fixture(scope="module")
def simulated() -> Case:
    return random_case(n_cases=2, n_fft=DESIGN_N_FFT, seed=11)


@pytest.fixture(scope="module")
def bundled() -> Pair:
    return pair(BUNDLED.parameters)


@pytest.mark.parametrize(
    ("method", "profile"),
    [*((method, "fast") for method in METHODS), *(("prime", name) for name in ("fine", "paper"))],
)
def test_every_method_and_profile_is_references(
    method: str, profile: str, measured_case: Case, bundled: Pair
) -> None:
    is_paper = profile == "paper"  # whose J takes its estimates for exact
    ears, options = inputs_of(measured_case, every=3, is_known=is_paper), DesignOptions(method, 3, profile)
    core, twin = (filters(item, ears, options) for item in bundled)
    for found, expected in zip(core, twin, strict=True):
        # Spectra that span 60 dB and a condition of 1e4 on float32's 6e-8. Measured: 2e-3.
        assert relative_error(found.taps, expected.taps) < 6e-3
        assert found.refinement.stopped == expected.refinement.stopped
        assert found.refinement.step_scale == expected.refinement.step_scale
        # Without a preconditioner, float32 loses conjugacy before the paper's sixteenth iteration.
        objectives = found.refinement.objective, expected.refinement.objective
        np.testing.assert_allclose(*objectives, atol=0.05 if is_paper else 0.01)
        if not is_paper:
            np.testing.assert_allclose(found.refinement.pcg_residual, expected.refinement.pcg_residual, atol=0.02)


@pytest.mark.parametrize("n_updates", [0, 2])
def test_unknown_bands_of_conditions_are_treated_as_by_reference(
    measured_case: Case, bundled: Pair, n_updates: int
) -> None:
    hz = np.linspace(0, 24_000, N_BINS)
    coherence = np.where((hz >= 120) & (hz < 3000), 0.999, 0).astype(np.float32)
    ear, other, _ = inputs_of(measured_case, 2)
    ear = Problem((*changed(ear, coherence=coherence).conditions, *other.conditions))
    found, expected = (
        design(ear, DesignOptions("prime", n_updates), Model(BUNDLED.parameters, item)) for item in bundled
    )
    assert relative_error(found.taps, expected.taps) < 0.01
    # The start is far above the ceiling where S is not known, which the square of float32 taps shows.
    assert found.refinement.objective == pytest.approx(expected.refinement.objective, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("config", [LINEAR, replace(LOG, realisation="minimum_phase", base="full_band")])
def test_generators_that_correct_ratio_are_references(config: GeneratorConfig, simulated: Case) -> None:
    core, twin = pair(cases.parameters(3, config))
    ears = inputs_of(simulated, is_known=False)
    for n_updates in (0, 2):
        options = DesignOptions("prime", n_updates)
        for found, expected in zip(filters(core, ears, options), filters(twin, ears, options), strict=True):
            # At k = 0 nothing is solved.
            assert relative_error(found.taps, expected.taps) < (2e-3 if n_updates else 1e-4)


@pytest.mark.parametrize("basis", BASES)
def test_core_figures_follow_from_sums(measured_case: Case, bundled: Pair, basis: KnownFrom) -> None:
    """Both compute in float64, in another order."""
    (ear, *_), (core, _) = inputs_of(measured_case), bundled
    posed = pose(ear, Model(BUNDLED.parameters, core))
    taps = 0.5 * np.eye(1, 2048, dtype=np.float32)[0]
    shares = np.random.default_rng(1).uniform(0, 0.01, (2, 31)).astype(np.float32)
    for silent in (None, np.arange(31) > 22):
        known = Known(shares, basis, 0.0 if basis == "truth" else 3.0, silent)
        found, sums = core._predicted(posed.primary[0], posed.secondary[0], posed.reference_psd, known, taps)
        expected = predict(sums, BUNDLED.parameters.band_uncertainty, known)
        for field in fields(Prediction):
            if isinstance(getattr(expected, field.name), str | tuple | None):
                assert getattr(found, field.name) == getattr(expected, field.name)
            else:
                pair = getattr(found, field.name), getattr(expected, field.name)
                np.testing.assert_allclose(*pair, rtol=1e-6, atol=1e-6, err_msg=field.name)
        spectra = posed.primary.astype(complex), posed.secondary.astype(complex)
        exact = band_sums(*spectra, taps[None].astype(float), posed.reference_psd.astype(float))
        np.testing.assert_allclose(sums, exact[0], rtol=1e-4, atol=1e-6 * exact.max())


@pytest.mark.parametrize("name", HOPELESS)
def test_hopeless_paths_end_as_references_do(name: str, simulated: Case, bundled: Pair) -> None:
    paths = hopeless(name, simulated)[:1].to(torch.float32)
    problem = one(paths.primary[0].numpy(), paths.secondary[0].numpy())
    models = [Model(BUNDLED.parameters, item) for item in (*bundled, ReferenceBackend(BUNDLED.parameters))]
    found = [design_all([problem], DesignOptions("prime", 2), model)[0] for model in models]
    if isinstance(found[1], InvalidPaths):
        assert [type(item) for item in found] == [InvalidPaths] * 3
        return
    if name == "one tone":  # which torch's single precision does not hold
        assert isinstance(found.pop(), NonFiniteFilter)
    for item in found:
        assert isinstance(item, Design)
        assert (np.diff(item.refinement.objective) < 0).all()
    reached, exact, *rounded = (item.prediction.mean_noise_reduction_db for item in found)
    assert abs(reached - exact) <= 0.5 + sum(2 * abs(usual - exact) for usual in rounded)


def test_fault_is_one_ears_own(simulated: Case, bundled: Pair) -> None:
    good = inputs_of(simulated)[0]
    primary = good.conditions[0].primary
    faulty = [
        changed(good, primary=primary[:100]),
        changed(good, secondary=np.ones(40_000, np.float32)),
        changed(good, primary=np.full_like(primary, np.nan)),
        changed(good, secondary=np.zeros(100, np.float32)),
        changed(good, primary=np.complex64(1e18) * primary),
    ]
    model, taps = Model(BUNDLED.parameters, bundled[0]), np.eye(1, 2048, dtype=np.float32)[0]
    for answers in (
        design_all([*faulty, good], DesignOptions(), model),
        predict_all([*faulty, good], [taps] * 6, model),
    ):
        *failed, last = answers
        assert [item.field for item in failed] == ["primary", "secondary", "primary", "secondary", "primary"]
        assert isinstance(last, Design | Prediction)


@pytest.mark.parametrize("layer", ["stem.0.weight", "head.2.bias"])
def test_network_that_is_not_number_has_no_finite_filter(layer: str, simulated: Case) -> None:
    weights = BUNDLED.parameters.weights
    broken = {**weights, layer: np.full_like(weights[layer], np.nan)}
    core = Core(replace(BUNDLED.parameters, weights=broken))
    (aim,) = map(open_loop, inputs_of(simulated)[:1])
    assert isinstance(core.filters([aim], DesignOptions("prime", 1))[0], NonFiniteFilter)


@pytest.mark.parametrize(
    "broken",
    [
        lambda model: replace(model, weights={**model.weights, "stem.1.bias": np.zeros(3, np.float32)}),
        lambda model: replace(model, band_uncertainty=model.band_uncertainty[:1]),
    ],
    ids=["weight", "band_uncertainty"],
)
def test_core_gets_no_model_beyond_bounds(broken: Callable[[ModelParameters], ModelParameters]) -> None:
    with pytest.raises(InvalidOption):
        Core(broken(BUNDLED.parameters))


@pytest.mark.parametrize(
    "changes",
    [
        {"uncertainty": np.zeros((2, 30), np.float32)},
        {"coherence": np.ones(N_BINS - 1, np.float32)},
        {"reference_psd": np.ones(N_BINS + 1, np.float32)},
        {"conditions": (Paths(*cases.ear(1)[:2]),) * (MAX_CONDITIONS + 1)},
    ],
    ids=["uncertainty", "coherence", "reference_psd", "conditions"],
)
def test_core_gets_no_ear_beyond_bounds(changes: dict[str, object], bundled: Pair) -> None:
    ear = changed(one(*cases.ear(2)[:2]), **changes)
    with pytest.raises(ValueError, match=r"given|there are"):
        design(ear, DesignOptions(), Model(BUNDLED.parameters, bundled[0]))


def test_threads_do_not_disturb_one_another(measured_case: Case, bundled: Pair) -> None:
    core, options = bundled[0], DesignOptions("prime", 2)
    ears = inputs_of(measured_case)
    alone = filters(core, ears, options)
    with ThreadPoolExecutor(4) as threads:
        together = threads.map(lambda ear: filters(core, [ear], options)[0], ears)
        for found, expected in zip(together, alone, strict=True):
            np.testing.assert_array_equal(found.taps, expected.taps)


@pytest.fixture(params=list(LEVELS[machine()]))
def core_of_each_level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The cores for the levels that this processor runs."""
    levels = LEVELS[machine()]
    if levels.index(request.param) < levels.index(library.level()):
        pytest.skip(f"this processor runs {library.level()}, not {request.param}")
    monkeypatch.setattr(library, "level", lambda: request.param)
    library._load.cache_clear()
    yield request.param
    library._load.cache_clear()


def test_every_level_of_core_designs_golden_case(core_of_each_level: str) -> None:
    errors = BUNDLED.golden.check(Model.on("cpu", BUNDLED.parameters))
    assert max(errors.values()) < GOLDEN_TOLERANCE


def test_core_of_other_sources_is_never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from prime_anc.core import build

    level = library.level()
    now = library_file(level)
    assert now.is_file()
    (tmp_path / "core.c").write_text("/* something else */")
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    assert library_file(level) != now
