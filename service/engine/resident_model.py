"""One model in memory: a backend that designs with it, its version, and the golden case that it must reproduce."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from model_store.checkpoint import Checkpoint
from model_store.store import ModelStore, ModelVersion
from service.engine.types import DesignAnswer, EvaluationAnswer, Replaced
from service.engine.wiener_fallback import WienerFallback, is_worth_designing, merit_db, rivals
from synthesis.backends import create_backend
from synthesis.errors import DeviceLost, Interrupted, SynthesisError
from synthesis.plausibility import Comparison, Finding, find_implausible
from synthesis.profiles import MAX_UPDATES
from synthesis.types import Backend, Complex64, Design, DesignOptions, Float32, Problem

logger = logging.getLogger(__name__)

Answers = list[DesignAnswer | SynthesisError]


class ResidentModel:
    """A checkpoint on its device. As safe to share between threads as its backend is.

    golden_input: the question of the golden case. scored_noise_reduction_db: what its designs scored on unseen
    listeners, dB, by number of updates; None where the manifest does not say. n_bytes: of its weights. is_sound:
    whether it passed its last check.
    """

    def __init__(
        self,
        version: ModelVersion,
        checkpoint: Checkpoint,
        device: str,
        fallback: WienerFallback,
    ) -> None:
        """Raises GoldenMismatch where the backend does not give the filters that were
        stored with the weights."""
        self.version = version
        self.manifest = checkpoint.manifest
        self.parameters = checkpoint.parameters
        self._device = device
        self.backend = self._new_backend()
        self.is_sound = True
        self._fallback = fallback
        self._golden = checkpoint.golden
        self.golden_input = self._golden.ear
        kind = str(self.manifest.generator.get("kind"))
        self.scored_noise_reduction_db = [
            self.manifest.scores.noise_reduction_db(kind, n_updates) for n_updates in range(MAX_UPDATES + 1)
        ]
        self.n_bytes = sum(each.nbytes for each in self.parameters.weights.values())
        self.check()

    @classmethod
    def load(
        cls,
        store: ModelStore,
        version: ModelVersion,
        device: str,
        fallback: WienerFallback,
    ) -> ResidentModel:
        """Read a version, verify its digests and check its golden case, in the caller's thread."""
        return cls(version, store.load(str(version)), device, fallback)

    def check(self) -> float:
        """Design the golden case without and with an update, without the fallback; return the seconds that took.

        Raises GoldenMismatch unless the stored filters come out, and the SynthesisError where none does.
        """
        began = perf_counter()
        self._golden.check(self.backend)
        return perf_counter() - began

    def recheck(self) -> float:
        """Check the model; where that fails, rebuild its backend and check again.

        A new backend shares nothing with the old one but the checkpoint's numbers, so that no earlier design can
        have spoilt it. Designs that are running finish on the old one.

        Returns
        -------
        float
            Seconds that the check which passed took.

        Raises
        ------
        Exception
            What `check` raises with the new backend; `is_sound` is False then. DeviceLost and MemoryError at once,
            since they say nothing about the filters.
        """
        try:
            spent_s = self.check()
        except (DeviceLost, MemoryError):
            raise
        except Exception as error:
            self.is_sound = False
            logger.error("Model %s fails its golden case; its backend is rebuilt: %s", self.version, error)
            self.backend = self._new_backend()
            spent_s = self.check()
        self.is_sound = True
        return spent_s

    def _new_backend(self) -> Backend:
        return create_backend(self._device, self.parameters)

    def design(self, inputs: Sequence[Problem], options: DesignOptions) -> Answers:
        """Design all ears as one batch, in order; doubtful filters of the generator are compared with Wiener
        filters.

        One ear's fault is its own: its place holds the SynthesisError. times_ms are of the whole batch, with the
        second design where there was one.
        """
        return [
            each
            if isinstance(each, SynthesisError)
            else replace(each, implausible=self._implausible(ear, each.design.comparison))
            for each, ear in zip(self._designed(inputs, options), inputs, strict=True)
        ]

    def _designed(self, inputs: Sequence[Problem], options: DesignOptions) -> Answers:
        with_wmmse = options.method == "prime" and self._fallback.below_db == math.inf
        designs = self.backend.design(inputs, replace(options, with_wmmse=with_wmmse))
        answers = [self._answer(each, options.method, options) for each in designs]
        if options.method != "prime":
            return answers
        doubtful = [place for place, each in enumerate(designs) if self._fallback.is_doubtful(each)]
        if not doubtful:
            return answers
        times_ms = _times_ms(designs)
        best: dict[int, Design] = {}
        methods: dict[int, str] = {}
        for method, n_updates in rivals(options.n_updates):
            places = [
                place
                for place in doubtful
                if is_worth_designing(method, n_updates, inputs[place], designs[place], best.get(place))
            ]
            if not places:
                continue
            wiener_options = replace(options, method=method, n_updates=n_updates)
            found = self.backend.design([inputs[place] for place in places], wiener_options)
            for place, rival in zip(places, found, strict=True):
                if isinstance(rival, Interrupted):
                    raise rival
                if isinstance(rival, SynthesisError):
                    continue
                ear, own = inputs[place], designs[place]
                if place not in best or merit_db(ear, rival, own) > merit_db(ear, best[place], own):
                    best[place], methods[place] = rival, method
            for name, spent in _times_ms(found).items():
                times_ms[name] = times_ms.get(name, 0.0) + spent
        for place, wiener in best.items():
            reason = self._fallback.reason_to_replace(inputs[place], designs[place], wiener)
            if reason is not None:
                answers[place] = self._answer(wiener, methods[place], options, reason)
        for answer in answers:
            if isinstance(answer, DesignAnswer):
                answer.design.times_ms.update(times_ms)
        return answers

    def evaluate(
        self, ears: Sequence[tuple[Problem, Float32 | Complex64]], options: None = None
    ) -> list[EvaluationAnswer | SynthesisError]:
        """Predict the effect of given filters, each as of `Backend.predict`, on estimated paths; options is not
        used."""
        began = perf_counter()
        predictions = self.backend.predict([ear for ear, _ in ears], [taps for _, taps in ears])
        spent_ms = 1e3 * (perf_counter() - began)
        return [
            each
            if isinstance(each, SynthesisError)
            else EvaluationAnswer(self.version, each, {"predict": spent_ms}, self._implausible(ear))
            for each, (ear, _) in zip(predictions, ears, strict=True)
        ]

    def _implausible(self, ear: Problem, comparison: Comparison | None = None) -> tuple[Finding, ...]:
        """Of each condition, with its name where there are several. comparison: of the only one, if it is known."""
        found = []
        for number, condition in enumerate(ear.conditions):
            label = condition.label and f" ({condition.label})"
            name = f"conditions.{number}{label}: " if len(ear.conditions) > 1 else ""
            paths = condition.primary, condition.secondary, condition.feedback
            for each in find_implausible(self.parameters.support, *paths, comparison=comparison):
                found.append(replace(each, detail=name + each.detail))
        return tuple(found)

    def _answer(
        self,
        design: Design | SynthesisError,
        method: str,
        options: DesignOptions,
        replaced_because: Replaced | None = None,
    ) -> DesignAnswer | SynthesisError:
        if isinstance(design, SynthesisError):
            return design
        own = replace(design, times_ms=dict(design.times_ms))  # the backend's may be shared by the batch
        return DesignAnswer(self.version, method, options.n_updates, own, replaced_because)


def _times_ms(designs: Sequence[Design | SynthesisError]) -> dict[str, float]:
    """Of a batch: those of any of its designs."""
    return next((dict(each.times_ms) for each in designs if isinstance(each, Design)), {})
