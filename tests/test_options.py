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
PATHS = ("primary", "secondary", "feedback")
FEEDBACK = np.float32(0.7) * np.eye(1, 40, 4, dtype=np.float32)[0]
CONDITIONS = tuple(
    Paths(*(response[:200] for response in models.responses(seed)), feedback=FEEDBACK, label=f"ear{seed}")
    for seed in (7, 8)
)
LISTS = [
    {name: {"impulse_response": getattr(condition, name).tolist()} for name in PATHS} for condition in CONDITIONS
]
BODY = {"sample_rate": 48_000, "conditions": LISTS}


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
        return len(self.left_out_db) == len(other.left_out_db) and bool(
            np.allclose(self.taps, other.taps, atol=1e-5 * np.abs(other.taps).max())
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

    plain = called()
    return lambda **chosen: called(**chosen) if chosen else plain


def found(answer: dict[str, Any]) -> Found:
    """Read an answer in JSON."""
    name = "left_out_noise_reduction_db"
    return Found(answer["fir"], [item[name] for item in answer["prediction"]["conditions"] if name in item])


class Ways:
    """A running service, and its interfaces for a request with one option."""

    def __init__(self, address: str, folder: Path) -> None:
        self.address, self.folder = address, folder
        for condition in CONDITIONS:
            arrays = {name: getattr(condition, name) for name in PATHS}
            np.savez(folder / f"{condition.label}.npz", sample_rate=48_000, **arrays)

    def json(self, options: dict[str, Any]) -> httpx.Response:
        """Send options as members of a JSON body."""
        return httpx.post(f"{self.address}/refine", json=BODY | options, timeout=60)

    def query(self, options: dict[str, Any]) -> httpx.Response:
        """Send options in the query string."""
        texts = {name: as_text(value) for name, value in options.items()}
        return httpx.post(f"{self.address}/refine", params=texts, json=BODY, timeout=60)

    def client(self, options: dict[str, Any]) -> Found:
        """Give options to the Python client."""
        conditions = [
            Condition(*(getattr(item, name) for name in PATHS[:2]), feedback=FEEDBACK) for item in CONDITIONS
        ]
        with Client(self.address, timeout_s=60) as client:
            made = client.refine(conditions, **options)
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

    def hybrid(self, wishes: dict[str, Any]) -> tuple[httpx.Response, Result]:
        """Give options of a controller in JSON, and to the command."""
        body = LISTS[0] | {"sample_rate": 48_000, "k": 0, "controller": wishes}
        flags = [f"--controller-{name.replace('_', '-')}={value}" for name, value in wishes.items()]
        ear = str(self.folder / f"{CONDITIONS[0].label}.npz")
        result = CliRunner().invoke(main, ["hybrid", ear, "-k0", *flags, "--url", self.address, "--json"])
        return httpx.post(f"{self.address}/hybrid", json=body, timeout=60), result


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
    answer = ways.json(options)
    assert answer.status_code == 200, answer.text[:300]
    assert found(answer.json()).equals(expected)
    result = ways.command(options)
    assert result.exit_code == 0, result.output
    assert found(json.loads(result.stdout)).equals(expected)


def test_query_and_client_take_options_of_body(ways: Ways) -> None:
    """All options that have an effect beside one another, and each other one alone."""
    together = {name: values(name)[0] for name in OPTIONS if name not in ("exact", "leave_one_out")}
    for options in (together, {"leave_one_out": True, "exact": True}):
        expected = found(ways.json(options).json())
        answer = ways.query(options)
        assert answer.status_code == 200, answer.text[:300]
        assert found(answer.json()).equals(expected)
        assert ways.client(options).equals(expected)


@pytest.mark.parametrize("name", OPTIONS)
def test_unusable_option_is_named(ways: Ways, name: str) -> None:
    options = {name: values(name)[1]}
    answer = ways.json(options)
    assert (400 <= answer.status_code < 500, answer.json()["field"]) == (True, name)
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


def test_controller_options_reach_method(ways: Ways, store_folder: Path) -> None:
    assert WISHES.keys() == controller_schemas().keys()
    model = Model.on("cpu", ModelStore(store_folder, include_bundled=False).load("ears").parameters)
    made = design_hybrid(Problem(CONDITIONS[:1]), DesignOptions(), model, ControllerFields(**WISHES))
    sent, result = ways.hybrid(WISHES)
    assert result.exit_code == 0, result.output
    for answer in (sent.json(), json.loads(result.stdout)):
        found = answer["controller"]
        np.testing.assert_allclose(found["sos"], made.controller.sections.rows, rtol=1e-6)
        assert (found["latency_us"], found["number_format"]) == (pytest.approx(12.5), "q5.27")


@pytest.mark.parametrize("name", sorted(WISHES))
def test_unusable_controller_option_is_named(ways: Ways, name: str) -> None:
    schema = controller_schemas()[name]
    wishes = {name: schema["maximum"] + 1 if "maximum" in schema else "nonesuch"}
    sent, result = ways.hybrid(wishes)
    assert sent.json()["field"] == f"controller.{name}"
    assert result.exit_code in (1, 2)
    assert name in result.output.replace("-", "_")
