"""Fit an earphone: from recordings to a header for its chip, with plots.

    prime-anc example                  # off.wav, on.wav: recordings of a simulated ear
    python examples/fit_an_earphone.py off.wav on.wav --gain 0.35

Writes ear.json, filter.json, chip.h and fit.png. Needs matplotlib.
"""

import argparse

import prime_anc


def main() -> None:
    """Calibrate, design, export and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "off", help="recording with the loudspeaker silent: outer microphone, microphone at the ear"
    )
    parser.add_argument("on", help="recording while the loudspeaker plays the outer microphone's signal")
    parser.add_argument("--gain", type=float, required=True, help="gain with which it plays")
    request = parser.parse_args()

    ear = prime_anc.calibrate(request.off, request.on, gain=request.gain)
    ear.save("ear.json")
    print(ear)
    for reason in ear.verdict.reasons:
        print(f"{reason.code}: {reason.detail}")

    filt = prime_anc.design(ear, k=3)
    filt.save("filter.json")
    print(filt)

    chip = prime_anc.export(filt, ear, "chip.h", sections=6, format="q1.23")
    print(f"chip.h loses {chip.loss_db:.1f} dB: {chip}")

    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, figsize=(8, 8), layout="constrained")
    ear.plot(above)
    filt.plot(below, "2048 taps")
    chip.plot(below, "six sections of 24 bits")
    figure.savefig("fit.png")


if __name__ == "__main__":
    main()
