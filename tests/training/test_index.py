"""A table of files becomes a data set: every format, every column, and what is wrong with either or with a path."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy.io import savemat

from training.data import open_dataset
from training.datasets.index import read_index
from training.datasets.path_pairs import DatasetError, PathPair
from training.measurements import wearing_of

HEADING = "listener,ear,condition,primary,secondary,feedback"


def response(seed: int, n: int = 512) -> np.ndarray:
    # Float32 values, so that every format holds them exactly.
    decay = np.exp(-np.arange(n) / 50)
    return (0.1 * decay * np.random.default_rng(seed).standard_normal(n)).astype(np.float32).astype(float)


def table(folder: Path, *rows: str, heading: str = HEADING) -> Path:
    file = folder / "index.csv"
    file.write_text("\n".join((heading, *rows)) + "\n")
    return file


def pair_in(folder: Path, *rows: str) -> PathPair:
    table(folder, *rows)
    (pair,) = read_index(folder).pairs
    return pair


def test_one_file_per_path(tmp_path: Path) -> None:
    for n, name in enumerate(("p.wav", "s.wav", "f.wav")):
        soundfile.write(tmp_path / name, response(n), 48_000, subtype="FLOAT")
    pair = pair_in(tmp_path, "anna,Left,pressed,p.wav,s.wav,f.wav")
    assert (pair.listener, pair.place, pair.name) == ("anna", "left, pressed", "anna/left, pressed/original")
    np.testing.assert_array_equal(pair.primary, response(0))
    np.testing.assert_array_equal(pair.secondary, response(1))
    np.testing.assert_array_equal(pair.feedback, response(2))


@pytest.mark.parametrize("kind", ["npz", "mat", "csv"])
def test_one_file_for_both_paths(tmp_path: Path, kind: str) -> None:
    paths = {"primary": response(0), "secondary": response(1)}
    file = tmp_path / f"a.{kind}"
    if kind == "npz":
        np.savez(file, **paths)
    elif kind == "mat":
        savemat(file, paths)
    else:
        np.savetxt(file, np.stack(list(paths.values()), 1), delimiter=",", header=",".join(paths), comments="")
    for cells in (f"a.{kind},a.{kind}", f"a.{kind}#Primary,a.{kind}#SECONDARY"):
        pair = pair_in(tmp_path, f"anna,mono,,{cells},")
        np.testing.assert_array_equal(pair.primary, paths["primary"])
        np.testing.assert_array_equal(pair.secondary, paths["secondary"])
        assert pair.feedback is None


def test_rows_are_ordered_columns_optional_and_semicolons_allowed(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", primary=response(0), secondary=response(1))
    rows = ("bert;left;a.npz;a.npz", "anna;right;a.npz;a.npz", "anna;left;a.npz;a.npz")
    file = table(tmp_path, *rows, heading="\ufefflistener;ear;primary;secondary")
    dataset = read_index(file)
    assert [pair.name for pair in dataset.pairs] == [
        f"{ear}/original" for ear in ("anna/left", "anna/right", "bert/left")
    ]
    assert dataset.fingerprint == open_dataset("index", tmp_path).fingerprint
    np.savez(tmp_path / "a.npz", primary=response(2), secondary=response(1))
    assert dataset.fingerprint != read_index(file).fingerprint


def test_ways_of_wearing_are_learnt_from_conditions(tmp_path: Path) -> None:
    """Pressing doubles the secondary path of one ear, opening leaves a tenth of another."""
    normal, primary = response(1), response(0)
    for name, factor in (("worn", 1.0), ("pressed", 2.0), ("open", 0.1)):
        np.savez(tmp_path / f"{name}.npz", primary=primary, secondary=factor * normal)
    rows = ("anna,left,,worn", "anna,left,Pressed,pressed", "bert,left,,worn", "bert,left,open,open")
    table(tmp_path, *(f"{row}.npz,{row.rpartition(',')[2]}.npz," for row in rows))
    dataset = read_index(tmp_path)
    pressed, opened = wearing_of(tmp_path, dataset, dataset.listeners)
    assert (pressed.name, opened.name) == ("pressed", "open")
    np.testing.assert_allclose(pressed.gain_db, 6.02, atol=0.01)
    assert wearing_of(tmp_path, dataset, ("bert",))[0].name == "open"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((), "a heading and no row"),
        (("anna,both,,a.npz,a.npz,",), "line 2: found the ear 'both', expected left, right or mono"),
        (("anna,left,,a.npz,a.npz,", "anna,,,a.npz,a.npz,"), "line 3: found no ear"),
        (("anna,left,,a.npz,,",), "found no secondary"),
        (("anna,left,,a.npz,a.npz,,,",), "line 2: found more cells than columns"),
        (("anna,left,,a.npz,b.wav,",), "b.wav: cannot be read"),
        (("anna,left,,a.npz,a.npz#loud,",), "no channel loud; use one of primary, secondary, long"),
        (("anna,left,,a.npz,a.npz,a.npz",), "name one of them feedback or feedbackl.*or write FILE#CHANNEL"),
        (("anna,left,,a.npz#long,a.npz,",), "9000 samples with .* dB of their energy after 8192"),
        (("anna,left,,a.npz,index.csv,",), "index.csv: it holds no numbers"),
        (("anna,left,,a.npz,a.npz,", "anna,left,,a.npz,a.npz,"), "anna/left/original occurs twice"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, rows: tuple[str, ...], message: str) -> None:
    np.savez(tmp_path / "a.npz", primary=response(0), secondary=response(1), long=np.ones(9000))
    table(tmp_path, *rows)
    with pytest.raises(DatasetError, match=message):
        read_index(tmp_path)


def test_missing_and_unknown_columns_and_tables_are_named(tmp_path: Path) -> None:
    for heading in ("listener,ear,primary", "listener,ear,primary,secondary,gain"):
        table(tmp_path, heading=heading)
        with pytest.raises(
            DatasetError, match=f"found the columns {heading.replace(',', ', ')}, expected listener"
        ):
            read_index(tmp_path)
    with pytest.raises(DatasetError, match=r"nowhere.*cannot be read"):
        read_index(tmp_path / "nowhere")
    with pytest.raises(DatasetError, match="no folder is given"):
        open_dataset("index")


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (np.zeros(8), "all samples are zero"),
        (np.array([1.0, np.nan, np.inf]), "2 samples are NaN or infinite"),
        (np.ones((2, 4)), r"shape \(2, 4\)"),
        (np.ones(8193), "of 1 to 8192"),
    ],
)
def test_unusable_response_is_rejected_by_name(response: object, message: str) -> None:
    for paths in ((response, np.ones(4)), (np.ones(4), response)):
        with pytest.raises(DatasetError, match=rf"ary path of person-01 \(left\): .*{message}"):
            PathPair("person-01", "left", "original", "normal", *paths)
