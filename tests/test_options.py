"""Every declared option reaches the core from every interface, which all reject values out of range."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest
from click.testing import CliRunner, Result

from model_store.store import ModelStore
from prime_anc.answers import document
from prime_anc.cli.__main__ import main
from prime_anc.client import Client, Condition
from prime_anc.hardware.hybrid import design_hybrid
from prime_anc.method.design import design
from prime_anc.method.types import Design, DesignOptions, Fallback, Model, Paths, Problem
from prime_anc.options import (
    DEFAULTS,
    ControllerFields,
    DesignFields,
    ProblemFields,
    controller_schemas,
    curve_kinds,
    option_schemas,
)
from tests.service import models
from tests.service.conftest import program, store_folder
from tests.service.program import Program

__all__ = ["program", "store_folder"]

OPTIONS = sorted(option_schemas())
# A valid and an invalid value of options whose schema gives none.
VALUES = {
    "model": ("other", "nobody"),
    "max_gain_db": (-10.0, 61.0),
    "band_weights": (
        {"frequency_hz": [200.0, 215.0], "weight": [10.0, 0.0]},
        {"frequency_hz": [20.0, 200.0], "weight": [1.0, 11.0]},
    ),
    "leave_one_out": (True, "often"),
    "exact": (True, "often"),
}
# Options needed for another to have an effect: a filter below this gain margin has no phase margin to keep.
# What is known of the paths changes predictions alone, of which only those of left-out conditions are compared.
BESIDE: dict[str, dict[str, Any]] = {
    "min_phase_margin_deg": {"min_gain_margin_db": 0.5},
    "exact": {"leave_one_out": True},
    "snr_db": {"leave_one_out": True},
}
FEEDBACK = np.float32(0.7) * np.eye(1, 40, 4, dtype=np.float32)[0]
CONDITIONS = tuple(
    Paths(*(response[:200] for response in models.responses(seed)), feedback=FEEDBACK, label=f"ear{seed}")
    for seed in (7, 8)
)


def values(name: str) -> tuple[Any, Any]:
    """Return a value of an option that is not its default, and an invalid one."""
    schema = option_schemas()[name]
    if name in VALUES:
        return VALUES[name]
    if "enum" in schema:
        return next(item for item in reversed(schema["enum"]) if item != schema["default"]), "nonesuch"
    if schema["type"] == "integer":
        return schema["minimum"], schema["maximum"] + 1
    least = schema["minimum"] if schema["default"] is None else schema["default"]
    return least + (schema["maximum"] - least) / 8, schema["maximum"] + 1


def as_text(value: Any) -> str:
    """Write an option for a query string."""
    if isinstance(value, dict):
        return ",".join(f"{hz:g}:{item:g}" for hz, item in zip(*value.values(), strict=True))
    return "true" if value is True else str(value)


class Found(NamedTuple):
    """Answer of one interface: taps, and the noise reduction of filters for the other condition."""

    taps: Any
    left_out_db: list[float]

    def equals(self, other: "Found") -> bool:
        """Return whether both are equal up to rounding."""
        if len(self.left_out_db) != len(other.left_out_db):
            return False
        scale = np.abs(other.taps).max()
        return bool(
            np.allclose(self.taps, other.taps, atol=1e-5 * scale)
            and np.allclose(self.left_out_db, other.left_out_db, rtol=0, atol=3e-4)
        )


@pytest.fixture(scope="module")
def core(store_folder: Path) -> Any:
    """The core, called with one option."""

    def called(**chosen: Any) -> Found:
        kinds = curve_kinds()
        chosen = {name: kinds[name](**item) if isinstance(item, dict) else item for name, item in chosen.items()}
        options = {field.name: getattr(DEFAULTS, field.name) for field in fields(DesignFields)} | chosen
        version = ModelStore(store_folder, include_bundled=False).load(options["model"] or "ears")
        problem = Problem(CONDITIONS, **{field.name: options[field.name] for field in fields(ProblemFields)})
        how = DesignOptions(options["method"], options["k"], options["profile"], options["leave_one_out"], 2, 2)
        made: Design = design(problem, how, Model.on("cpu", version.parameters), Fallback())
        left_out = [condition.left_out for condition in made.prediction.conditions]
        sign = -1 if options["sign"] == "plus" else 1
        return Found(sign * made.taps, [item.mean_noise_reduction_db for item in left_out if item is not None])

    return called


def found(answer: dict[str, Any]) -> Found:
    """Read an answer in JSON."""
    name = "left_out_noise_reduction_db"
    return Found(answer["fir"], [item[name] for item in answer["prediction"]["conditions"] if name in item])


class Ways:
    """A running service, and its interfaces for a request with one option."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address, self.folder = address, folder
        for condition in CONDITIONS:
            arrays = {
                "primary": condition.primary,
                "secondary": condition.secondary,
                "feedback": condition.feedback,
            }
            np.savez(folder / f"{condition.label}.npz", sample_rate=48_000, **arrays)

    def json(self, options: dict[str, Any]) -> httpx.Response:
        """Send options as members of a JSON body."""
        return httpx.post(f"{self.address}/refine", json=_body() | options, timeout=60)

    def query(self, options: dict[str, Any]) -> httpx.Response:
        """Send options in the query string."""
        texts = {name: as_text(value) for name, value in options.items()}
        return httpx.post(f"{self.address}/refine", params=texts, json=_body(), timeout=60)

    def client(self, options: dict[str, Any]) -> Found:
        """Give options to the Python client."""
        conditions = [
            Condition(condition.primary, condition.secondary, feedback=condition.feedback, label=condition.label)
            for condition in CONDITIONS
        ]
        with Client(self.address, timeout_s=60) as client:
            made = client.refine_conditions(conditions, **options)
        left_out = [condition.left_out_noise_reduction_db for condition in made.prediction.conditions or ()]
        return Found(made.taps, [item for item in left_out if item is not None])

    def command(self, options: dict[str, Any]) -> Result:
        """Give options to the command."""
        given = []
        for name, value in options.items():
            if isinstance(value, dict):
                file = self.folder / f"{name}.csv"
                np.savetxt(file, np.transpose(list(value.values())), delimiter=",")
                value = file
            flag = f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
            given.append(f"-k{value}" if name == "k" else flag)
        ears = [str(self.folder / f"{condition.label}.npz") for condition in CONDITIONS]
        return CliRunner().invoke(main, ["design", *ears, *given, "--url", self.address, "--json"])


def _body() -> dict[str, Any]:
    names = ("primary", "secondary", "feedback")
    conditions = [
        {name: {"impulse_response": getattr(condition, name).tolist()} for name in names}
        for condition in CONDITIONS
    ]
    return {"sample_rate": 48_000, "conditions": conditions}


@pytest.fixture(scope="module")
def ways(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Ways:
    """All interfaces of one running service."""
    return Ways(program.address, tmp_path_factory.mktemp("ears"))


@pytest.mark.parametrize("name", OPTIONS)
def test_option_reaches_core(ways: Ways, core: Any, name: str) -> None:
    beside = BESIDE.get(name, {})
    options = beside | {name: values(name)[0]}
    expected = core(**options)
    assert not expected.equals(core(**beside))
    for way in (ways.json, ways.query):
        answer = way(options)
        assert answer.status_code == 200, (way.__name__, answer.text[:300])
        assert found(answer.json()).equals(expected), way.__name__
    assert ways.client(options).equals(expected)
    result = ways.command(options)
    assert result.exit_code == 0, result.output
    assert found(json.loads(result.stdout)).equals(expected)


@pytest.mark.parametrize("name", OPTIONS)
def test_unusable_option_is_named(ways: Ways, name: str) -> None:
    options = {name: values(name)[1]}
    for way in (ways.json, ways.query):
        answer = way(options)
        assert (400 <= answer.status_code < 500, answer.json()["field"]) == (True, name), way.__name__
    result = ways.command(options)
    assert result.exit_code in (1, 2)
    assert name in result.output.replace("-", "_")


# One value of every option of a controller, which is not its default.
WISHES: dict[str, Any] = {
    "n_sections": 2,
    "sample_rate": 96_000.0,
    "latency_us": 12.5,
    "number_format": "q5.27",
    "max_gain_db": 10.0,
    "max_sensitivity_db": 4.0,
    "min_gain_margin_db": 8.0,
    "min_phase_margin_deg": 40.0,
}


def hybrid_ways(ways: Ways) -> Any:
    """Return JSON, client and command, each a function of the controller's options."""
    first, *_ = CONDITIONS
    paths = {"primary": first.primary, "secondary": first.secondary}
    body = {"sample_rate": 48_000, "k": 0}
    lists = {name: {"impulse_response": values.tolist()} for name, values in paths.items()}

    def client(wishes: dict[str, Any]) -> Any:
        with Client(ways.address, timeout_s=60) as service:
            return service.hybrid(**paths, controller=wishes, k=0).controller

    def command(wishes: dict[str, Any]) -> Result:
        np.savez(ways.folder / "alone.npz", sample_rate=48_000, **paths)
        flags = [f"--controller-{name.replace('_', '-')}={value}" for name, value in wishes.items()]
        arguments = ["hybrid", str(ways.folder / "alone.npz"), "-k0", *flags, "--url", ways.address, "--json"]
        return CliRunner().invoke(main, arguments)

    def sent(wishes: dict[str, Any]) -> httpx.Response:
        return httpx.post(f"{ways.address}/hybrid", json=body | lists | {"controller": wishes}, timeout=60)

    return sent, client, command


def test_controller_options_reach_method(ways: Ways, store_folder: Path) -> None:
    assert WISHES.keys() == controller_schemas().keys()
    first, *_ = CONDITIONS
    version = ModelStore(store_folder, include_bundled=False).load("ears")
    made = design_hybrid(
        Problem((Paths(first.primary, first.secondary),)),
        DesignOptions(),
        Model.on("cpu", version.parameters),
        ControllerFields(**WISHES),
    )
    sent, client, command = hybrid_ways(ways)
    result = command(WISHES)
    assert result.exit_code == 0, result.output
    answers = [sent(WISHES).json(), json.loads(result.stdout)]
    for found in (*(answer["controller"] for answer in answers), document(client(WISHES))):
        np.testing.assert_allclose(found["sos"], made.controller.sections.rows, rtol=1e-6)
        assert (found["latency_us"], found["number_format"]) == (pytest.approx(12.5), "q5.27")


@pytest.mark.parametrize("name", sorted(WISHES))
def test_unusable_controller_option_is_named(ways: Ways, name: str) -> None:
    schema = controller_schemas()[name]
    wishes = {name: schema["maximum"] + 1 if "maximum" in schema else "nonesuch"}
    sent, _, command = hybrid_ways(ways)
    assert sent(wishes).json()["field"] == f"controller.{name}"
    result = command(wishes)
    assert result.exit_code in (1, 2)
    assert name in result.output.replace("-", "_")
