"""A synthesizer whose served stages run on NumPy arrays, one ear after the other."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from synthesis.channels_last import for_inference
from synthesis.conventions import DESIGN_N_FFT
from synthesis.cpu.bands import collected
from synthesis.cpu.features import FeatureReader
from synthesis.cpu.fir_wiener import FirWiener
from synthesis.cpu.generator import CpuGenerator
from synthesis.cpu.prediction import Predictor, figures
from synthesis.cpu.refinement import EarRefining, Refiner
from synthesis.cpu.toeplitz import ToeplitzSolver
from synthesis.cpu.transforms import Complex, Real, RealTransform
from synthesis.frequency_grid import LogFrequencyGrid
from synthesis.gauss_newton import FAST, FINE, MAX_UPDATES, PROFILES, Refinement, Updates
from synthesis.noise_reduction import Prediction
from synthesis.octave_bands import AMP_BANDS
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import DEFAULT_MAX_GAIN_DB, PathRatio, Synthesizer

quiet = np.errstate(all="ignore")
"""Numbers that leave single precision end as infinity or NaN, as torch's do, without NumPy's warnings; what comes
of them is refused at the end."""


class CpuSynthesizer(Synthesizer):
    """The recipe of any model, float32, inference only: updates and predictions on NumPy arrays.

    Takes and gives what `Synthesizer` does. What is not served often (the paper's profile, the start of other
    methods than `prime`) is inherited. Owns transform plans and buffers: for one thread.
    """

    def __init__(self, synthesizer: Synthesizer) -> None:
        """synthesizer: in float32 on the CPU; its generator is copied."""
        generator = for_inference(synthesizer.generator)
        super().__init__(generator, synthesizer.reference_psd, synthesizer.band_uncertainty)
        self._transforms = {n: RealTransform(n) for n in {generator.config.n_fft, FAST.n_fft, FINE.n_fft}}
        self._solvers = {n: ToeplitzSolver(transform) for n, transform in self._transforms.items()}
        self._refiners = {
            each.name: Refiner(self._transforms[each.n_fft], self._solvers[each.n_fft]) for each in (FAST, FINE)
        }
        self._predictor = Predictor()

    def generate(self, features: Tensor) -> Tensor:
        """As the reference, each ear on its own: libraries sum a batch of another size in another order."""
        return torch.cat([self.generator(each[None]) for each in features])

    @quiet
    def refining(
        self,
        paths: AcousticPaths,
        taps: Tensor,
        profile: str = "fast",
        max_gain_db: Tensor | float | None = DEFAULT_MAX_GAIN_DB,
        reference_psd: Tensor | None = None,
        most_updates: int = MAX_UPDATES,
    ) -> Updates:
        """As the reference."""
        if profile not in self._refiners:
            return super().refining(paths, taps, profile, max_gain_db, reference_psd, most_updates)
        psd = self.reference_psd if reference_psd is None else reference_psd
        refiner, stride = self._refiners[profile], DESIGN_N_FFT // PROFILES[profile].n_fft
        psds = psd.expand(paths.batch_size, -1).numpy()
        primary, secondary, starts = paths.primary.numpy(), paths.secondary.numpy(), taps.numpy()
        ears = [
            refiner.begin(
                primary[row, ::stride].copy(),
                secondary[row, ::stride].copy(),
                collected(psds[row], stride),
                starts[row],
                _ceiling(max_gain_db, row),
            )
            for row in range(paths.batch_size)
        ]
        return _Updates(ears, most_updates)

    @quiet
    def predict(
        self,
        paths: AcousticPaths,
        taps: Tensor,
        coherence: Tensor | None = None,
        reference_psd: Tensor | None = None,
    ) -> Prediction:
        """As the reference."""
        psds = (self.reference_psd if reference_psd is None else reference_psd).expand(paths.batch_size, -1).numpy()
        known = [None] * paths.batch_size if coherence is None else coherence.numpy()
        ears = zip(paths.primary.numpy(), paths.secondary.numpy(), psds, taps.numpy(), known, strict=True)
        packed = torch.from_numpy(np.stack([self.figures(*ear) for ear in ears]))
        return Prediction(packed[:, : len(AMP_BANDS)], *packed[:, len(AMP_BANDS) :].unbind(1))

    def figures(self, primary: Complex, secondary: Complex, psd: Real, taps: Real, coherence: Real | None) -> Real:
        """The fields of one ear's `Prediction` side by side; everything on the design grid."""
        per_bin, disturbance = self._predictor.disturbance(primary, psd)
        residual, gain, power = self._predictor.residual(primary, secondary, psd, taps)
        if coherence is None:
            learned = self.band_uncertainty.numpy()
            unknown = self._predictor.expected_uncertainty(primary, psd, disturbance, learned) * disturbance
        else:
            unknown = self._predictor.unexplained(per_bin, coherence)
        return figures(disturbance + unknown, residual + unknown, gain, power)


class CpuLogSynthesizer(CpuSynthesizer):
    """The same for a `prime-log` model with a finite Wiener filter, whose every stage runs on NumPy arrays."""

    def __init__(self, synthesizer: Synthesizer) -> None:
        """synthesizer: its generator corrects a finite Wiener filter whose base is the held band."""
        super().__init__(synthesizer)
        own, grid = self.generator.config.n_fft, self.generator.grid
        assert isinstance(grid, LogFrequencyGrid)
        self._stride = DESIGN_N_FFT // own
        self.profiles = frozenset(self._refiners)
        """Of updates on NumPy arrays."""
        self._features = FeatureReader(grid, self._transforms[own])
        self._generator = CpuGenerator(self.generator)
        self._fir_wiener = FirWiener(grid, self._transforms[own], self._solvers[own])

    @quiet
    def path_ratio(self, paths: AcousticPaths) -> PathRatio:
        """As the reference."""
        found = [
            self._features.read(primary[:: self._stride].copy(), secondary[:: self._stride].copy())
            for primary, secondary in zip(paths.primary.numpy(), paths.secondary.numpy(), strict=True)
        ]
        return PathRatio(*(torch.from_numpy(np.stack(each)) for each in zip(*found, strict=True)))

    @quiet
    def generate(self, features: Tensor) -> Tensor:
        """As the reference."""
        return torch.from_numpy(np.stack([self._generator(each) for each in features.numpy()]))

    @quiet
    def reconstruct(
        self,
        paths: AcousticPaths,
        ratio: PathRatio,
        correction: Tensor | None,
        max_gain_db: Tensor | float | None = None,
    ) -> Tensor:
        """As the reference."""
        if correction is None:
            return super().reconstruct(paths, ratio, correction, max_gain_db)
        primary, secondary = paths.primary.numpy(), paths.secondary.numpy()
        log_paths, corrections = ratio.log_paths.numpy(), correction.numpy()
        taps = [
            self._fir_wiener.design(
                primary[row, :: self._stride].copy(),
                secondary[row, :: self._stride].copy(),
                log_paths[row],
                corrections[row],
                _ceiling(max_gain_db, row),
            )
            for row in range(paths.batch_size)
        ]
        return torch.from_numpy(np.stack(taps))


class EarDesign:
    """The stages of one ear's design, in this order, each once: what the synthesizer's own stages do, without what
    it takes to make tensors of what lies between them.

    Runs under `quiet`. Buffers are the synthesizer's; what is kept from one stage to a later one is a copy.
    """

    def __init__(self, own: CpuLogSynthesizer, primary: Complex, secondary: Complex) -> None:
        """Paths on the design grid."""
        self._own = own
        self._paths = primary, secondary
        self._every: dict[int, tuple[Complex, Complex]] = {}

    def path_ratio(self) -> None:
        """What the paths say."""
        _, log_paths, features = self._own._features.read(*self._paths_every(self._own._stride))
        self._log_paths, self._features = log_paths.copy(), features.copy()

    def generate(self) -> None:
        """The generator's correction."""
        self._correction = self._own._generator(self._features).copy()

    def reconstruct(self, max_gain_db: float | None) -> None:
        """The filter before any update."""
        paths = self._paths_every(self._own._stride)
        design = self._own._fir_wiener.design
        self._taps = design(*paths, self._log_paths, self._correction, max_gain_db).copy()

    def refining(self, profile: str, psd: Real, max_gain_db: float | None) -> EarRefining:
        """Updates of that filter."""
        stride = DESIGN_N_FFT // PROFILES[profile].n_fft
        begin = self._own._refiners[profile].begin
        return begin(*self._paths_every(stride), collected(psd, stride), self._taps, max_gain_db)

    def _paths_every(self, stride: int) -> tuple[Complex, Complex]:
        if stride not in self._every:
            primary, secondary = self._paths
            self._every[stride] = primary[::stride].copy(), secondary[::stride].copy()
        return self._every[stride]


def served(synthesizer: Synthesizer) -> Synthesizer:
    """The fastest form of a synthesizer on the CPU; one of another device or precision stays as it is."""
    psd = synthesizer.reference_psd
    if (psd.device.type, psd.dtype) != ("cpu", torch.float32):
        return synthesizer
    config = synthesizer.generator.config
    is_log_wiener = (config.kind, config.realisation, config.base) == ("prime-log", "fir_wiener", "held_band")
    return CpuLogSynthesizer(synthesizer) if is_log_wiener else CpuSynthesizer(synthesizer)


def _ceiling(max_gain_db: Tensor | float | None, row: int) -> float | None:
    if isinstance(max_gain_db, Tensor):
        return float(max_gain_db if max_gain_db.ndim == 0 else max_gain_db[row])
    return max_gain_db


class _Updates:
    """`Updates` of a batch, each ear's on its own: one that has stopped costs nothing more."""

    def __init__(self, ears: list[EarRefining], most_updates: int) -> None:
        self._ears, self._most_updates, self._n_made = ears, most_updates, 0

    @quiet
    def update(self) -> None:
        self._n_made += 1
        for ear in self._ears:
            ear.update()

    def result(self) -> Refinement:
        ears, n_none = self._ears, self._most_updates - self._n_made

        def columns(values: list[list[float]], length: int) -> Tensor:
            found = np.full((len(values), length), np.nan, np.float32)
            for row, each in zip(found, values, strict=True):
                row[n_none : n_none + len(each)] = each
            return torch.from_numpy(found)

        return Refinement(
            taps=torch.from_numpy(np.stack([ear.taps for ear in ears])),
            objective=columns([ear.objective for ear in ears], self._most_updates + 1),
            step_scale=columns([ear.step_scale for ear in ears], self._most_updates),
            pcg_residual=columns([ear.pcg_residual for ear in ears], self._most_updates),
            n_applied=torch.tensor([len(ear.step_scale) for ear in ears]),
            stopped=torch.tensor([ear.stopped for ear in ears]),
        )
