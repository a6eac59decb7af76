"""Simulated listeners: an electro-acoustic earphone, so that every command runs on a machine with no data.

The earphone is a lumped acoustic circuit (pressure as voltage, volume velocity as current; Beranek & Mellow,
*Acoustics*, ch. 3-4, 14) in SI units. The loudspeaker's diaphragm, backed by a back volume with a vent, works
into a small front volume, where the error microphone sits; a nozzle leads from there to the ear canal; the
canal leaks to the outside, past the tip and through it::

          p_drive                                            p_out (outer microphone)
             |                                                 |
    outside -+- vent + back volume - diaphragm -+- nozzle -+- leak past the tip / elastic tip
                                                |          |
                                         front volume   ear canal
                                         (error mic)

- Secondary path: from the amplifier's input to the pressure in the front volume. The diaphragm's resonance
  peaks near 150 Hz; below it the leak and the electronics' high-pass take over, at 700 Hz the nozzle's air and
  the canal draw the pressure down, at 4 kHz nozzle and front volume resonate. Converters add 2.7 samples.
- Primary path: from the pressure outside, through leak, tip and vent, to the same point: 0 dB at low
  frequencies, falling from 250 Hz on, with the peak at 4 kHz again.
- Beyond the circuit: sound scattered at head and pinna (a short tail, half a millisecond) and a diffuse tail
  over the whole response, fading from both ends as the circular division of two measured spectra leaves it. It
  is incoherent with the direct part, and what lies beyond 2048 taps no filter of that length can make: that
  is what limits WMMSE to about 22 dB on measured ears, and so it must here.

Listeners differ in every element (log-normal); a listener's ears share part of it. The left ear faces the
source; the right one lies in the shadow and sits looser, as in PANDAR. The nominal values and spreads come from
fitting the circuit to the one-third-octave levels of PANDAR's ears; the levels agree with PANDAR's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.arrays import minimum_phase_response
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from training.datasets.path_pairs import EarSide, Float64, PathDataset, PathPair, fingerprint

N_SAMPLES = 8192

_RHO_C2_PA = 1.2 * 343.0**2  # bulk modulus of air: a volume V has the acoustic compliance V / _RHO_C2_PA
_CIRCUIT_N_FFT = 65_536
_SHARED_VARIANCE = 0.4  # share of a listener's variance that is common to both ears


@dataclass(frozen=True)
class Earphone:
    """Elements of one ear; the defaults are the nominal ear, facing the source.

    Resistances in Pa s / m^3, masses in kg / m^4, compliances in m^3 / Pa, volumes in cm^3.
    """

    drive: float = 5.0  # Pa at the diaphragm per unit of the loudspeaker signal
    diaphragm_resistance: float = 1.6e6
    diaphragm_mass: float = 7.6e4
    diaphragm_compliance: float = 2.6e-11
    back_volume_cm3: float = 0.10
    vent_resistance: float = 1.0e8
    vent_mass: float = 2.2e4
    front_volume_cm3: float = 0.035
    nozzle_resistance: float = 9.0e6
    nozzle_mass: float = 6.0e3
    canal_volume_cm3: float = 1.7  # including the eardrum's compliance
    canal_resistance: float = 9.0e4
    leak_resistance: float = 7.5e7
    leak_mass: float = 8.0e2
    tip_resistance: float = 1.3e7
    tip_mass: float = 3.5e3
    tip_volume_cm3: float = 0.042  # volume of air as compliant as the tip
    high_pass_hz: float = 90.0  # first order, of amplifier and converter
    low_pass_hz: float = 2.8e4  # second order, coincident poles
    secondary_delay_samples: float = 1.6
    primary_delay_samples: float = 0.2
    scatter_gain: float = 1.0
    tail_gain: float = 1.0


# Standard deviations over listeners, natural logarithm.
_SPREAD = {
    "drive": 0.02,
    "front_volume_cm3": 0.05,
    "nozzle_resistance": 0.2,
    "nozzle_mass": 0.09,
    "canal_volume_cm3": 0.14,
    "leak_resistance": 0.08,
    "leak_mass": 0.2,
    "tip_resistance": 0.25,
    "tip_mass": 0.2,
    "tip_volume_cm3": 0.15,
    "secondary_delay_samples": 0.006,
    "primary_delay_samples": 0.1,
    "scatter_gain": 0.15,
    "tail_gain": 0.2,
}
# Differences and larger spreads of the right ear. Its sound comes around the head from behind, where it reaches the
# leak before the outer microphone: a negative delay.
_LOOSER = {"leak_resistance": 6.0e7, "primary_delay_samples": -0.8}
_LOOSER_SPREAD = {"leak_resistance": 0.72, "canal_volume_cm3": 0.28, "scatter_gain": 0.2}

# Levels in dB re 1 of the additions to the circuit's primary path.
_LEVEL_KNOTS_HZ = (20, 50, 100, 200, 400, 800, 1250, 2000, 3150, 4000, 5000, 6300, 8000, 10000, 12500)
_SCATTER_DB: dict[EarSide, tuple[float, ...]] = {
    "left": (-70, -60, -50, -40, -36, -32, -32, -36, -36, -32, -28, -24, -24, -24, -26),
    "right": (-70, -60, -50, -40, -34, -29, -29, -34, -34, -29, -24, -21, -22, -20, -20),
}
_TAIL_DB: dict[EarSide, tuple[float, ...]] = {
    "left": (-14, -22, -25, -27, -30, -35, -37, -39, -37, -28, -24, -27, -19, -29, -39),
    "right": (-14, -23, -23, -21, -21, -24, -24, -27, -27, -15, -9, -12, -18, -14, -14),
}
_SCATTER_DECAY_SAMPLES = 24.0
_TAIL_DECAY_SAMPLES = 1500.0
_WRAPPED_TAIL_GAIN = 0.7  # level of the tail's end relative to its beginning


def simulate_listeners(n_listeners: int, seed: int = 0) -> PathDataset:
    """Draw listeners with two ears each.

    Parameters
    ----------
    n_listeners
        How many, at least 1.
    seed
        Listener i depends on the seed and i alone, whatever `n_listeners` is.

    Returns
    -------
    PathDataset
        Originals of 8192 samples, named ``simulated-001`` and so on, `is_simulated` set. A secondary path has less than
        -50 dB of its energy after 2048 samples.
    """
    pairs = tuple(pair for listener in range(1, n_listeners + 1) for pair in _listener(listener, seed))
    return PathDataset(
        name="simulated",
        pairs=pairs,
        licence="MIT",
        attribution="simulated earphones of PRIME-ANC; elements fitted to levels of PANDAR (MIT, RWTH Aachen)",
        fingerprint=_fingerprint(n_listeners, seed),
        is_simulated=True,
    )


def circuit_spectra(
    earphone: Earphone, frequency_hz: Float64
) -> tuple[NDArray[np.complex128], NDArray[np.complex128]]:
    """Evaluate the circuit's primary and secondary path at frequencies [n] > 0 with delays, complex [n].

    Kirchhoff's law at the two inner nodes, front volume F and canal C, joined by the nozzle:

        Y_F p_F - Y_n p_C = Y_d (drive + b p_out),      Y_C p_C - Y_n p_F = Y_l p_out,

    Y_d being the diaphragm with its back volume, Y_l leak and tip together, and b the share of the outside pressure
    that the vent passes into the back volume.
    """
    ear = earphone
    s = 2j * np.pi * frequency_hz

    def volume(cm3: float) -> NDArray[np.complex128]:
        return np.asarray(s * (cm3 * 1e-6 / _RHO_C2_PA), dtype=np.complex128)

    vent = 1 / (ear.vent_resistance + s * ear.vent_mass)
    back = vent + volume(ear.back_volume_cm3)
    diaphragm = 1 / (
        ear.diaphragm_resistance + s * ear.diaphragm_mass + 1 / (s * ear.diaphragm_compliance) + 1 / back
    )
    nozzle = 1 / (ear.nozzle_resistance + s * ear.nozzle_mass)
    canal = 1 / (ear.canal_resistance + 1 / volume(ear.canal_volume_cm3))
    leak = 1 / (ear.leak_resistance + s * ear.leak_mass) + 1 / (
        ear.tip_resistance + s * ear.tip_mass + 1 / volume(ear.tip_volume_cm3)
    )
    at_front = diaphragm + volume(ear.front_volume_cm3) + nozzle
    at_canal = nozzle + canal + leak
    determinant = at_front * at_canal - nozzle**2

    primary = (at_canal * diaphragm * vent / back + nozzle * leak) / determinant
    electronics = s / (s + 2 * np.pi * ear.high_pass_hz) / (1 + s / (2 * np.pi * ear.low_pass_hz)) ** 2
    secondary = ear.drive * electronics * at_canal * diaphragm / determinant
    one_sample = s / SAMPLE_RATE_HZ
    primary_path: NDArray[np.complex128] = primary * np.exp(-one_sample * ear.primary_delay_samples)
    secondary_path: NDArray[np.complex128] = secondary * np.exp(-one_sample * ear.secondary_delay_samples)
    return primary_path, secondary_path


def _listener(number: int, seed: int) -> list[PathPair]:
    shared = np.random.default_rng([seed, number]).standard_normal(len(_SPREAD))
    pairs = []
    ears: tuple[EarSide, ...] = ("left", "right")
    for index, ear in enumerate(ears):
        generator = np.random.default_rng([seed, number, index])
        individual = generator.standard_normal(len(_SPREAD))
        deviation = np.sqrt(_SHARED_VARIANCE) * shared + np.sqrt(1 - _SHARED_VARIANCE) * individual
        primary, secondary = _responses(_drawn_earphone(ear, deviation), ear, generator)
        pairs.append(
            PathPair(
                listener=f"simulated-{number:03d}",
                ear=ear,
                condition="original",
                fit="simulated",
                primary=primary,
                secondary=secondary,
            )
        )
    return pairs


def _drawn_earphone(ear: EarSide, deviation: Float64) -> Earphone:
    """Draw an ear: the nominal one with the elements of `_SPREAD` moved by deviations (in SDs, in their order)."""
    is_looser = ear == "right"
    nominal = replace(Earphone(), **_LOOSER) if is_looser else Earphone()
    spread = _SPREAD | _LOOSER_SPREAD if is_looser else _SPREAD
    drawn = {
        name: getattr(nominal, name) * float(np.exp(spread[name] * z))
        for name, z in zip(_SPREAD, deviation, strict=True)
    }
    return replace(nominal, **drawn)


def _responses(earphone: Earphone, ear: EarSide, generator: np.random.Generator) -> tuple[Float64, Float64]:
    """Compute primary and secondary impulse response, [8192]."""
    frequency_hz = np.asarray(np.fft.rfftfreq(_CIRCUIT_N_FFT, 1 / SAMPLE_RATE_HZ), dtype=np.float64)
    frequency_hz[0] = 1e-3  # the limit towards 0 Hz; the circuit divides by s
    primary, secondary = (
        np.fft.irfft(spectrum)[:N_SAMPLES] for spectrum in circuit_spectra(earphone, frequency_hz)
    )
    sample = np.arange(N_SAMPLES)
    onset = round(earphone.primary_delay_samples) + 2
    scatter = np.where(sample < onset, 0, np.exp(-(sample - onset) / _SCATTER_DECAY_SAMPLES))
    tail = np.exp(-sample / _TAIL_DECAY_SAMPLES) + _WRAPPED_TAIL_GAIN * np.exp(
        -(N_SAMPLES - sample) / _TAIL_DECAY_SAMPLES
    )
    primary = (
        primary
        + earphone.scatter_gain * _coloured(generator, scatter, _SCATTER_DB[ear])
        + earphone.tail_gain * _coloured(generator, tail, _TAIL_DB[ear])
    )
    return primary, secondary


def _coloured(generator: np.random.Generator, envelope: Float64, levels_db: tuple[float, ...]) -> Float64:
    """Draw Gaussian noise under an envelope [8192], coloured to the expected levels.

    The colouring filter is minimum-phase, so that the noise stays causal and lengthens little.
    """
    spectrum = np.fft.rfft(generator.standard_normal(N_SAMPLES) * envelope, _CIRCUIT_N_FFT)
    spectrum /= np.sqrt(np.sum(envelope**2))
    frequency_hz = np.fft.rfftfreq(_CIRCUIT_N_FFT, 1 / SAMPLE_RATE_HZ)
    level_db = np.interp(np.log(np.maximum(frequency_hz, 1)), np.log(_LEVEL_KNOTS_HZ), levels_db)
    colour = minimum_phase_response(level_db * (np.log(10) / 20))
    return np.fft.irfft(spectrum * colour)[:N_SAMPLES]


def _fingerprint(n_listeners: int, seed: int) -> str:
    """Compute a digest of all numbers that determine the responses."""
    elements = Earphone(), _SPREAD, _LOOSER, _LOOSER_SPREAD, _SHARED_VARIANCE
    tails = _LEVEL_KNOTS_HZ, _SCATTER_DB, _TAIL_DB, _SCATTER_DECAY_SAMPLES, _TAIL_DECAY_SAMPLES, _WRAPPED_TAIL_GAIN
    return fingerprint([("simulated", repr((n_listeners, seed, elements, tails)).encode())])
