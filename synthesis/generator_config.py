"""All that is needed to rebuild a generator beside its weights."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from synthesis.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from synthesis.errors import InvalidOption

Base = Literal["full_band", "held_band"]

NEPER_PER_DB = math.log(10) / 20

# Lowest start of the log-spaced grid: below the spacing of the design grid's bins, of which none is left out.
MIN_LOW_HZ = 1.0

# Channels that a generator reads (`synthesis.start.features.CHANNELS`).
N_FEATURES = 12

Realisation = Literal["minimum_phase", "fir_wiener"]
# Quantity that a generator corrects: log A_base, or the log weight and log penalty of a finite Wiener filter.
N_OUTPUTS = {"minimum_phase": 1, "fir_wiener": 2}


@dataclass(frozen=True)
class GeneratorConfig:
    """All that is needed to rebuild a generator beside its weights.

    realisation: how taps are made of a correction. n_fft: points of the Fourier grid that the paths are read on.
    bound_db: largest correction, either way. head_norm: a group norm inside the head (the paper's layout has one).
    n_points, low_hz, high_hz: the log-spaced grid of `prime-log`, unused by `prime`.
    """

    kind: Literal["prime", "prime-log"] = "prime-log"
    realisation: Realisation = "fir_wiener"
    n_fft: int = DESIGN_N_FFT
    base: Base = "held_band"
    bound_db: float = 40.0
    n_channels: int = 40
    kernel_size: int = 9
    dilations: tuple[int, ...] = (1, 2, 4, 8, 16)
    n_groups: int = 8
    head_norm: bool = False
    n_points: int = 128
    low_hz: float = 20.0
    high_hz: float = 24_000.0

    def __post_init__(self) -> None:
        """Raise InvalidOption for a value that no generator can be built from."""
        checks = {
            "kind": self.kind in ("prime", "prime-log"),
            "realisation": self.realisation in N_OUTPUTS,
            "base": self.base in ("full_band", "held_band"),
            "n_fft": 4096 <= self.n_fft <= DESIGN_N_FFT and self.n_fft & (self.n_fft - 1) == 0,
            "bound_db": 0.1 <= self.bound_db <= 120,
            "n_groups": 0 < self.n_groups <= 1024,
            "n_channels": 0 < self.n_channels <= 1024 and self.n_channels % max(self.n_groups, 1) == 0,
            "kernel_size": 0 < self.kernel_size <= 99 and self.kernel_size % 2 == 1,
            "dilations": 0 < len(self.dilations) <= 32 and all(0 < d <= 1024 for d in self.dilations),
            "n_points": 8 <= self.n_points <= 4096,
            "low_hz": MIN_LOW_HZ <= self.low_hz <= self.high_hz / 2,
            "high_hz": self.high_hz <= SAMPLE_RATE_HZ / 2,
        }
        for name, holds in checks.items():
            if not holds:
                raise InvalidOption(f"generator {name}: {reprlib.repr(getattr(self, name))} is out of range", name)

    @classmethod
    def prime(cls, n_fft: int = DESIGN_N_FFT) -> GeneratorConfig:
        """The paper's generator: full linear grid, full-band base, +-12 dB, 151,401 parameters."""
        return cls(
            kind="prime",
            realisation="minimum_phase",
            n_fft=n_fft,
            base="full_band",
            bound_db=12.0,
            head_norm=True,
        )

    @classmethod
    def prime_log(cls, **changes: Any) -> GeneratorConfig:
        """Return this project's generator: 64 log-spaced frequencies, 24 channels, finite Wiener filter, +-40 dB.

        On two splits 128 points and 40 channels were better by 0.06 dB before updates and no better after one, at
        six times the arithmetic.
        """
        layout: dict[str, Any] = {"kind": "prime-log", "n_fft": 8192, "n_channels": 24, "n_points": 64}
        return cls(**layout | changes)

    @property
    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return shapes of the generator's weights by their names in the torch module's state dict, in its order."""
        width, kernel = self.n_channels, self.kernel_size
        shapes: dict[str, tuple[int, ...]] = {}

        def add(name: str, *weight: int) -> None:
            """Add a layer: its weight, and a bias per output."""
            shapes[f"{name}.weight"] = weight
            shapes[f"{name}.bias"] = weight[:1]

        add("stem.0", width, N_FEATURES, kernel)
        add("stem.1", width)
        for block in range(len(self.dilations)):
            for half in ("first", "second"):
                add(f"blocks.{block}.{half}", width, width, kernel)
                add(f"blocks.{block}.{half}_norm", width)
        add("head.0", width, width, 1)
        if self.head_norm:
            add("head.1", width)
        add("head.3" if self.head_norm else "head.2", N_OUTPUTS[self.realisation], width, 1)
        return shapes

    @property
    def n_parameters(self) -> int:
        """Count the trained numbers: 151,401 in the paper's layout."""
        return sum(math.prod(shape) for shape in self.weight_shapes.values())

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"dilations": list(self.dilations)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GeneratorConfig:
        """Rebuild from `to_dict`'s values; InvalidOption names a field that is unknown, missing or mistyped."""
        values = {"realisation": "minimum_phase", **values}  # the only one when checkpoints did not yet name it
        known: dict[str, type] = {field.name: type(field.default) for field in fields(cls)}
        if set(values) != set(known):
            raise InvalidOption(
                f"generator configuration: {reprlib.repr(sorted(set(values) - set(known)))} are unknown and "
                f"{sorted(set(known) - set(values))} missing; give exactly {sorted(known)}"
            )
        read: dict[str, Any] = {}
        for name, expected in known.items():
            value: Any = tuple(values[name]) if isinstance(values[name], list) else values[name]
            if expected is float and type(value) is int:
                value = float(value)
            mistyped = type(value) is not expected
            if mistyped or (isinstance(value, tuple) and {type(item) for item in value} != {int}):
                raise InvalidOption(f"generator {name}: {reprlib.repr(value)} is no {expected.__name__}", name)
            read[name] = value
        return cls(**read)
