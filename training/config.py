"""Training configuration: `configs/base.toml`, overlaid by the generator's own file and the command line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

GeneratorKind = Literal["prime", "prime-log"]


class ObjectiveConfig(BaseModel):
    """Weights of the training objective (Eq. 6); see `training/objective.py`.

    risk_bands: the 23 scored ones, or all 31. risk_margin_db, outer_margin_db: reduction below which a scored
    band, or one beyond them, counts as a risk; the paper's is 0, amplification itself.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    domain: Literal["time", "frequency"]
    risk_bands: Literal["scored", "wide"]
    risk_weight: float = Field(ge=0)
    risk_margin_db: float = Field(ge=0)
    outer_margin_db: float = Field(ge=0)
    gain_limit_db: float
    gain_weight: float = Field(ge=0)
    correction_weight: float = Field(ge=0)
    smoothness_weight: float = Field(ge=0)


class TrainingConfig(BaseModel):
    """All that decides a model besides its data, split and seed.

    calibration: `paper` regularises estimates by `regularisation`, `prior` makes them under the prior of the
    support's other listeners.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    window: int = Field(ge=256, le=65_536, multiple_of=2)
    regularisation: float = Field(ge=0, le=1)
    calibration: Literal["paper", "prior"] = "paper"
    conditions: Literal["original", "all"]
    n_calibrations: int = Field(ge=1, le=64)
    interpolation: bool
    mixture_probability: float = Field(ge=0, le=1)
    alpha_range: tuple[float, float]
    n_updates: int = Field(ge=1)
    batch_size: int = Field(ge=1, le=256)
    learning_rate: float = Field(gt=0)
    schedule: Literal["constant", "one-cycle"]
    weight_decay: float = Field(ge=0)
    precision: Literal["float32", "bfloat16"]
    objective: ObjectiveConfig


def load_config(generator: GeneratorKind, **changes: Any) -> TrainingConfig:
    """The configuration of a generator; `changes` that are not None replace single values.

    Raises pydantic.ValidationError for a value that is unknown or out of range.
    """
    folder = files("training") / "configs"
    values = tomllib.loads((folder / "base.toml").read_text())
    overlay(values, tomllib.loads((folder / f"{generator}.toml").read_text()))
    overlay(values, {name: value for name, value in changes.items() if value is not None})
    return TrainingConfig.model_validate(values)


def overlay(values: dict[str, Any], changes: Mapping[str, Any]) -> None:
    """Replace values in place, table by table."""
    for name, value in changes.items():
        if isinstance(value, Mapping) and isinstance(values.get(name), dict):
            overlay(values[name], value)
        else:
            values[name] = value
