"""Print answers for people: as tables, by the names of their fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

Json = dict[str, Any]
Read = TypeVar("Read")
# A head and rows of texts.
Table = tuple[Sequence[str], list[list[str]]]

# Members that are no figures.
_HIDDEN = ("timings_ms", "spectra")
# Members that name one of several things.
_NAMES = {"label", "name"}
# Longest text in a row, in letters: digests and licences are left to the answer's JSON.
LONGEST = 30
# Where the files of a request's takes are noted while a command runs.
_TAKES = "prime_anc.takes"


def tables(answer: Mapping[str, Any]) -> Iterator[Table]:
    """Yield an answer's values per band, then what it has of several, such as conditions, then its figures by name."""
    figures: list[list[str]] = []

    def inside(found: Mapping[str, Any], place: str) -> Iterator[Table]:
        n_bands = next(
            (len(item) for name, item in found.items() if name.endswith("centre_hz") and isinstance(item, list)), -1
        )
        bands = {
            name: value
            for name, value in found.items()
            if isinstance(value, list) and len(value) == n_bands and not name.endswith("bands_hz")
        }
        if bands:
            rows = zip(*bands.values(), strict=True)
            yield list(bands), [[text(cell) for cell in row] for row in rows]
        for name, value in found.items():
            inner = f"{place}.{name}".lstrip(".")
            if isinstance(value, dict) and name not in _HIDDEN:
                yield from inside(value, inner)
            elif isinstance(value, list | tuple) and name.endswith("_hz") and name not in bands:
                figures.append([inner, ", ".join(map(text, value)) or "none"])
            elif isinstance(value, list) and value and isinstance(value[0], dict) and _NAMES & value[0].keys():
                yield of_rows(value)
            elif isinstance(value, str | float | int):
                figures.append([inner, text(value)])

    yield from inside(answer, "")
    yield ("", ""), figures


def of_rows(items: Sequence[Mapping[str, Any]]) -> Table:
    """Return the figures of several things of one kind, in a row each."""
    names = [name for item in items[:1] for name, value in item.items() if isinstance(value, str | float | int)]
    names = [name for name in names if all(len(text(item.get(name))) <= LONGEST for item in items)]
    names.sort(key=lambda name: name not in _NAMES)
    return names, [[text(item.get(name, "")) for name in names] for item in items]


def beside_wiener(answer: Json, rival: Json) -> Json:
    """Return a design with the noise reduction of the Wiener filter beside its own, to be shown."""
    names = ("noise_reduction_db", "mean_noise_reduction_db")
    others = {f"wiener_{name}": rival["prediction"][name] for name in names}
    return answer | {"prediction": answer["prediction"] | others}


def beside_predicted(answer: Json) -> Json:
    """Return a verification with the predicted noise reduction of each band beside the measured one, to be shown."""
    measured = answer["measured"]
    bands = zip(measured["noise_reduction_db"], answer["band_deviation_db"], strict=True)
    return answer | {"measured": measured | {"predicted_noise_reduction_db": [db - off for db, off in bands]}}


def text(value: object) -> str:
    """Format a value: decimals only as far as they say something."""
    if not isinstance(value, float):
        return str(value)
    return f"{round(value, 3):z.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def columns(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print right-aligned columns under their headings."""
    lines = [head, *([text(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        click.echo("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def show(answer: Mapping[str, Any]) -> None:
    """Print an answer's tables."""
    *found, (_, figures) = tables(answer)
    for table in found:
        columns(*table)
    for name, value in figures:
        click.echo(f"{name}: {value}")


def answered(
    response: Any, output: Path | None, as_json: bool, shown: Callable[[Json], Json] = lambda answer: answer
) -> Json:
    """Save an answer if requested, and print it as JSON, or as tables what is to be shown of it; and its warnings."""
    if output is not None:
        save(output, response.content)
    answer: Json = response.json()
    if as_json:
        click.echo(response.content.decode())
    else:
        show(shown(answer))
    findings(answer.get("warnings", ()))
    return answer


def save(output: Path, content: bytes) -> None:
    """Write a file, and say so."""
    output.write_bytes(content)
    notes([f"written: {output}"], "")


def findings(found: Iterable[Mapping[str, str]], word: str = "warning") -> None:
    """Print warnings or findings, one per line, on standard error."""
    for item in found:
        click.echo(f"{word}: {item['code']}: {with_files(item['detail'])}", err=True)


def name_takes(files: Sequence[Path]) -> None:
    """Note the files of the request's takes, for messages about them."""
    click.get_current_context().meta[_TAKES] = files


def with_files(message: str) -> str:
    """Name the files of the request's takes in place of their numbers."""
    for n, file in reversed(list(enumerate(click.get_current_context().meta.get(_TAKES, ())))):
        message = message.replace(f"takes.{n}", str(file))
    return message


def noted(found: tuple[Read, Iterable[str]]) -> Read:
    """Print the notes on what was read, and return it."""
    read, texts = found
    notes(texts)
    return read


def notes(texts: Iterable[str], prefix: str = "note: ") -> None:
    """Print notes on changes to the contents of files, on standard error."""
    for item in texts:
        click.echo(f"{prefix}{item}", err=True)
