"""The settings of the study: ways to calibrate, each with a name, in groups that vary one thing."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from measurement.estimate import REGULARISATION

WINDOWS = (2048, 4096, 8192, 16_384, 32_768)
REGULARISATIONS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
SNRS_DB = (None, 40.0, 30.0, 20.0, 10.0)
STANDARD_WINDOWS = (4096, 8192)
ALL_PROBES = tuple(range(8))

PROBE_SUBSETS = (
    *((i,) for i in ALL_PROBES),
    *((i, i + 4) for i in range(4)),
    *(tuple(range(i, 8, 2)) for i in range(2)),
    *(tuple(j for j in ALL_PROBES if j % 4 != i) for i in range(4)),
)
"""Each recording alone, four pairs, two halves, and all but one pair."""

PROBE_NOISES = ("recordings", "simulated", "white")
"""The recordings that models are trained with; simulated environments; eight draws of white noise."""


@dataclass(frozen=True)
class Setting:
    """One way to calibrate. probes: which of the eight; is_denoised: the secondary estimate, by its silent lags."""

    window: int = 8192
    regularisation: float = REGULARISATION
    probes: tuple[int, ...] = ALL_PROBES
    snr_db: float | None = None
    probe_noise: str = "recordings"
    is_denoised: bool = False

    @property
    def name(self) -> str:
        """Names the setting and its files; only what differs from the standard is said."""
        parts = [f"window{self.window}"]
        if self.regularisation != REGULARISATION:
            parts.append(f"reg{self.regularisation:.0e}")
        if self.probe_noise != "recordings":
            parts.append(self.probe_noise)
        if self.probes != ALL_PROBES:
            parts.append("probes" + "".join(map(str, self.probes)))
        if self.snr_db is not None:
            parts.append(f"snr{self.snr_db:g}")
        if self.is_denoised:
            parts.append("denoised")
        return "_".join(parts)

    @property
    def columns(self) -> dict[str, object]:
        """The setting as columns of a row."""
        return {"setting": self.name, **asdict(self), "probes": "".join(map(str, self.probes))}


GROUPS = {
    "Window": [Setting(window) for window in WINDOWS],
    "Regularisation": [Setting(w, r) for w in STANDARD_WINDOWS for r in REGULARISATIONS],
    "Probe recordings": [Setting(), *(Setting(probes=probes) for probes in PROBE_SUBSETS)],
    "Probe noises": [Setting(w, probe_noise=noise) for w in STANDARD_WINDOWS for noise in PROBE_NOISES],
    "Measurement noise": [Setting(w, snr_db=snr) for w in STANDARD_WINDOWS for snr in SNRS_DB],
    "Measurement noise, denoised": [
        Setting(w, snr_db=snr, is_denoised=True) for w in STANDARD_WINDOWS for snr in SNRS_DB
    ],
}


def all_settings() -> list[Setting]:
    """Every setting of GROUPS once."""
    return list(dict.fromkeys(each for group in GROUPS.values() for each in group))
