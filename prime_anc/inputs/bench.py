"""Files of the bench, as `service/page/files/bench_file.schema.json` declares them: measurements, filters, sessions.

The page reads and writes the same files (`bench_file.js`). Numbers are float32, as lists or in base64, and come back
bit by bit.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from prime_anc.measure.files.errors import FileError
from prime_anc.method.curve import Curve
from prime_anc.options import curve_kinds, option_schemas

Json = dict[str, Any]

# Fields of a measurement that a request takes.
PATH_FIELDS = ("primary", "secondary", "coherence", "feedback", "uncertainty", "sign")
_PATHS = ("primary", "secondary", "feedback")
# Codes of warnings that stay with a controller.
_OF_CONTROLLER = ("controller_amplifies", "plant_unknown")
# Settings of the page that are not named as the option; a ceiling that is a curve is, and counts before the number.
_SETTINGS = {"max_gain_db": "ceiling", "latency_samples": "latency"}


def load(file: Path) -> Json:
    """Read a JSON object; raises FileError."""
    try:
        document = orjson.loads(file.read_bytes())
    except OSError as error:
        raise FileError(f"{file}: it cannot be read ({error.strerror})") from error
    except orjson.JSONDecodeError as error:
        raise FileError(f"{file}: it is no JSON ({error})") from error
    if not isinstance(document, dict):
        raise FileError(f"{file}: it holds no JSON object")
    return document


def measurements(file: Path, document: Json) -> list[Json]:
    """Return the measurements in use: the one of the file, or the session's current one, or all of a joint filter.

    Raises
    ------
    FileError
        The file holds no measurement.
    """
    if "session" not in document:
        missing = [name for name in ("primary", "secondary") if name not in document]
        if missing:
            raise FileError(
                f"{file}: it has no {' and no '.join(missing)}; give the file that `prime-anc calibrate` wrote, or a "
                "session of the page"
            )
        return [document]
    every, current = document["session"], document.get("current", 0)
    try:
        found = [ear for ear in every if ear.get("used")] if document.get("joint") else [every[current]]
        if not found or not all("primary" in ear and "secondary" in ear for ear in found):
            raise KeyError
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise FileError(f"{file}: this session has no measurement in use; load one on the page") from error
    return list(found)


def stability_only(file: Path, document: Json) -> list[Json]:
    """Return a session's conditions in which the loop only has to be stable; raises FileError."""
    found = [ear for ear in document.get("session", ()) if document.get("joint") and ear.get("stability_only")]
    return [path_fields(file, ear) | {"label": ear.get("label"), "stability_only": True} for ear in found]


def path_fields(file: Path, measurement: Json) -> Json:
    """Return the fields of a measurement as a request takes them; raises FileError."""
    found = {name: measurement[name] for name in PATH_FIELDS if measurement.get(name) is not None}
    for name, value in found.items():
        if name in _PATHS:
            inner = value.get("impulse_response", value) if isinstance(value, dict) else value
            if not isinstance(inner, dict) or "float32" in inner:
                found[name] = {"impulse_response": series(file, name, inner)}
        elif name != "sign":
            found[name] = series(file, name, value)
    return found


def series(file: Path, name: str, value: Any) -> Any:
    """Return numbers, a list or base64, as an array, and anything else as it is; raises FileError."""
    if isinstance(value, list):
        try:
            return np.array(value, np.float32)
        except (ValueError, TypeError, OverflowError):
            return value  # the service names the fault
    if not (isinstance(value, dict) and isinstance(value.get("float32"), str)):
        return value
    try:
        return np.frombuffer(base64.b64decode(value["float32"], validate=True), "<f4")
    except (binascii.Error, ValueError) as error:
        raise FileError(f"{file}: its {name} is no base64 of float32 ({error})") from error


def settings(file: Path, document: Json, measured: Sequence[Json]) -> Json:
    """Return the options of a design that a session sets, its `reference_psd`, its `controller` and what it says of it.

    What cannot be read is left out and, as on the page, options that these measurements give no effect.
    """
    chosen, found = Json(document.get("settings") or {}), Json()
    for name, schema in option_schemas().items():
        if not _has_effect(name, measured):
            continue
        for text in (chosen.get(name), chosen.get(_SETTINGS.get(name, name))):
            value = _setting(text, schema, curve_kinds().get(name)) if isinstance(text, str) and text else None
            if value is not None:
                found[name] = value
                break
    noise = document.get("noise")
    if isinstance(noise, dict) and "psd" in noise:
        found["reference_psd"] = series(file, "noise", noise["psd"])
    if document.get("controller") is not None:
        found |= {"controller": document["controller"], "controller_about": controller_about(document)}
    return found


def controller_about(document: Json) -> Json:
    """Return what a file says of its controller: warnings, each plant's loop at the level where it is worst, and the
    limit of the filter beside it."""
    if found := document.get("controller_about"):
        return dict(found)
    plants = (document.get("loop") or {}).get("conditions") or []
    warnings = [item for item in document.get("warnings") or () if item["code"] in _OF_CONTROLLER]
    limit = {"max_louder_db": document["max_louder_db"]} if "max_louder_db" in document else {}
    return {"name": "", "plants": plants, "warnings": warnings} | limit if plants else {}


def _has_effect(option: str, measured: Sequence[Json]) -> bool:
    if option.startswith("min_"):
        return any("feedback" in ear for ear in measured)
    if option in ("exact", "snr_db"):
        return any("coherence" not in ear and "uncertainty" not in ear for ear in measured)
    return option != "leave_one_out" or len(measured) > 1


def _setting(text: str, schema: Json, kind: type[Curve] | None) -> Any:
    """Read the text of a setting: a word, a number, or a curve as `frequency:value` pairs; None if it is none."""
    if schema.get("type") == "boolean":
        return text == "true" or None
    if schema.get("type") == "string":
        return text
    try:
        if kind is not None and ":" in text:
            hz, values = zip(*(map(float, pair.split(":")) for pair in text.split(",")), strict=True)
            return {"frequency_hz": list(hz), kind.VALUES: list(values)}
        return int(text) if schema.get("type") == "integer" else float(text)
    except ValueError:
        return None


def control_filter(file: Path, document: Json, name: str = "") -> Json:
    """Return the filter of a file: its own, or one that a session keeps.

    Parameters
    ----------
    file, document
        The file and what it holds.
    name
        Name of the kept one; it may be left out if there is one only.

    Raises
    ------
    FileError
        The session keeps none, or several.
    """
    if "session" not in document:
        return document
    kept = {
        str(item.get("name")): item.get("design") for item in document.get("kept") or () if isinstance(item, dict)
    }
    if not kept:
        raise FileError(f"{file}: this session keeps no filter; keep one on the page")
    if not name and len(kept) == 1:
        (design,) = kept.values()
    elif name in kept:
        design = kept[name]
    else:
        names = ", ".join(f"{file}#{item}" for item in kept)
        raise FileError(f"{file}: this session keeps {names}; give one of these")
    if not isinstance(design, dict) or "fir" not in design:
        raise FileError(f"{file}: the filter that this session keeps has no taps")
    return design | {"fir": series(file, "fir", design["fir"])}


def session(measured: Iterable[tuple[str, Json]], filters: Iterable[tuple[str, Json]], begun: Json) -> Json:
    """Build a session for the page.

    Parameters
    ----------
    measured
        Label and fields of each measurement.
    filters
        Name and document of each filter with its prediction.
    begun
        Session that they are added to; it may be empty.
    """
    ears = list(begun.get("session", ()))
    for label, fields in measured:
        ear: Json = {"label": label, "used": True, "sample_rate": 48_000, "sign": fields.get("sign", "minus")}
        for name in _PATHS:
            if fields.get(name) is not None:
                if "impulse_response" not in fields[name]:
                    raise FileError(f"{label}: the page reads impulse responses, no spectra")
                ear[name] = {"impulse_response": {"float32": _base64(fields[name]["impulse_response"])}}
        if fields.get("coherence") is not None:
            ear["coherence"] = {"float32": _base64(fields["coherence"])}
        if fields.get("uncertainty") is not None:
            ear["uncertainty"] = np.asarray(fields["uncertainty"], np.float32).ravel().tolist()
        if fields.get("verdict") is not None:
            ear["verdict"] = fields["verdict"]
        ears.append(ear)
    kept = list(begun.get("kept", ()))
    for name, found in filters:
        design = {field: found[field] for field in _KEPT_FIELDS if field in found}
        if "controller" in design:
            design["controller_about"] = controller_about(found)
        kept.append({"name": name, "design": design})
    return {"current": 0, "joint": False, "settings": {}} | begun | {"session": ears, "kept": kept}


_KEPT_FIELDS = ("fir", "prediction", "sign", "latency_samples", "controller")


def _base64(samples: NDArray[Any] | list[float]) -> str:
    return base64.b64encode(np.asarray(samples, "<f4").tobytes()).decode()
