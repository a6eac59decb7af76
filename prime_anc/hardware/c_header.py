"""C99 headers: coefficients of a filter, or of filter and controller, and functions that run them.

The functions are `hardware.running` in portable C: direct form I; in fixed point one rounding per section, with
fed-back outputs of at most 62 bits in two parts, so that no product has more than 64.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prime_anc.hardware.realise import Realised

# Widest data words that the functions run.
MAX_RUN_BITS = 32
# Bits of a fed-back output.
STATE_BITS = 62


def recursion(realised: Realised) -> str:
    """Write the recursion of one section with the signs that the file uses."""
    sign = "+" if realised.denominator == "added" else "-"
    return f"b0 x + b1 x' + b2 x'' {sign} a1 y' {sign} a2 y''"


def of_filter(realised: Realised, about: str) -> str:
    """Write the header of a filter, whose first comment is `about`."""
    return _guarded("CONTROL_FILTER_H", f"{about}.", _part(realised, "control_filter"))


def of_both(control_filter: Realised, controller: Realised, equation: str, playback: Realised | None) -> str:
    """Write the header of filter and controller, of the sum of both, and of the filter of what is played besides."""
    lines = [*_part(control_filter, "control_filter"), "", *_part(controller, "controller")]
    if None not in map(_data_type, (control_filter, controller)):
        lines += ["", *_sum_of_both(control_filter, controller)]
    if playback is not None:
        lines += ["", *_part(playback, "playback")]
    return _guarded("HYBRID_H", f"Filter and controller for {equation}.", lines)


def _part(realised: Realised, name: str) -> list[str]:
    """Return a filter's coefficients, its state and its function per sample."""
    if _data_type(realised) is None:
        run = ["/* No function: such words do not fit into products of 64 bits. */"]
    else:
        words = "" if realised.quantised is None else f", a word of {realised.quantised.format.n_bits} bits"
        run = [f"/* Zero the state at first; then call {name}_step per sample{words}. */", *_run(realised, name)]
    return [*_declarations(realised, name), "", *run]


def _sum_of_both(control_filter: Realised, controller: Realised) -> list[str]:
    """Return the function of both per sample, if they have the same rate and word."""
    words = [
        None if item.quantised is None else item.quantised.format.n_bits for item in (control_filter, controller)
    ]
    if control_filter.sample_rate_hz != controller.sample_rate_hz or words[0] != words[1]:
        return [
            "/* The loudspeaker plays the sum of both outputs, after the slower or narrower one was brought to the",
            "   rate and the word of the other. The delay of doing so counts. */",
        ]
    kind = _data_type(controller)
    total = "control_filter_step(&s->control_filter, x) + controller_step(&s->controller, e)"
    body = [f"    return {total};"]
    if words[0] is not None:
        top = (1 << (words[0] - 1)) - 1
        body = [
            f"    int64_t y = (int64_t){total};",
            f"    return y > {top} ? {top} : y < -{top} - 1 ? -{top} - 1 : ({kind})y;",
        ]
    return [
        "/* Both, from outer microphone x and error microphone e to what the loudspeaker plays. */",
        "typedef struct { control_filter_state control_filter; controller_state controller; } hybrid_state;",
        f"static inline {kind} hybrid_step(hybrid_state *s, {kind} x, {kind} e) {{",
        *body,
        "}",
    ]


def _guarded(guard: str, title: str, lines: list[str]) -> str:
    head = [f"/* {title} */", f"#ifndef {guard}", f"#define {guard}", "#include <stdint.h>", ""]
    return "\n".join([*head, *lines, "", "#endif", ""])


def _declarations(realised: Realised, name: str) -> list[str]:
    """Return a filter's constants and coefficients."""
    quantised = realised.quantised
    values, kind, unit = _held(realised)
    n, upper = len(values), name.upper()
    lines = [f"#define {upper}_SAMPLE_RATE {realised.sample_rate_hz:.0f}"]
    if realised.scaling is not None:
        n_bits = realised.scaling.headroom_bits
        lines += [
            f"#define {upper}_HEADROOM {n_bits} /* bits by which the input is shifted down, or it may overflow */"
        ]
    if realised.taps is not None:
        lines += [f"#define {upper}_TAPS {n}", f"/* {unit} */"]
        if quantised is not None:
            lines += [f"#define {upper}_SHIFT {int(quantised.shift)} /* multiply the sum by 2^shift */"]
        return [*lines, f"static const {kind} {name}[{n}] = {{", *_c_lines(values), "};"]
    lines += [
        f"#define {upper}_SECTIONS {n}",
        f"/* y = ({recursion(realised)}) 2^shift; per section b0, b1, b2, a1, a2;",
        f"   {unit} */",
    ]
    if realised.denominator == "added":
        lines += ["/* a1 and a2 are negated, for hardware that adds them. */"]
    if quantised is not None:
        shifts = ", ".join(str(int(item)) for item in quantised.shift)
        lines += [f"static const int {name}_shift[{n}] = {{{shifts}}};"]
        if realised.scaling is not None:
            noise_db, wide_noise_db = realised.scaling.noise_db, realised.scaling.wide_noise_db
            lines += [
                f"/* Round-off noise at the output: {wide_noise_db:.0f} dB re full scale with y' and y'' as wide as",
                f"   the sum, {noise_db:.0f} dB if they are rounded to words. */",
            ]
    rows = [f"    {{{', '.join(_c_number(item) for item in row)}}}," for row in values]
    return [*lines, f"static const {kind} {name}[{n}][5] = {{", *rows, "};"]


def _held(realised: Realised) -> tuple[NDArray[np.generic], str, str]:
    """Return a filter's numbers, their C type and their unit."""
    if (quantised := realised.quantised) is not None:
        bits = next(size for size in (8, 16, 32, 64) if size >= quantised.format.n_bits)
        unit = f"units of 2^-{quantised.format.fraction_bits} ({quantised.format})"
        return quantised.words, f"int{bits}_t", unit
    values = realised.held if realised.taps is None else realised.taps
    # Single precision where that is exact.
    if bool((values == values.astype(np.float32)).all()):
        return values.astype(np.float32), "float", "single precision"
    return values.astype(np.float64), "double", "double precision"


def _data_type(realised: Realised) -> str | None:
    """Return the C type of samples; None if none can be run."""
    if realised.quantised is None:
        return "double"
    words = realised.quantised.format
    fits = words.n_bits <= MAX_RUN_BITS and int(np.max(realised.quantised.shift)) <= words.fraction_bits
    return "int32_t" if fits else None


def _run(realised: Realised, name: str) -> list[str]:
    """Return the state of a filter and its function per sample."""
    upper, is_fir = name.upper(), realised.taps is not None
    n = f"{upper}_{'TAPS' if is_fir else 'SECTIONS'}"
    sign = "+" if realised.denominator == "added" else "-"
    if realised.quantised is None:
        if is_fir:
            return [
                f"typedef struct {{ double x[{n}]; int at; }} {name}_state;",
                f"static inline double {name}_step({name}_state *s, double x) {{",
                "    double y = 0;",
                f"    s->at = (s->at + {n} - 1) % {n};",
                "    s->x[s->at] = x;",
                f"    for (int i = 0; i < {n}; i++) y += {name}[i] * s->x[(s->at + i) % {n}];",
                "    return y;",
                "}",
            ]
        return [
            "/* Samples and states in double: in float, round-off adds noise in the bass. */",
            f"typedef struct {{ double z[{n}][4]; }} {name}_state;",
            f"static inline double {name}_step({name}_state *s, double x) {{",
            f"    for (int i = 0; i < {n}; i++) {{",
            f"        const {_held(realised)[1]} *c = {name}[i];",
            "        double *z = s->z[i];",
            f"        double y = c[0] * x + c[1] * z[0] + c[2] * z[1] {sign} c[3] * z[2] {sign} c[4] * z[3];",
            "        z[1] = z[0], z[0] = x, z[3] = z[2], z[2] = y, x = y;",
            "    }",
            "    return x;",
            "}",
        ]
    return _run_words(realised, name, n, sign)


def _run_words(realised: Realised, name: str, n: str, sign: str) -> list[str]:
    """Return the same in fixed point: samples are words of as many bits as the coefficients."""
    assert realised.quantised is not None
    words, upper = realised.quantised.format, name.upper()
    top, extra = (1 << (words.n_bits - 1)) - 1, min(words.n_bits, STATE_BITS - words.n_bits)
    kind = _held(realised)[1]
    begin = [
        f"static inline int32_t {name}_step({name}_state *s, int32_t sample) {{",
        f"    int32_t x = (int32_t)(((int64_t)sample + (((int64_t)1 << {upper}_HEADROOM) >> 1)) >> {upper}_HEADROOM);",
    ]
    end = [
        f"    int64_t out = (int64_t)x * ((int64_t)1 << {upper}_HEADROOM);",
        f"    return out > {top} ? {top} : out < -{top} - 1 ? -{top} - 1 : (int32_t)out;",
        "}",
    ]
    if realised.taps is not None:
        return [
            f"typedef struct {{ int32_t x[{n}]; int at; }} {name}_state;",
            *begin,
            "    uint64_t sum = 0; /* sums may wrap, since their end fits */",
            f"    const int down = {words.fraction_bits} - {upper}_SHIFT;",
            f"    s->at = (s->at + {n} - 1) % {n};",
            "    s->x[s->at] = x;",
            f"    for (int i = 0; i < {n}; i++)",
            f"        sum += (uint64_t)((int64_t){name}[i] * s->x[(s->at + i) % {n}]);",
            "    x = (int32_t)(((int64_t)sum + (((int64_t)1 << down) >> 1)) >> down);",
            *end,
        ]
    return [
        f"/* Fed-back outputs have {words.n_bits + extra} bits, {extra} below the last bit of a sample. */",
        f"typedef struct {{ int32_t x[{n}][2]; int64_t y[{n}][2]; }} {name}_state;",
        *begin,
        f"    for (int i = 0; i < {n}; i++) {{",
        f"        const {kind} *c = {name}[i];",
        f"        const int down = {words.fraction_bits} - {name}_shift[i];",
        "        int32_t *u = s->x[i];",
        "        int64_t *v = s->y[i];",
        f"        const int64_t low_mask = ((int64_t)1 << {extra}) - 1;",
        "        /* Outputs fed back: bits of a sample, and below. Sums may wrap, since their end fits. */",
        "        uint64_t sum = (uint64_t)((int64_t)c[0] * x) + (uint64_t)((int64_t)c[1] * u[0])",
        "            + (uint64_t)((int64_t)c[2] * u[1])",
        f"            {sign} (uint64_t)(c[3] * (v[0] >> {extra})) {sign} (uint64_t)(c[4] * (v[1] >> {extra}));",
        f"        int64_t low = 0 {sign} c[3] * (v[0] & low_mask) {sign} c[4] * (v[1] & low_mask);",
        "        int64_t high = (int64_t)sum, rest = high & (((int64_t)1 << down) - 1);",
        f"        int64_t y = (high >> down) * ((int64_t)1 << {extra})",
        f"            + ((rest * ((int64_t)1 << {extra}) + low + (((int64_t)1 << down) >> 1)) >> down);",
        f"        const int64_t most = {top << extra}LL;",
        "        y = y > most ? most : y < -most ? -most : y;",
        "        u[1] = u[0], u[0] = x, v[1] = v[0], v[0] = y;",
        f"        y = (y + (((int64_t)1 << {extra}) >> 1)) >> {extra};",
        f"        x = y > {top} ? {top} : y < -{top} - 1 ? -{top} - 1 : (int32_t)y;",
        "    }",
        *end,
    ]


def _c_lines(values: NDArray[np.generic]) -> list[str]:
    return [
        "    " + ", ".join(_c_number(value) for value in values[start : start + 8]) + ","
        for start in range(0, len(values), 8)
    ]


def _c_number(value: np.generic) -> str:
    if isinstance(value, np.integer):
        number = int(value)
        # C has no literal for the least 64-bit integer.
        if number == -(2**63):
            return f"(-{-number - 1}LL - 1)"
        return f"{number}LL" if abs(number) >= 2**31 else str(number)
    return f"{value}f" if isinstance(value, np.float32) else str(value)
