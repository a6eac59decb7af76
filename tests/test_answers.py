"""Every field of every answer is named by HTTP, client, file and command, and no other is."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from click.testing import CliRunner

from prime_anc import answers, library
from prime_anc.cli.__main__ import main
from prime_anc.client import Client, DriveTake, Take, wire
from tests.oracles.measured import MeasuredEar
from tests.service.recordings import off_and_on

N = 2 * 48_000
SECTIONS = {"n_sections": 2, "number_format": "q5.26"}


def declared(hint: Any, name: str = "", is_optional: bool = False) -> Iterator[tuple[str, bool, str]]:
    """Yield the dotted names of a type's fields, whether an answer may lack them, and the field that declares them."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Annotated, Union, UnionType, list):
        yield from declared(arguments[0], name, is_optional or type(None) in arguments or origin is list)
    elif is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        for field in fields(hint):
            inner = f"{name}.{field.name}".lstrip(".")
            optional = is_optional or field.default is None
            owner = next(
                kind for kind in reversed(hint.__mro__) if field.name in vars(kind).get("__annotations__", ())
            )
            yield inner, optional, f"{owner.__name__}.{field.name}"
            yield from declared(hints[field.name], inner, optional)


def named(document: Any, name: str = "") -> Iterator[str]:
    """Yield the dotted names of a document's members; those of a curve are an option's."""
    if isinstance(document, Mapping) and "frequency_hz" not in document:
        for key, value in document.items():
            inner = f"{name}.{key}".lstrip(".")
            yield inner
            yield from named(value, inner)
    elif isinstance(document, list):
        for item in document:
            yield from named(item, name)


def documents(client: Client, ear: MeasuredEar) -> Iterator[tuple[type, dict[str, Any]]]:
    """Ask for answers that have, taken together, every field."""
    rng = np.random.default_rng(0)
    x, drive = 0.1 * rng.standard_normal((2, N))
    heard = {name: np.convolve(x, getattr(ear, name))[:N] for name in ("primary", "secondary")}
    noise = 1e-3 * rng.standard_normal(N)
    played = 0.01 * np.roll(drive, 30), np.convolve(drive, ear.secondary)[:N] + noise
    takes = [Take(0, x, heard["primary"] + noise), Take(0.35, x, heard["primary"] - 0.35 * heard["secondary"])]
    paths = {name: {"impulse_response": getattr(ear, name)} for name in ("primary", "secondary")}

    def ask(path: str, **body: Any) -> dict[str, Any]:
        return json.loads(client.ask(path, paths | body).content)

    driven, drowned = [*takes, DriveTake(drive, *played)], [take._replace(e=take.e + drive) for take in takes]
    for asked in ({"takes": wire.takes(driven), "model": "generic"}, {"takes": wire.takes(drowned)}):
        yield answers.CalibrationAnswer, json.loads(client.ask("/calibrate", asked).content)
    psd = {"reference_psd": np.full(16385, 1e-6, np.float32)}
    curve = {"frequency_hz": [100.0, 24_000.0]}
    limits = {"latency_samples": 0.5, "max_gain_db": curve | {"gain_db": [20.0, 25.0]}}
    limits |= {"risk_weight": 1.0, "band_weights": curve | {"weight": [1.0, 2.0]}}
    feedback = {"feedback": {"impulse_response": 0.01 * ear.secondary}}
    seatings = {"conditions": [paths | {"label": str(n)} for n in range(2)], "leave_one_out": True}
    for number_format in ("q5.12", "q5.27"):
        both = ask("/hybrid", k=1, controller={"n_sections": 4, "number_format": number_format}, **psd)
        yield answers.HybridAnswer, both
    controller = both["controller"]
    yield answers.DesignAnswer, ask("/refine", k=1, **psd, **limits, **feedback)
    yield answers.DesignAnswer, ask("/refine", k=1, controller=controller, max_louder_db=3.0)
    yield answers.DesignAnswer, json.loads(client.ask("/refine", seatings).content)
    yield answers.EvaluationAnswer, ask("/evaluate", fir=both["fir"], controller=controller)
    for target in (SECTIONS, {"form": "fir", "n_taps": 64, "number_format": "q1.23"}):
        beside = {"controller": controller} if target is SECTIONS else {}
        yield answers.ExportAnswer, ask("/export", fir=both["fir"], target=target, **beside)
    running = off_and_on(ear.primary, np.convolve(1.3 * ear.secondary, both["fir"]), N)
    yield answers.VerificationAnswer, ask("/verify", fir=both["fir"], takes=running)


def test_answers_have_their_fields(ears: list[MeasuredEar]) -> None:
    """And every field is in some answer, and passes client and file unchanged."""
    filled: set[str] = set()
    fields_of_answers: set[str] = set()
    for kind, document in documents(library.local(), ears[0]):
        names, known = set(named(document)), {name: about for name, *about in declared(kind)}
        assert not names - known.keys(), kind
        assert {name for name, (is_optional, _) in known.items() if not is_optional} <= names, kind
        filled |= {known[name][1] for name in names}
        fields_of_answers |= {field for _, field in known.values()}
        again = answers.document(answers.read(kind, document))
        assert set(named(again)) == names
        np.testing.assert_array_equal(again.get("fir", 0), np.float32(document.get("fir", 0)))
    # No controller runs in these recordings.
    assert fields_of_answers - filled == {"TrimAnswer.controller"}


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("calibrate off.wav on.wav --gain 0.35", answers.CalibrationAnswer),
        ("design ear.json -k 1", answers.DesignAnswer),
        ("evaluate filter.json ear.json", answers.EvaluationAnswer),
        ("export filter.json ear.json --sections 2", answers.ExportAnswer),
        ("hybrid ear.json -k 0 --controller-n-sections 4", answers.HybridAnswer),
    ],
)
def test_command_prints_answer(command: str, kind: type, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(main, [*command.split(), "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert {name for name, is_optional, _ in declared(kind) if not is_optional} <= set(named(document))
    answers.read(kind, document)
