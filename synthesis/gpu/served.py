"""Whether the kernels can be used here, decided when a model is loaded."""

from __future__ import annotations

import logging
from dataclasses import fields
from functools import lru_cache

import torch
from torch import Tensor, nn

from synthesis.channels_last import GPU_PRECISION, WrittenOutNorm, for_inference
from synthesis.conventions import N_BINS, N_TAPS
from synthesis.features import N_CHANNELS
from synthesis.gauss_newton import FAST, FINE, BeginUpdates, Refining
from synthesis.generator import Generator, GeneratorConfig
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import Predict, Read, Realise, Synthesizer, predicted, read_paths, realised_wiener
from synthesis.toeplitz import ToeplitzSolver, solve_toeplitz

logger = logging.getLogger(__name__)

FUSED_ON = "cuda"
PRIME_LOG = GeneratorConfig.prime_log()
N_LAUNCHES = 4
"""Of a solve on a grid of 8192 points."""
LAUNCHES_TO_READ, LAUNCHES_TO_CORRECT, LAUNCHES_TO_REALISE, LAUNCHES_OF_A_NORM = 2, 1, 4, 2
"""Of what a generator reads, of its layers, of a Wiener filter beside its solve, and of a norm of `prime`."""
POINTS_OF_A_NORM = 128
"""That one of its programs takes."""
LAUNCHES_TO_BEGIN, LAUNCHES_AROUND_A_SOLVE = 5, 6
"""Of what precedes the updates, and of an update beside its solve."""
LAUNCHES_TO_PREDICT = 4
"""With the uncertainty that was learned; with a coherence one less."""
MOST_DIFFERENCE = {
    "solution": 1e-4,
    "features": 1e-4,
    "corrections": 1e-4,
    "filter": 2e-3,
    "updated filter": 2e-3,
    "prediction": 1e-3,
    "norm": 2e-3,  # in half precision
}
"""Relative, between the kernels and the reference on what decides. In the interpreter 1.4e-5 of the solution, 5e-5
of the filter, 8e-5 of the updated taps, 4e-4 of the norm and 1e-6 of all else were found."""


def served(synthesizer: Synthesizer) -> Synthesizer:
    """A synthesizer in its fastest form on a CUDA device, changed in place; on any other it stays as it is.

    Its generator takes its form for inference, `synthesis.gpu.generator` where that holds the layers, else with the
    norms of `synthesis.gpu.norm`, and reads what `synthesis.gpu.features` makes of the paths; systems are solved by
    `synthesis.gpu.toeplitz`, filters realised by `synthesis.gpu.fir_wiener`, updated by `synthesis.gpu.refinement`
    and predicted by `synthesis.gpu.prediction`. Where Triton is not installed, or the kernels do not compile or do
    not give what the reference gives, torch goes on computing, and a warning says why. They are compiled here,
    never while a request waits.
    """
    psd = synthesizer.reference_psd
    if psd.device.type == FUSED_ON and psd.dtype == torch.float32:
        synthesizer.generator = for_inference(synthesizer.generator)
        reason = obstacle(psd.device, synthesizer.generator.config)
        if reason is None:
            return with_kernels(synthesizer)
        logger.warning("Filters are made by torch's operators, some hundred launches each: %s", reason)
    return synthesizer


def with_kernels(synthesizer: Synthesizer) -> Synthesizer:
    """The same with its stages in kernels, whether or not they can be used where it is."""
    from synthesis.gpu import features, fir_wiener, generator, norm, prediction, refinement, toeplitz

    synthesizer.generator = norm.for_kernels(generator.for_kernels(synthesizer.generator))
    synthesizer.solve = toeplitz.solve
    synthesizer.read = features.read
    synthesizer.realise = fir_wiener.realised
    synthesizer.begin_updates = refinement.refining
    synthesizer.foresee = prediction.predict
    return synthesizer


@lru_cache(maxsize=8)
def obstacle(device: torch.device, config: GeneratorConfig = PRIME_LOG) -> str | None:
    """Why the kernels cannot be used on a device for a generator's layout; None where they can. Compiles them,
    which may take a minute."""
    try:
        from synthesis.gpu import features, fir_wiener, generator, norm, prediction, refinement, toeplitz
    except ImportError as error:
        return f"Triton cannot be imported ({error}); pip install prime-anc[gpu]"
    try:
        found = _made(toeplitz.solve, features.read, fir_wiener.realised, refinement.refining, device)
        expected = _made(solve_toeplitz, read_paths, realised_wiener, Refining, device)
        found["prediction"], expected["prediction"] = (
            _prediction(each, device) for each in (prediction.predict, predicted)
        )
        if generator.suited(config):
            layers = _some_generator(config)
            found["corrections"] = _corrections(generator.for_kernels(layers).to(device), device)
            # In double precision: torch's own convolutions may round to ten bits on a GPU.
            expected["corrections"] = _corrections(layers.double().to(device), device)
        if norm.suited(config):
            own = WrittenOutNorm(nn.GroupNorm(config.n_groups, config.n_channels))
            found["norm"], expected["norm"] = (_normed(each, config, device) for each in (norm.FusedNorm(own), own))
        for name, values in expected.items():
            pairs = zip(found[name], values, strict=True)
            difference = max(float((a - b).norm() / b.norm()) for a, b in pairs)
            if not difference < MOST_DIFFERENCE[name]:
                most = f"expected at most {MOST_DIFFERENCE[name]:g}"
                return f"{name}: found a difference of {difference:.1e} from torch's, relative, {most}"
    except Exception as error:  # whatever a compiler, a driver or a device may raise
        return f"{type(error).__name__}: {error}"
    return None


def _some_generator(config: GeneratorConfig) -> Generator:
    """One that corrects, which the untrained does not; the caller's random numbers stay as they are."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        own = Generator(config).eval()
        with torch.no_grad():
            last = own.head[-1]
            assert isinstance(last, nn.Conv1d)
            last.weight.normal_(std=0.3)
    return own


@torch.no_grad()
def _corrections(generator: Generator, device: torch.device) -> list[Tensor]:
    """Of waves in the place of two ears' features."""
    waves = torch.arange(2 * N_CHANNELS, dtype=torch.float64)[:, None] * torch.arange(generator.config.n_points) / 7
    features = torch.cos(waves).float().unflatten(0, (2, -1))
    return [generator(features.to(device, next(generator.parameters()).dtype))]


@torch.no_grad()
def _normed(norm: WrittenOutNorm, config: GeneratorConfig, device: torch.device) -> list[Tensor]:
    """Of waves on all bins, no two channels alike and far from a mean of zero, and of these in a residual block; in
    the trunk's precision and in the head's."""
    n_points = config.n_fft // 2 + 1
    waves = torch.arange(n_points)[:, None] * (1 + torch.arange(config.n_channels)) / 900
    hidden = (5 + torch.cos(waves) * (1 + torch.arange(config.n_channels) / 9))[None].transpose(1, 2)
    made = []
    for precision in (GPU_PRECISION, torch.float32):
        norm, rounded = norm.to(device, precision), hidden.to(device, precision)
        made += [norm(rounded).float(), norm(rounded, rounded).float()]
    return made


def _some_paths(device: torch.device) -> AcousticPaths:
    """Delayed, and falling towards treble."""
    bins = torch.linspace(0, torch.pi, N_BINS, dtype=torch.float64)
    spectra = [torch.polar(1 / (level + bins), -delay * bins)[None] for level, delay in ((1, 30), (2, 10))]
    return AcousticPaths(*(each.to(device, torch.complex64) for each in spectra))


def _made(
    solve: ToeplitzSolver, read: Read, realise: Realise, begin: BeginUpdates, device: torch.device
) -> dict[str, list[Tensor]]:
    """A system's solution; of some paths what a generator reads and a Wiener filter; taps and objective after an
    update of that in each profile."""
    bins = torch.linspace(0, torch.pi, FAST.n_fft // 2 + 1, dtype=torch.float64)
    symbol = torch.exp(2 * torch.cos(bins) + torch.cos(5 * bins))[None].to(device, torch.float32)
    matched = torch.polar(1 / (1 + bins), -200 * bins)[None].to(device, torch.complex64)
    solution = solve(symbol, matched, N_TAPS, n_iterations=4).value

    paths, generator = _some_paths(device), Generator(PRIME_LOG).to(device)
    ratio = read(generator, paths)
    log_paths = torch.zeros_like(ratio.log_paths)
    taps = realise(generator, paths, log_paths, log_paths, torch.zeros(1, 1, device=device), solve)
    psd = torch.full((N_BINS,), 1e-4, device=device)
    updated = []
    for profile in (FAST, FINE):
        updates = begin(paths, taps, psd, profile=profile, max_gain_db=30.0, solve=solve, most_updates=1)
        updates.update()
        result = updates.result()
        updated += [result.taps, result.objective]
    read_of = [ratio.log_base, ratio.log_paths, ratio.features]
    return {"solution": [solution], "features": read_of, "filter": [taps], "updated filter": updated}


def _prediction(predict: Predict, device: torch.device) -> list[Tensor]:
    """On either basis, of a filter that halves what some paths bring and what they bring late."""
    paths = _some_paths(device)
    late = torch.linspace(0, 3000 * torch.pi, N_BINS, dtype=torch.float64)
    echo = torch.polar(torch.full_like(late, 0.1), -late)[None].to(device, torch.complex64)
    paths = AcousticPaths(paths.primary * (1 + echo), paths.secondary)
    taps = torch.zeros(1, N_TAPS, device=device)
    taps[:, 20] = 0.8
    learned, psd = torch.full((2, 31), 0.1, device=device), torch.full((N_BINS,), 1e-4, device=device)
    learned[1] = 2.0
    figures = []
    for coherence in (None, torch.full((1, N_BINS), 0.9, device=device)):
        prediction = predict(paths, taps, learned, coherence, psd)
        figures += [getattr(prediction, each.name) for each in fields(prediction)]
    return [torch.cat([each.reshape(-1) for each in figures])]
