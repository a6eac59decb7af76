"""What the generator reads, theory (2), (3); paper, 2.2: path ratio, magnitude base, channels; and its layout."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from prime_anc.method.arrays import Array, array_namespace, floored_log, minimum_phase_response, squared_magnitude
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.errors import InvalidOption

# eps over the largest |S|.
RATIO_REGULARISATION = 1e-4

# Outside these the held-band base keeps the value at the edge. Beyond the scored bands the ratio is large and steep
# (on measured earphones 33 dB more at 0 Hz than at 25 Hz), and its minimum-phase response longer than 2048 taps.
HELD_LOW_HZ, HELD_HIGH_HZ = 25.0, 9000.0

CHANNELS = (
    "log_ratio",
    "frequency",
    "ratio_re",
    "ratio_im",
    "mismatch_re",
    "mismatch_im",
    "log_primary",
    "log_secondary",
    "primary_re",
    "primary_im",
    "secondary_re",
    "secondary_im",
)
N_CHANNELS = len(CHANNELS)

# Over a path's largest magnitude: audible bins below it have a phase that fades with their magnitude, which float32
# transforms hardly resolve.
PHASE_FLOOR = 1e-5
# Converters' filters leave nothing above, and the generator is trained with what rounding makes of that.
AUDIBLE_HZ = 20_000.0


Base = Literal["full_band", "held_band"]

NEPER_PER_DB = math.log(10) / 20

# Lowest start of the log-spaced grid: below the spacing of the design grid's bins, of which none is left out.
MIN_LOW_HZ = 1.0

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

        add("stem.0", width, N_CHANNELS, kernel)
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


def regularised_ratio(primary: Array, secondary: Array) -> Array:
    """Return W_reg = P S* / (|S|^2 + eps^2), theory (2), of spectra, complex [..., n_bins]."""
    xp = array_namespace(primary, secondary)
    power = squared_magnitude(secondary)
    epsilon_squared = RATIO_REGULARISATION**2 * xp.max(power, axis=-1, keepdims=True)
    return primary * xp.conj(secondary) / (power + epsilon_squared)


def log_base_magnitude(w_reg: Array, base: Base) -> Array:
    """Return the natural log of the magnitude base, theory (3).

    Parameters
    ----------
    w_reg
        Of `regularised_ratio`, complex [..., n_bins].
    base
        `full_band` is |W_reg|; `held_band` is constant below 25 Hz and above 9 kHz.

    Returns
    -------
    Array
        [..., n_bins].

    Raises
    ------
    InvalidOption
        For another base.
    """
    if base not in get_args(Base):
        raise InvalidOption(f"base: {base!r} does not exist; use one of {', '.join(get_args(Base))}", field="base")
    xp = array_namespace(w_reg)
    log_magnitude = floored_log(xp.abs(w_reg))
    if base == "full_band":
        return log_magnitude
    n_bins = w_reg.shape[-1]
    spacing_hz = SAMPLE_RATE_HZ / (2 * (n_bins - 1))
    low, high = math.ceil(HELD_LOW_HZ / spacing_hz), math.floor(HELD_HIGH_HZ / spacing_hz)
    held = xp.clip(xp.arange(n_bins, device=w_reg.device), min=low, max=high)
    return log_magnitude[..., held]


def unit_phase(spectrum: Array) -> Array:
    """Return spectrum / |spectrum|, and 0 where the magnitude vanishes: complex, same shape."""
    xp = array_namespace(spectrum)
    magnitude = xp.abs(spectrum)
    return spectrum / xp.clip(magnitude, min=float(xp.finfo(magnitude.dtype).smallest_normal))


def path_phase(path: Array) -> Array:
    """Compute the unit phase of a path, which fades where the path is all but silent.

    Parameters
    ----------
    path
        One-sided spectra, complex [..., n_bins].

    Returns
    -------
    Array
        path / max(|path|, PHASE_FLOOR max |path|) in bins up to AUDIBLE_HZ, path / |path| above: same shape.
    """
    xp = array_namespace(path)
    magnitude = xp.abs(path)
    tiny = float(xp.finfo(magnitude.dtype).smallest_normal)
    n_bins = path.shape[-1]
    n_audible = int(2 * (n_bins - 1) * AUDIBLE_HZ / SAMPLE_RATE_HZ) // 8 * 8
    floor = PHASE_FLOOR * xp.max(magnitude, axis=-1, keepdims=True)
    least = xp.where(xp.arange(n_bins, device=path.device) < n_audible, floor, tiny)
    return path / xp.clip(xp.maximum(magnitude, least), min=tiny)


def standardised(values: Array) -> Array:
    """Return zero mean and unit SD across frequency, per row; a constant row becomes zeros."""
    xp = array_namespace(values)
    centred = values - xp.mean(values, axis=-1, keepdims=True)
    deviation = xp.sqrt(xp.mean(centred**2, axis=-1, keepdims=True))
    return centred / xp.clip(deviation, min=1e-6)


def path_features(primary: Array, secondary: Array, w_reg: Array, log_base: Array) -> Array:
    """Compute the conditioning channels of the generator.

    Six of the ratio: standardised log |W_reg|; frequency in [-1, 1]; its phase u, that of P over that of S; the
    mismatch u u_MP*, u_MP the unit phase of the minimum-phase base. Six of the paths: standardised log |P| and
    log |S| and their phases (`path_phase`). Only log magnitudes are standardised, across frequency, per path.

    Parameters
    ----------
    primary, secondary, w_reg
        Spectra, complex [batch, n_bins].
    log_base
        Of `log_base_magnitude`, [batch, n_bins].

    Returns
    -------
    Array
        Real [batch, 12, n_bins], in the order of CHANNELS.
    """
    xp = array_namespace(primary, secondary, w_reg, log_base)
    # Side by side: on a GPU an operation costs the same for one spectrum and for four.
    spectra = xp.stack((w_reg, primary, secondary, minimum_phase_response(log_base)), axis=1)
    phases, logs = path_phase(spectra[:, 1:3]), standardised(floored_log(xp.abs(spectra[:, :3])))
    primary_phase, secondary_phase = phases[:, 0], phases[:, 1]
    ratio_phase = primary_phase * xp.conj(secondary_phase)
    mismatch = ratio_phase * xp.conj(unit_phase(spectra[:, 3]))
    frequency = xp.linspace(-1, 1, log_base.shape[-1], dtype=log_base.dtype, device=log_base.device)
    return xp.stack(
        (
            logs[:, 0],
            xp.broadcast_to(frequency, log_base.shape),
            ratio_phase.real,
            ratio_phase.imag,
            mismatch.real,
            mismatch.imag,
            logs[:, 1],
            logs[:, 2],
            primary_phase.real,
            primary_phase.imag,
            secondary_phase.real,
            secondary_phase.imag,
        ),
        axis=1,
    )
