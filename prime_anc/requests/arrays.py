"""Array fields of bodies: types that validate all forms and make their schemas, and checks.

Base64 and arrays of tensors may replace lists of numbers. Errors are RequestErrors that name the field.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, PlainValidator, ValidationInfo

from prime_anc.fields import Absent, Number, without_absent
from prime_anc.measure.posterior import MAX_UNCERTAINTY
from prime_anc.method.bands import N_UNCERTAINTY
from prime_anc.method.conventions import MAX_TOTAL_PSD, MIN_TOTAL_PSD, N_BINS, SAMPLE_RATE_HZ
from prime_anc.method.types import Float32, Path, Paths
from prime_anc.requests.errors import RequestError
from prime_anc.requests.strict import StrictModel, base64_bytes, shown, shown_name

GRIDS = (4096, 8192, 16_384, 32_768, 65_536)
"""Numbers of points of the Fourier grids that a spectrum may use."""

MAX_RESPONSE_SAMPLES = 32_768

MAX_IMAGINARY = 0.03
"""Largest imaginary part at 0 Hz and at Nyquist, where a transform is real, over the largest magnitude: a delay by
a fraction of a sample leaves up to 0.005 at Nyquist, where measured paths are small."""

_N_BINS = tuple(n_fft // 2 + 1 for n_fft in GRIDS)
_FORMS = 'one of {"real", "imag"}, {"complex64"}, {"impulse_response"}'


def is_encoded(values: object) -> bool:
    """Return whether a value is `{"float32": base64}`, little-endian, in place of a list of numbers.

    The document's types leave it out: generators for phones merge alternatives to a type that has none of them.
    """
    return isinstance(values, dict) and set(values) == {"float32"}


def floats(values: object, field: str, most: int, dtype: type[np.floating[Any]] = np.float32) -> NDArray[Any]:
    """Read a list of JSON numbers, the same in base64, or the array of a tensor.

    Parameters
    ----------
    values
        Value in the request.
    field
        Its name, for messages.
    most
        Largest number of them.
    dtype
        Type of the result.

    Returns
    -------
    NDArray[Any]
        Finite numbers, [n].

    Raises
    ------
    RequestError
        It is anything else, or not finite in `dtype`; booleans and texts are not numbers.
    """
    if isinstance(values, list | np.ndarray) and len(values) > most:
        raise RequestError(_code(field), f"{field}: {len(values)} numbers; send at most {most}", field)
    if is_encoded(values):
        array = _from_base64(values["float32"], f"{field}.float32", "<f4")  # type: ignore[index]
    elif isinstance(values, np.ndarray):
        if values.ndim != 1 or values.dtype.kind != "f":
            found = [*values.shape, 2] if values.dtype.kind == "c" else list(values.shape)
            raise RequestError("invalid-field", f"{field}: a tensor of the shape {found}; send [n]", field)
        array = values
    elif not isinstance(values, list):
        raise RequestError("invalid-field", f"{field}: {shown(values)} is not a list of numbers", field)
    elif not set(map(type, values)) <= {float, int}:
        index = next(i for i, value in enumerate(values) if type(value) is not float and type(value) is not int)
        detail = f"{field}: {shown(values[index])} at index {index} is not a number"
        raise RequestError("invalid-field", detail, field)
    else:
        array = np.array(values, dtype=np.float64)
    with np.errstate(over="ignore"):
        return finite(array.astype(dtype, copy=False), field)


def _code(field: str) -> str:
    """Return the code of a problem with the numbers of a field."""
    return "unusable-paths" if field.startswith(("primary", "secondary", "feedback")) else "invalid-field"


def finite(values: NDArray[Any], field: str) -> NDArray[Any]:
    """Return the values; RequestError if one is NaN or infinite."""
    is_finite = np.isfinite(values)
    if not is_finite.all():
        raise RequestError(
            _code(field),
            f"{field}: {int((~is_finite).sum())} values are NaN or infinite in float32, the first at index "
            f"{int(np.argmin(is_finite))}; send finite numbers",
            field,
        )
    return values


_Response = Annotated[list[Number], Field(min_length=1, max_length=MAX_RESPONSE_SAMPLES)]


def _with_both_parts(schema: dict[str, Any]) -> None:
    without_absent(schema)
    schema["dependentRequired"] = {"real": ["imag"], "imag": ["real"]}
    schema["minProperties"] = 1


class Spectrum(StrictModel):
    """A path in one of three forms: `real` and `imag`, `complex64`, or `impulse_response`."""

    model_config = ConfigDict(json_schema_extra=_with_both_parts)

    real: Absent[list[Number]] = None
    """Real parts of a one-sided spectrum."""
    imag: Absent[list[Number]] = None
    """Imaginary parts, as many."""
    complex64: Absent[str] = None
    """Base64 of little-endian interleaved complex64."""
    impulse_response: Absent[_Response] = None
    """At 48 kHz."""


def _path(value: object, info: ValidationInfo) -> Path:
    """Read a path in one of three forms, or the array of a tensor."""
    name = info.field_name
    assert name is not None
    if isinstance(value, np.ndarray):
        return _checked(
            finite(value, name) if value.dtype.kind == "c" else floats(value, name, MAX_RESPONSE_SAMPLES),
            name,
            name,
        )
    if not isinstance(value, dict):
        raise RequestError("invalid-field", f"{name}: {shown(value)} is not a path; send {_FORMS}", name)
    forms = ({"real", "imag"}, {"complex64"}, {"impulse_response"})
    if set(value) not in forms:
        unknown = sorted(set(value) - set().union(*forms))
        code = "unknown-field" if unknown else "missing-field" if set(value) < forms[0] else "invalid-field"
        field = f"{name}.{shown_name(unknown[0])}" if unknown else name
        keys = ", ".join(ascii(key) for key in sorted(value)[:5]) or "no fields"
        raise RequestError(code, f"{name}: the path has {keys}; send {_FORMS}", field)
    part = next(iter(value)) if len(value) == 1 else "real"
    field = f"{name}.{part}"
    if part == "impulse_response":
        path: Path = floats(value[part], field, MAX_RESPONSE_SAMPLES)
    elif part == "complex64":
        path = finite(_from_base64(value[part], field, "<c8"), field)
    else:
        real, imag = (floats(value[item], f"{name}.{item}", _N_BINS[-1]) for item in ("real", "imag"))
        if len(real) != len(imag):
            raise RequestError(
                "unequal-grids",
                f"{name}: {len(real)} real parts but {len(imag)} imaginary ones; send equal numbers",
                f"{name}.imag",
            )
        path = np.empty(len(real), np.complex64)
        path.real, path.imag = real, imag
    return _checked(path, name, field)


def _checked(path: Path, name: str, field: str) -> Path:
    """Check a path: RequestError unless it has a valid length and is not all zero."""
    if np.iscomplexobj(path):
        _check_spectrum(path, field)
    elif not 1 <= len(path) <= MAX_RESPONSE_SAMPLES:
        raise RequestError(
            "unusable-paths",
            f"{field}: an impulse response of {len(path)} samples; send 1 to {MAX_RESPONSE_SAMPLES}",
            field,
        )
    if not path.any():
        raise RequestError("unusable-paths", f"{name}: the path is zero everywhere; check the measurement", name)
    return path


def _check_spectrum(path: Path, field: str) -> None:
    """Check that a one-sided spectrum has n_fft / 2 + 1 bins of one of GRIDS, and real ones at its ends."""
    if len(path) not in _N_BINS:
        raise RequestError(
            "unusable-paths",
            f"{field}: a spectrum of {len(path)} bins; send n_fft / 2 + 1 bins of a power-of-two grid from {GRIDS[0]} "
            f"to {GRIDS[-1]}: {', '.join(map(str, _N_BINS))}",
            field,
        )
    imaginary = np.abs(path.imag[[0, -1]])
    if imaginary.any() and imaginary.max() > MAX_IMAGINARY * np.abs(path).max():
        place = 0 if imaginary[0] > imaginary[1] else len(path) - 1
        raise RequestError(
            "unusable-paths",
            f"{field}: bin {place}, at {'0 Hz' if place == 0 else 'Nyquist'}, has an imaginary part of "
            f"{path.imag[place]:.3g}, which no impulse response has; send bins 0 to n_fft / 2 of its transform",
            field,
        )


def _from_base64(text: object, field: str, kind: str) -> NDArray[Any]:
    """Decode little-endian numbers of a type from base64."""
    data, size = base64_bytes(text, field), np.dtype(kind).itemsize
    if len(data) % size:
        raise RequestError(
            "invalid-field", f"{field}: {len(data)} bytes are not a whole number of values of {size} bytes", field
        )
    return np.frombuffer(data, kind)


def _series(value: object, info: ValidationInfo) -> Float32:
    """Read a list of numbers, or a tensor, in float32."""
    assert info.field_name is not None
    half = N_UNCERTAINTY // 2
    if isinstance(value, np.ndarray) and value.shape == (2, half):
        value = value.ravel()
    elif isinstance(value, list) and [len(row) for row in value[:3] if isinstance(row, list)] == [half, half]:
        value = [*value[0], *value[1]]
    return floats(value, info.field_name, _N_BINS[-1])


def _rate(value: object) -> int:
    """Read the rate, 48 kHz as a JSON number."""
    if type(value) not in (int, float):
        raise RequestError(
            "invalid-field", f"sample_rate: {shown(value)} is not a number; send {SAMPLE_RATE_HZ}", "sample_rate"
        )
    check_rate(value)  # type: ignore[arg-type]
    return SAMPLE_RATE_HZ


PathField = Annotated[Any, PlainValidator(_path, json_schema_input_type=Spectrum)]
Series = Annotated[Any, PlainValidator(_series, json_schema_input_type=list[Number])]
RateField = Annotated[int, PlainValidator(_rate, json_schema_input_type=Literal[SAMPLE_RATE_HZ])]


def check_rate(rate: float, field: str = "sample_rate") -> None:
    """Check that the sample rate is 48 kHz."""
    if rate != SAMPLE_RATE_HZ:
        found = f"{field}: {rate} Hz is not supported; resample to {SAMPLE_RATE_HZ} Hz"
        raise RequestError("wrong-rate", found, field)


def check_condition(condition: Paths, reference_psd: Float32 | None) -> None:
    """Check that all spectra and quantities per bin share a grid, and the values of all but the paths."""
    primary, secondary = condition.primary, condition.secondary
    n_bins = N_BINS
    if np.iscomplexobj(primary):
        n_bins = len(primary)
        for name, other in (("secondary", secondary), ("feedback", condition.feedback)):
            if other is not None and np.iscomplexobj(other) and len(other) != n_bins:
                raise RequestError(
                    "unequal-grids",
                    f"{name}: {len(other)} bins, but primary has {n_bins}; send both on the same grid",
                    name,
                )
    elif np.iscomplexobj(secondary):
        n_bins = len(secondary)
    for name, values in (("coherence", condition.coherence), ("reference_psd", reference_psd)):
        if values is not None and len(values) != n_bins:
            raise RequestError(
                "unequal-grids",
                f"{name}: {len(values)} bins; send {n_bins}, the grid of the spectra (the design grid of {N_BINS} "
                "bins if both paths are impulse responses)",
                name,
            )
    if condition.coherence is not None:
        _check_coherence(condition.coherence)
    if reference_psd is not None:
        _check_reference_psd(reference_psd)
    if condition.uncertainty is not None:
        _check_uncertainty(condition.uncertainty)


def _check_coherence(coherence: Float32) -> None:
    low, high = float(coherence.min()), float(coherence.max())
    if low < 0 or high > 1:
        raise RequestError(
            "out-of-range", f"coherence: values from {low:.8g} to {high:.8g}; send 0 to 1", "coherence"
        )


def _check_reference_psd(psd: Float32) -> None:
    total, low = float(psd.sum(dtype=np.float64)), float(psd.min())
    if psd.any() and not MIN_TOTAL_PSD <= total <= MAX_TOTAL_PSD:
        found = (
            f"reference_psd: its power is {total:.3g}; scale it, which changes no filter, to {MIN_TOTAL_PSD:g} to "
        )
        raise RequestError("out-of-range", f"{found}{MAX_TOTAL_PSD:g}", "reference_psd")
    if low < 0 or not psd.any():
        raise RequestError(
            "out-of-range",
            f"reference_psd: values from {low:.4g} to {float(psd.max()):.4g}; send a mean square per bin, nowhere "
            "negative and not all zero",
            "reference_psd",
        )


def _check_uncertainty(uncertainty: Float32) -> None:
    if len(uncertainty) != N_UNCERTAINTY:
        found = f"uncertainty: {len(uncertainty)} values; send {N_UNCERTAINTY}, as /calibrate answers them"
        raise RequestError("invalid-field", found, "uncertainty")
    low, high = float(uncertainty.min()), float(uncertainty.max())
    if low < 0 or high > MAX_UNCERTAINTY:
        found = f"uncertainty: values from {low:.4g} to {high:.4g}; send ratios of powers, 0 to {MAX_UNCERTAINTY:g}"
        raise RequestError("out-of-range", found, "uncertainty")


def check_some_taps(taps: Float32) -> None:
    """Check that a filter to verify or replace is not zero."""
    if not taps.any():
        raise RequestError("invalid-field", "fir: all taps are zero; send the filter of a design", "fir")
