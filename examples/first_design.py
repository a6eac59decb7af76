"""Design the example listener's filter through a running service and print its prediction.

    python examples/first_design.py --url http://127.0.0.1:8000

Needs the standard library only.
"""

import argparse
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

LISTENER = Path(__file__).resolve().parent / "listener.json"


def design(url: str, request: dict[str, Any], n_updates: int = 1) -> dict[str, Any]:
    """Request a design, refined by up to `n_updates` Gauss-Newton updates.

    A refusal ends the program with the service's explanation.
    """
    post = urllib.request.Request(
        f"{url}/refine?k={n_updates}",
        data=json.dumps(request).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(post, timeout=60) as reply:
            answer: dict[str, Any] = json.load(reply)
    except urllib.error.HTTPError as error:
        problem = json.load(error)
        sys.exit(f"{error.code} {problem['title']}: {problem['detail']}")
    except urllib.error.URLError as error:
        sys.exit(f"No service answers at {url} ({error.reason}). Start one with: make serve")
    return answer


def report(answer: dict[str, Any]) -> str:
    """Format the answer's prediction as a table, one line per one-third-octave band, with the times."""
    prediction, refinement, times = answer["prediction"], answer["refinement"], answer["timings_ms"]
    model = answer["model"]
    lines = [
        f"model {model['name']}@{model['version']}, method {answer['method']}, "
        f"{refinement['applied']} Gauss-Newton update(s)",
        "",
        "  band Hz   predicted noise reduction, dB",
    ]
    for centre_hz, reduction_db in zip(prediction["band_centre_hz"], prediction["noise_reduction_db"], strict=True):
        bar = ("#" if reduction_db > 0 else "-") * round(abs(reduction_db))
        lines.append(f"  {centre_hz:7g}   {reduction_db:6.1f}  {bar}")
    out_of_band = prediction["out_of_band_db"]
    lines += [
        "",
        f"  mean, 50 Hz to 5 kHz {prediction['mean_noise_reduction_db']:.1f} dB; "
        f"change at 20-45 Hz {out_of_band['low']:+.1f} dB, at 9-20 kHz {out_of_band['high']:+.1f} dB",
        "  times in ms: "
        + ", ".join(f"{stage} {value:.2f}" for stage, value in times.items() if value is not None),
    ]
    lines += [f"  warning {warning['code']}: {warning['detail']}" for warning in answer["warnings"]]
    return "\n".join(lines)


def main() -> None:
    """Design through the service at --url and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    url = parser.parse_args().url.rstrip("/")
    answer = design(url, json.loads(LISTENER.read_text(encoding="utf-8")))
    print("The example listener (simulated, examples/listener.json):", report(answer), sep="\n", flush=True)


if __name__ == "__main__":
    main()
