"""One model in memory, ready to design: its schedules, its check against the golden case, its answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from model_store.checkpoint import Checkpoint
from model_store.store import ModelStore, ModelVersion
from service.designs import (
    BATCH_SIZES,
    Basis,
    Design,
    Ear,
    Evaluation,
    Figures,
    Float32,
    Recipe,
    fitting_size,
)
from service.engine.cpu_schedule import schedule_of
from service.engine.grids import coherence_on_design_grid, path_spectrum, psd_on_design_grid
from service.engine.net import RIVAL, USUAL, Net
from service.engine.schedule import Schedule, account
from service.engine.stage_clock import StageClock
from synthesis import cpu, gpu
from synthesis.conventions import DESIGN_N_FFT, N_TAPS
from synthesis.cpu.transforms import RealTransform
from synthesis.errors import NonFiniteFilter, SynthesisError
from synthesis.gauss_newton import MAX_UPDATES, PROFILES
from synthesis.synthesizer import METHODS


class ResidentModel:
    """A checkpoint on its device. For one thread at a time: its schedules' buffers are shared by all its designs.

    manifest: what the checkpoint says of itself. graph_bytes: device memory that its recorded graphs keep to
    themselves, when it was last looked at; 0 on a CPU, which records nothing.
    """

    def __init__(
        self,
        version: ModelVersion,
        checkpoint: Checkpoint,
        device: torch.device,
        *,
        net: Net = USUAL,
        fused: bool = True,
    ) -> None:
        """Copies the weights to the device and checks them: GoldenMismatch where the schedule, as it will be
        run for requests, does not give the filters that were stored with the weights."""
        self.version = version
        self.device = device
        self.manifest = checkpoint.manifest
        self.net = net
        self.graph_bytes = 0
        kind = str(self.manifest.generator.get("kind"))
        self.scored_noise_reduction_db = [
            self.manifest.scores.noise_reduction_db(kind, n_updates) for n_updates in range(MAX_UPDATES + 1)
        ]
        """What its designs scored on unseen listeners, dB, by updates; None where the manifest does not say."""
        synthesizer = cpu.served(checkpoint.synthesizer(torch.float32, device))
        self._synthesizer = gpu.served(synthesizer) if fused else synthesizer
        self._reference_psd = self._synthesizer.reference_psd.cpu()
        self._schedules: dict[int, Schedule] = {}
        self._transform = RealTransform(DESIGN_N_FFT)
        self._clock = StageClock(device)
        self._golden = checkpoint.golden
        self.golden_ear = Ear(
            self._golden.primary.numpy(), self._golden.secondary.numpy(), coherence=self._golden.coherence.numpy()
        )
        self.check()

    @classmethod
    def load(
        cls, store: ModelStore, version: ModelVersion, device: torch.device, net: Net = USUAL
    ) -> ResidentModel:
        """Read, verify, check, warm up and record a version, in whichever thread this is called: on a GPU in a
        stream of its own, so that what is designed meanwhile waits for none of its work; only where a recording
        begins does torch bring the whole device to rest."""
        checkpoint = store.load(str(version))
        with _own_stream(device):
            model = cls(version, checkpoint, device, net=net)
            model.warm_up()
            model.check()  # what was recorded is what was run
        return model

    def check(self) -> float:
        """Design the golden case: GoldenMismatch unless the stored filters come out. Returns the seconds that the
        design with one update took."""
        taps = self._golden_taps(0)
        began = perf_counter()
        refined = self._golden_taps(1)
        spent_s = perf_counter() - began
        self._golden.compare(taps, refined)
        return spent_s

    def _golden_taps(self, n_updates: int) -> Tensor:
        (design,) = self._designed(Recipe(n_updates=n_updates), [self.golden_ear])  # no net under this one
        if isinstance(design, SynthesisError):
            raise design
        return torch.from_numpy(design.taps)

    def warm_up(self) -> None:
        """Run, and so record, whatever requests can ask for: for one ear and for both on a CPU, where a first call
        costs little more than any; for batches of every size on a GPU, where it captures graphs. Every update of a
        profile replays one record."""
        plain = Ear(self.golden_ear.primary, self.golden_ear.secondary)
        for size in BATCH_SIZES if self.device.type == "cuda" else (1, 2):
            for method in METHODS:
                self.design(Recipe(None, method), [self.golden_ear] * size)
            for profile in PROFILES:
                for method in ("prime", "ratio_base"):  # a CPU may make the first without any record
                    self.design(Recipe(None, method, 1, profile), [plain] * size)
        self.graph_bytes = sum(schedule.graph_bytes() for schedule in self._schedules.values())

    def tensor_bytes(self) -> int:
        """Memory of its weights and of its schedules' buffers, without a stage's intermediate results."""
        own = [*self._synthesizer.parameters(), *self._synthesizer.buffers()]
        # A copy of the list: the thread that designs may add a schedule while a scrape counts.
        return sum(each.nbytes for each in own) + sum(each.tensor_bytes() for each in [*self._schedules.values()])

    def design(self, recipe: Recipe, ears: Sequence[Ear]) -> list[Design | SynthesisError]:
        """Design all ears (1 to 32) as one batch, in order, with a net under the generator's.

        One ear's fault is its own: its place holds InvalidPaths where a path does not fit the design grid, or
        NonFiniteFilter where its filter or figures are not finite. The answers refer to no buffer of this model.
        """
        answers = self._designed(recipe, ears)
        if recipe.method == "prime":
            doubtful = [place for place, answer in enumerate(answers) if self.net.is_doubtful(answer)]
            if doubtful:
                self._compare(recipe, ears, answers, doubtful)
        return answers

    def _compare(
        self, recipe: Recipe, ears: Sequence[Ear], answers: list[Design | SynthesisError], doubtful: Sequence[int]
    ) -> None:
        """Design the doubtful ears with the rival too, and keep the better. The time is that of the whole batch."""
        rivals = self._designed(replace(recipe, method=RIVAL), [ears[place] for place in doubtful], goes_on=True)
        for place, rival in zip(doubtful, rivals, strict=True):
            answers[place] = self.net.better(answers[place], rival, ears[place].max_gain_db)
        _share(self._clock.times_ms(), answers)

    def _designed(
        self, recipe: Recipe, ears: Sequence[Ear], goes_on: bool = False
    ) -> list[Design | SynthesisError]:
        """What the recipe's own method makes of the ears. goes_on: its times add to those before."""
        answers: list[Design | SynthesisError] = []
        for part in self._parts(len(ears)):
            answers += self._designed_at_once(recipe, ears[part], goes_on or part.start > 0)
        _share(self._clock.times_ms(), answers)
        return answers

    def _parts(self, n_ears: int) -> Iterator[slice]:
        """Which ears go through the stages side by side: on a GPU all, for rows to spare cost no time there; on a
        CPU as many as fill a batch, the largest first, as `DesignTimes` reckons."""
        done = 0
        while done < n_ears:
            left = n_ears - done
            n = left if self.device.type == "cuda" else max(size for size in BATCH_SIZES if size <= left)
            yield slice(done, done + n)
            done += n

    def _designed_at_once(
        self, recipe: Recipe, ears: Sequence[Ear], goes_on: bool
    ) -> list[Design | SynthesisError]:
        schedule, faults = self._loaded(ears, goes_on)
        packed = schedule.design(recipe.method, recipe.n_updates, recipe.profile, self._clock)
        bases = _bases(ears)
        predicted = {basis: schedule.predict(basis, self._clock) for basis in set(bases)}
        refined, *hosted = schedule.on_host([packed, *predicted.values()])
        figures = _figures(dict(zip(predicted, hosted, strict=True)), bases)

        def answer(item: int) -> Design | SynthesisError:
            taps = refined[item, :N_TAPS]
            fault = faults.get(item) or _not_finite(taps, figures[item])
            return fault or Design(
                model=self.version,
                recipe=recipe,
                sign=ears[item].sign,
                taps=-taps if ears[item].sign == "plus" else taps,
                refinement=account(refined[item], recipe.n_updates),
                figures=Figures.of(figures[item], bases[item]),
                times_ms={},
            )

        return [answer(item) for item in range(len(ears))]

    def evaluate(self, ears: Sequence[Ear], filters: Sequence[Float32]) -> list[Evaluation | SynthesisError]:
        """Predict what filters that were brought along (float32 [2048] each, in their ear's sign) would do."""
        signed = [-taps if ear.sign == "plus" else taps for ear, taps in zip(ears, filters, strict=True)]
        answers: list[Evaluation | SynthesisError] = []
        for part in self._parts(len(ears)):
            answers += self._evaluated_at_once(ears[part], signed[part], part.start > 0)
        _share(self._clock.times_ms(), answers)
        return answers

    def _evaluated_at_once(
        self, ears: Sequence[Ear], filters: Sequence[Float32], goes_on: bool
    ) -> list[Evaluation | SynthesisError]:
        schedule, faults = self._loaded(ears, goes_on)
        schedule.taps[: len(ears)].copy_(torch.from_numpy(np.stack(filters)))
        bases = _bases(ears)
        predicted = {basis: schedule.predict(basis, self._clock) for basis in set(bases)}
        hosted = schedule.on_host([*predicted.values()])
        figures = _figures(dict(zip(predicted, hosted, strict=True)), bases)

        def answer(item: int) -> Evaluation | SynthesisError:
            fault = faults.get(item) or _not_finite(filters[item], figures[item])
            return fault or Evaluation(self.version, Figures.of(figures[item], bases[item]), times_ms={})

        return [answer(item) for item in range(len(ears))]

    def _loaded(self, ears: Sequence[Ear], goes_on: bool = False) -> tuple[Schedule, dict[int, SynthesisError]]:
        """A schedule of the right size with the ears in its buffers, and the ears that do not fit into them.

        The row of such an ear, and rows to spare, keep what they held: rows do not know of each other.
        """
        size = fitting_size(len(ears))
        if size not in self._schedules:
            self._schedules[size] = schedule_of(self._synthesizer, size)
        schedule = self._schedules[size]
        schedule.n_ears = len(ears)
        if not goes_on:
            self._clock.start()
        faults: dict[int, SynthesisError] = {}
        for row, ear in enumerate(ears):
            try:
                self._load(schedule, row, ear)
            except SynthesisError as error:
                faults[row] = error
        schedule.ears.upload()
        self._clock.mark("decode")
        return schedule, faults

    def _load(self, schedule: Schedule, row: int, ear: Ear) -> None:
        host = schedule.ears.host
        host.primary[row] = path_spectrum(ear.primary, "primary", self._transform)
        host.secondary[row] = path_spectrum(ear.secondary, "secondary", self._transform)
        host.max_gain_db[row] = ear.max_gain_db
        if ear.coherence is None:
            host.coherence[row] = 1.0
        else:
            host.coherence[row] = coherence_on_design_grid(ear.coherence)
        if ear.reference_psd is None:
            host.reference_psd[row] = self._reference_psd
        else:
            host.reference_psd[row] = psd_on_design_grid(ear.reference_psd)


@contextmanager
def _own_stream(device: torch.device) -> Iterator[None]:
    """On a GPU, a stream apart from the designs', all of its work done at the end."""
    if device.type != "cuda":
        yield
        return
    stream = torch.cuda.Stream(device)
    with torch.cuda.stream(stream):
        yield
    stream.synchronize()


def _share(times_ms: dict[str, float], answers: Sequence[Design | Evaluation | SynthesisError]) -> None:
    """Give each answer the times of the whole batch."""
    for answer in answers:
        if not isinstance(answer, SynthesisError):
            answer.times_ms.update(times_ms)


def _bases(ears: Sequence[Ear]) -> list[Basis]:
    return ["model" if ear.coherence is None else "coherence" for ear in ears]


def _figures(predicted: dict[Basis, Float32], bases: Sequence[Basis]) -> list[Float32]:
    """Each ear's row of the prediction that its basis asks for."""
    return [predicted[basis][item] for item, basis in enumerate(bases)]


def _not_finite(taps: Float32, figures: Float32) -> NonFiniteFilter | None:
    """No NaN leaves the service: paths may be finite and their squares not."""
    if np.isfinite(taps).all() and np.isfinite(figures).all():
        return None
    return NonFiniteFilter(
        "control filter: found taps or predicted figures that are NaN or infinite, expected paths whose spectra, "
        "and the spectra's squares times the reference spectrum, fit into float32"
    )
