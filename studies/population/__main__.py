"""One controller for everybody: `python -m studies.population --data DIR --noise DIR --out FILE`.

Sections and taps are designed from true paths and scored on true paths of persons held out: for the ear itself, for
all ears of the persons in support together (the joint objective of `/export` with `conditions`), and for the
mean of their paths, as the optimisers do that know a database's average paths alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hardware.realise import Target, realise
from hardware.residual_power import PathSpectra
from synthesis.conventions import DESIGN_N_FFT
from synthesis.octave_bands import AMP_BANDS, NR_BANDS, band_membership
from training.datasets.noise import read_noise, reference_psd
from training.datasets.pandar import read_pandar
from training.datasets.path_pairs import DatasetError, PathPair
from training.datasets.splits import make_splits

FORMS = {
    "6 sections": Target(n_sections=6),
    "12 sections": Target(n_sections=12),
    "2048 taps": Target(form="fir"),
}
MAX_GAIN_DB = 30.0
Row = dict[str, object]
Response = NDArray[np.complex128]


def spectra(pair: PathPair) -> PathSpectra:
    """A pair's true paths on the design grid."""
    return PathSpectra(np.fft.rfft(pair.primary, DESIGN_N_FFT), np.fft.rfft(pair.secondary, DESIGN_N_FFT))


def mean_paths(ears: Sequence[PathSpectra]) -> PathSpectra:
    """The mean of the responses, sample by sample."""
    return PathSpectra(
        np.mean([each.primary for each in ears], axis=0), np.mean([each.secondary for each in ears], axis=0)
    )


def score(ear: PathSpectra, response: Response, psd: NDArray[np.floating]) -> dict[str, float]:
    """Noise reduction and amplification on true paths, dB."""

    def reduction_db(bands: tuple[int, ...]) -> NDArray[np.float64]:
        membership = band_membership(bands, DESIGN_N_FFT)
        before = (psd * np.abs(ear.primary) ** 2) @ membership
        after = (psd * np.abs(ear.primary - ear.secondary * response) ** 2) @ membership
        return np.asarray(10 * np.log10(before / after))

    return {
        "noise_reduction_db": float(reduction_db(NR_BANDS).mean()),
        "amplification_db": float(np.maximum(-reduction_db(AMP_BANDS), 0).mean()),
    }


def study(pairs: Sequence[PathPair], psd: NDArray[np.floating], n_splits: int) -> Iterator[Row]:
    """A row for each split, form, design and ear held out."""
    ears = {(pair.listener, pair.ear): spectra(pair) for pair in pairs}

    def design(conditions: Sequence[PathSpectra], target: Target) -> Response:
        return realise(conditions, psd, target, max_gain_db=MAX_GAIN_DB).response

    own = {form: {key: design([ear], target) for key, ear in ears.items()} for form, target in FORMS.items()}
    for split in make_splits([listener for listener, _ in ears], n_splits):
        support = [ear for (listener, _), ear in ears.items() if listener in split.support]
        for form, target in FORMS.items():
            common, of_mean = design(support, target), design([mean_paths(support)], target)
            for (listener, side), ear in ears.items():
                if listener not in split.query:
                    continue
                labels = {"split": split.index, "listener": listener, "ear": side, "form": form}
                designs = {
                    "each ear": own[form][listener, side],
                    "everybody jointly": common,
                    "mean paths": of_mean,
                }
                for name, response in designs.items():
                    yield labels | {"designed_for": name} | score(ear, response, psd)
        print(f"split {split.index} of {n_splits}", file=sys.stderr, flush=True)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over ears and splits, and the worst ear."""
    grouped = rows.groupby(["form", "designed_for"], sort=False)
    means = grouped[["noise_reduction_db", "amplification_db"]].mean()
    return means.assign(worst_ear_db=grouped.noise_reduction_db.min())


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the rows and print their means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the PANDAR database")
    parser.add_argument("--noise", type=Path, required=True, help="folder of 48-kHz noises")
    parser.add_argument("--out", type=Path, required=True, help="CSV file of the rows")
    parser.add_argument("--splits", type=int, default=10)
    request = parser.parse_args(arguments)
    try:
        pairs = [each for each in read_pandar(request.data).pairs if each.condition == "original"]
        psd = reference_psd(read_noise(request.noise))
    except DatasetError as error:
        print(f"population: {error}", file=sys.stderr)
        return 2
    rows = pd.DataFrame(study(pairs, psd, request.splits))
    rows.to_csv(request.out, index=False, float_format="%.2f")
    print(summary(rows).to_string(float_format="%.2f"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
