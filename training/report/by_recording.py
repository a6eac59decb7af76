"""Tables of a run by recording: generators against WMMSE from the same estimates, for each kind of probe and SNR.

Means are those of `rows.py`; a single recording is a case of its own, so that a mean over single recordings weighs
each of them alike. The worst ear is that of all splits, listeners and recordings.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from training.report.designs import Design, as_design, design_name
from training.report.rows import with_profile
from training.report.tables import markdown

BROAD_BAND = ("white", "pink", "pool")
OTHERS = (*BROAD_BAND, "airplane_like")
WMMSE, REFINED_WMMSE = Design("wmmse"), Design("wmmse", 3, "paper")
FALLBACK_MARGIN_DB = 0.5
"""The service answers with WMMSE where that is predicted to be better by more than this."""

_CASE = ["split", "listener", "ear", "probe", "snr_db"]


def by_recording(rows: pd.DataFrame) -> str:
    """All tables, for each method that was trained and its updates in the `fast` profile."""
    cases = _cases(rows)
    trained = sorted(set(rows.method[rows.seed.notna()]))
    designs = [Design(name, k, "fast" if k else "") for name in trained for k in sorted(set(rows.k))]
    parts = [_figures(cases)]
    for design in designs:
        if design in cases and WMMSE in cases:
            parts.append(_against_wmmse(design, cases))
    return "\n\n".join(parts)


def groups(cases: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Name of the probe, SNR and the cases, broad-band probes first; those of no noise before noisy ones."""
    kinds = {"broad-band": cases.probe.isin(BROAD_BAND), "single recording": ~cases.probe.isin(OTHERS)}
    kinds |= {name: cases.probe == name for name in OTHERS}
    for name, chosen in kinds.items():
        for snr_db, own in cases[chosen].groupby(cases.snr_db.fillna(float("inf")), sort=True):
            yield name, "none" if snr_db == float("inf") else f"{snr_db:g} dB", own


def _cases(rows: pd.DataFrame) -> dict[Design, pd.DataFrame]:
    """Each design's cases; seeds are averaged."""
    columns = ["noise_reduction_db", "amplification_db", "predicted_noise_reduction_db"]
    means = with_profile(rows).groupby(["method", "k", "profile", *_CASE], dropna=False)[columns].mean()
    found: dict[Design, pd.DataFrame] = {}
    for key, own in means.groupby(level=["method", "k", "profile"]):
        found[as_design(key)] = own.droplevel(["method", "k", "profile"]).reset_index()
    return found


def _mean(cases: pd.DataFrame, column: str) -> float:
    """Over ears and probes within a listener, listeners within a split, splits."""
    listeners = cases.groupby(["split", "listener"])[column].mean()
    return float(listeners.groupby(level="split").mean().mean())


def _figures(cases: dict[Design, pd.DataFrame]) -> str:
    """NR / AMP of each design, a line for each kind of probe and SNR."""
    lines: dict[tuple[str, str], dict[str, object]] = {}
    for design, own in cases.items():
        for name, snr, chosen in groups(own):
            line = lines.setdefault((name, snr), {"probe": name, "noise": snr})
            figures = (_mean(chosen, column) for column in ("noise_reduction_db", "amplification_db"))
            line[design_name(*design)] = "{:.2f} / {:.3f}".format(*figures)
    return f"### NR / AMP in dB by probe and SNR\n\n{markdown(pd.DataFrame(lines.values()).fillna(''))}"


def _against_wmmse(design: Design, cases: dict[Design, pd.DataFrame]) -> str:
    """Differences of NR on the same estimates, with and without the fallback, and the prediction's errors."""
    own, other = cases[design], cases[WMMSE]
    joined = own.merge(other, on=_CASE, suffixes=("", "_wmmse"))
    gain = joined.noise_reduction_db - joined.noise_reduction_db_wmmse
    replaced = joined.predicted_noise_reduction_db_wmmse > joined.predicted_noise_reduction_db + FALLBACK_MARGIN_DB
    joined = joined.assign(
        gain=gain,
        served=gain.where(~replaced, 0.0),
        replaced=100.0 * replaced,
        error=joined.predicted_noise_reduction_db - joined.noise_reduction_db,
    )
    joined["miss"] = joined.error.abs()
    if REFINED_WMMSE in cases:
        refined = cases[REFINED_WMMSE][[*_CASE, "noise_reduction_db"]]
        joined = joined.merge(refined, on=_CASE, suffixes=("", "_refined"))
        joined["gain_refined"] = joined.noise_reduction_db - joined.noise_reduction_db_refined
    lines = []
    for name, snr, chosen in groups(joined):
        line: dict[str, object] = {
            "probe": name,
            "noise": snr,
            "over WMMSE": _mean(chosen, "gain"),
            "worst ear": chosen.gain.min(),
            "with fallback": _mean(chosen, "served"),
            "worst ear ": chosen.served.min(),
            "replaced, %": _mean(chosen, "replaced"),
        }
        if "gain_refined" in chosen:
            line |= {"over WMMSE + GN(3)": _mean(chosen, "gain_refined"), "worst ear  ": chosen.gain_refined.min()}
        line |= {
            "predicted - scored": _mean(chosen, "error"),
            "its mean size": _mean(chosen, "miss"),
            "its largest": chosen.miss.max(),
            "ears": chosen[["split", "listener", "ear"]].drop_duplicates().shape[0],
        }
        lines.append(line)
    title = f"{design_name(*design)} against WMMSE from the same estimates: NR in dB"
    return f"### {title}\n\n{markdown(pd.DataFrame(lines))}"
