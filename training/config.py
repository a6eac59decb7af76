"""Configuration of an experiment, filled from the command line.

`Configuration` selects what runs on which data. `TrainingConfig` is the training of a generator: `configs/base.toml`,
overlaid by the generator's file and the command line.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt

from model_store.manifest import Frozen
from training.datasets.path_pairs import DatasetKind

GeneratorKind = Literal["prime", "prime-log"]
Calibration = Literal["paper", "prior"]
Conditions = Literal["original", "all"]

QUICK_UPDATES = {"prime": 12, "prime-log": 120}
QUICK_CALIBRATIONS = 2


class ObjectiveConfig(Frozen):
    """Weights of the training objective (Eq. 6); see `training/objective.py`."""

    domain: Literal["time", "frequency"]
    # The 23 scored bands, or all 31.
    risk_bands: Literal["scored", "wide"]
    risk_weight: float = Field(ge=0)
    # Noise reduction below which a scored band is a risk; 0 in the paper.
    risk_margin_db: float = Field(ge=0)
    # The same for the other bands.
    outer_margin_db: float = Field(ge=0)
    gain_limit_db: float
    gain_weight: float = Field(ge=0)
    correction_weight: float = Field(ge=0)
    smoothness_weight: float = Field(ge=0)


class TrainingConfig(Frozen):
    """Everything that determines a model besides its data, split and seed."""

    window: int = Field(ge=256, le=65_536, multiple_of=2)
    # `paper`: regularised estimates; `prior`: estimates under the prior of the support's other listeners.
    calibration: Calibration = "paper"
    conditions: Conditions
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


class Configuration(Frozen):
    """An experiment. Field names are those of the command line."""

    dataset: DatasetKind
    out: Path = Field(description="folder for the rows, tables and figures of this run")
    data: Path | None = Field(
        None,
        description="folder of the data set (PANDAR: any folder that contains the database; index: the folder of "
        "index.csv, or a table of another name)",
    )
    noise: Path | None = Field(
        None, description="folder of noise recordings at 48 kHz, or of DEMAND (default: simulated noises)"
    )
    methods: str = Field(description="methods and groups of methods, comma-separated: {methods}")
    generator: GeneratorKind = Field("prime-log", description="also sets the default window and conditions")
    protocol: Literal["by-person", "by-recording"] = Field(
        "by-person",
        description="what is held out: listeners (the paper's), or listeners and half of the recordings",
    )
    splits: PositiveInt = Field(description="default: 10, or 1 with --quick")
    seeds: PositiveInt = Field(description="default: 3, or 1 with --quick")
    split: NonNegativeInt | None = Field(None, description="run only this split, counted from 0")
    support: PositiveInt | None = Field(None, description="number of support listeners (default: as in the paper)")
    updates: PositiveInt | None = Field(
        None, description="training updates of every trained method (default: as configured)"
    )
    window: int = Field(description="calibration window in samples")
    calibration: Calibration = Field(
        description="regularised as in the paper, or under the prior of the support's listeners (default: paper, "
        "or prior by recording)"
    )
    conditions: Conditions = Field(
        description="original measurements only, or also the three variants of the secondary path"
    )
    store: Path | None = Field(None, description="model store to publish trained models in (default: none)")
    workers: PositiveInt = Field(1, description="processes, which share the cores of this machine")
    device: Literal["auto", "cpu", "cuda"] = "auto"
    quick: bool = Field(False, description="few updates, six simulated listeners, two held out: half a minute")

    @classmethod
    def load(cls, given: Mapping[str, Any]) -> Self:
        """Complete the given values with defaults, of which some depend on other values.

        Parameters
        ----------
        given
            Values by field; None stands for the default.

        Raises
        ------
        pydantic.ValidationError
            A value is unknown or out of range, also one of a generator's training.
        """
        values = {name: value for name, value in given.items() if value is not None}
        quick, generator = values.get("quick", False), values.get("generator", "prime-log")
        config = load_config(generator, window=values.get("window"), n_updates=values.get("updates"))
        defaults = {
            "methods": f"standard,{generator}",
            "splits": 1 if quick else 10,
            "seeds": 1 if quick else 3,
            "window": config.window,
            "calibration": "prior" if values.get("protocol") == "by-recording" else "paper",
            "conditions": "original" if quick else config.conditions,
        }
        return cls.model_validate(defaults | values)

    @property
    def shares_estimates(self) -> bool:
        """Return whether an ear's estimates are the same in every split."""
        return self.protocol == "by-person" and self.calibration == "paper"

    def training(self, generator: GeneratorKind, **changes: Any) -> TrainingConfig:
        """Return the training of a generator in this experiment; `changes` as for `load_config`."""
        config = {
            "window": self.window,
            "calibration": self.calibration,
            "n_updates": self.updates or (QUICK_UPDATES[generator] if self.quick else None),
            "n_calibrations": QUICK_CALIBRATIONS if self.quick else None,
            "conditions": "original" if self.conditions == "original" else None,
        }
        return load_config(generator, **config | changes)


def load_config(generator: GeneratorKind, **changes: Any) -> TrainingConfig:
    """Read the training configuration of a generator; `changes` that are not None replace single values.

    Raises
    ------
    pydantic.ValidationError
        A value is unknown or out of range.
    """
    folder = files("training") / "configs"
    base, own = (tomllib.loads((folder / f"{name}.toml").read_text()) for name in ("base", generator))
    given = {name: value for name, value in changes.items() if value is not None}
    weights = base["objective"] | own.get("objective", {})
    return TrainingConfig.model_validate(base | own | {"objective": weights} | given)
