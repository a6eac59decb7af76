"""One filter for two ways of wearing, a late signal chain and a loop, through the Python client.

    python examples/worn_design.py --url http://127.0.0.1:8000
    python examples/worn_design.py --data PANDAR_FOLDER --ear right

Without a folder the example listener is the first way of wearing; the second, and the path from the loudspeaker to
the outer microphone, are made up from it. With PANDAR all of it is measured: closed and pressed to the ear.

Needs the client (pip install -e '.[client]'); PANDAR needs '.[training]'.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from prime_anc_client import Client, Condition

LATENCIES = (0, 1, 2, 4, 8)


def made_up() -> list[Condition]:
    """Return the example listener, and the same pressed to the ear: a louder loudspeaker, less noise from outside."""
    document = json.loads((Path(__file__).parent / "listener.json").read_text(encoding="utf-8"))
    primary, secondary = (np.array(document[name]["impulse_response"]) for name in ("primary", "secondary"))
    coherence, feedback = document["coherence"], 0.02 * np.pad(secondary, (10, 0))[: len(secondary)]
    return [
        Condition(primary, secondary, coherence, feedback, label="closed"),
        Condition(0.9 * primary, 1.2 * secondary, coherence, 0.5 * feedback, label="pressed"),
    ]


def measured(data: Path, ear: str) -> list[Condition]:
    """Read PANDAR's cases 102 and 101."""
    from training.datasets.pandar import read_handling

    cases = {pair.label: pair for pair in read_handling(data).pairs if pair.ear == ear}
    return [
        Condition(pair.primary, pair.secondary, feedback=pair.feedback, label=label)
        for pair, label in ((cases["102"], "closed"), (cases["101"], "pressed"))
    ]


def main() -> None:
    """Print the effect of one filter in both ways of wearing, its loop, and the same with a latency."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--ear", choices=("left", "right"), default="left")
    options = parser.parse_args()
    conditions = measured(options.data, options.ear) if options.data else made_up()
    with Client(options.url) as client:
        design = client.refine_conditions(conditions, leave_one_out=True)
        print("noise reduction, dB   one for both   for the other alone")
        for found in design.conditions:
            print(f"{found.label:20} {found.noise_reduction_db:13.1f} {found.left_out_noise_reduction_db:21.1f}")
        loop = design.loop
        assert loop is not None
        print(f"loop: stable {loop.stable}, gain margin {loop.gain_margin_db:.1f} dB, costs {loop.loss_db:.1f} dB")
        print("latency, samples   noise reduction, dB   loudest band, dB louder   warnings")
        for samples in LATENCIES:
            late = client.refine_conditions(conditions, latency_samples=samples)
            louder_db = max(0.0, -float(late.prediction.noise_reduction_db.min()))
            codes = " ".join(late.warnings)
            print(f"{samples:16} {late.noise_reduction_db:21.1f} {louder_db:25.1f}   {codes}")


if __name__ == "__main__":
    main()
