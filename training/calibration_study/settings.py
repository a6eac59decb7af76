"""The settings of the study: ways to calibrate, each with a name, and which of them belong together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from synthesis.path_estimation import REGULARISATION

WINDOWS = (2048, 4096, 8192, 16_384, 32_768)


REGULARISATIONS = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)


SNRS_DB = (40.0, 30.0, 20.0, 10.0)


STANDARD_WINDOWS = (4096, 8192)


ALL_PROBES = tuple(range(8))


PROBE_SUBSETS = (
    *((i,) for i in ALL_PROBES),
    *((i, i + 4) for i in range(4)),
    *(tuple(range(i, 8, 2)) for i in range(2)),
    *(tuple(j for j in ALL_PROBES if j % 4 != i) for i in range(4)),
)
"""Each probe alone, four pairs, two halves, and all but one pair."""

BETWEEN_WINDOWS = (5120, 6144)
"""Where the full-band base falls through the paper's figure."""

OTHER_PROBES = ("simulated", "white")
"""Probe noises that no model was trained with: the simulated environments, and eight draws of white noise."""


Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One way to calibrate. probe_noise: `recordings`, or one of OTHER_PROBES; probes: which of its eight."""

    window: int = 8192
    regularisation: float = REGULARISATION
    probes: tuple[int, ...] = ALL_PROBES
    snr_db: float | None = None
    probe_noise: str = "recordings"

    @property
    def name(self) -> str:
        """A word that names the setting and its files."""
        snr = "none" if self.snr_db is None else f"{self.snr_db:g}"
        probes = "".join(map(str, self.probes))
        return f"window{self.window}_reg{self.regularisation:.0e}_{self.probe_noise}{probes}_snr-{snr}"

    @property
    def columns(self) -> Row:
        """The setting as columns of a row."""
        return {"setting": self.name, **asdict(self), "probes": "".join(map(str, self.probes))}


def all_settings() -> list[Setting]:
    """Window by regularisation; and, around each standard window, probes and SNR one at a time."""
    settings = [Setting(window, regularisation) for window in WINDOWS for regularisation in REGULARISATIONS]
    settings += [Setting(probes=probes) for probes in PROBE_SUBSETS]
    for window in STANDARD_WINDOWS:
        settings += [Setting(window, snr_db=snr_db) for snr_db in SNRS_DB]
        settings += [Setting(window, probe_noise=noise) for noise in OTHER_PROBES]
    return sorted(settings, key=lambda each: each not in standards())  # the standard ones first


def paper_search() -> list[Setting]:
    """More settings between the standard windows, for the untrained methods' figures alone."""
    settings = [Setting(window, regularisation) for window in BETWEEN_WINDOWS for regularisation in (1e-4, 1e-3)]
    return settings + [
        Setting(window, snr_db=snr) for window in BETWEEN_WINDOWS for snr in (None, 40.0, 30.0, 25.0)
    ]


def standards() -> list[Setting]:
    """The two windows in use, all else by default."""
    return [Setting(window) for window in STANDARD_WINDOWS]


GROUPS = {
    "Window": [Setting(window) for window in WINDOWS],
    "Regularisation, window 4096": [Setting(4096, regularisation) for regularisation in REGULARISATIONS],
    "Regularisation, window 8192": [Setting(8192, regularisation) for regularisation in REGULARISATIONS],
    "Probe noises": [Setting(), *(Setting(probes=probes) for probes in PROBE_SUBSETS)],
    "Probe noises of another kind": [
        Setting(window, probe_noise=noise) for window in STANDARD_WINDOWS for noise in ("recordings", *OTHER_PROBES)
    ],
    "Measurement noise": [
        Setting(window, snr_db=snr_db) for window in STANDARD_WINDOWS for snr_db in (None, *SNRS_DB)
    ],
}


DENOISED = [Setting(window, snr_db=snr_db) for window in STANDARD_WINDOWS for snr_db in (None, 30.0, 20.0, 10.0)]

DENOISERS = {
    "decays": "the decays of the support's true responses (`training.denoising`)",
    "window": "the silent lags of their own window (`synthesis.denoising`), as `/calibrate` does at 8192",
}
"""By what a secondary estimate is freed from noise."""


def setting_label(setting: Setting) -> str:
    """What sets a setting apart from the standard one of its window."""
    parts = [f"{setting.window}"]
    if setting.regularisation != REGULARISATION:
        parts.append(f"regularisation {setting.regularisation:.0e}")
    if setting.probe_noise != "recordings":
        parts.append(f"{setting.probe_noise} probes")
    if setting.probes != ALL_PROBES:
        parts.append("probes " + " ".join(map(str, setting.probes)))
    if setting.snr_db is not None:
        parts.append(f"SNR {setting.snr_db:g} dB")
    return ", ".join(parts)
