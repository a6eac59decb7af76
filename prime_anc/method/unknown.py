"""What is unknown of paths beside what was measured: theory (22). The core judges it (core/unknown.h).

The uncertainty u_p of the primary path, unknown over known power per band, comes from the best source available:

    a calibration   states it, and u_s of the secondary path
    a coherence c   x = COHERENCE_SHARE times the mean of (1 - c) / c over the band, weighed by r |P|^2. It
                    includes the error microphone's noise, so that a device's model bounds it by MODEL_BOUND times its
                    expectation. Where x exceeds one, it is not bounded, and u_s is x too; elsewhere u_s is zero
    the model       the unknown over known power that is typical of the support's ears, raised by a factor that grows
                    as the response is shorter (CUT_DB); only if the support has such paths
    the response    by its end, and that of the secondary path

If a response has decayed into noise, its last quarter has the power of the quarter before, and all lags hold that much
noise. If it still decays, the decay shows what was cut off. A filter of 2048 taps can match the noise of 2048 lags;
noise beyond them makes a prediction too low, not too high.
"""

from __future__ import annotations

from prime_anc.method.bands import WIDE_BANDS

COHERENCE_SHARE = 0.8
MODEL_BOUND = 2.0
RESPONSE_LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
# Factors (dB) on the model's expectation for responses of these lengths; interpolated over log length.
CUT_DB = (19.5, 5.0, 3.5, 1.2, 0.3, 0.3, -2.0)

# Half-widths of nine-in-ten intervals for the model's own device: of Welch's estimates, and of `/calibrate`'s.
MODEL_INTERVAL_DB = (5.0, 5.0, 4.5, 6.0, 7.0, 9.0, 6.5)

# Level relative to the maximum below which float32 transforms leave rounding errors.
END_OF_RESPONSE = 1e-6

# Largest uncertainty that the ends of a response show.
MOST_UNCERTAIN = 1.0

# Uncertainty above which a band is unknown: where a probe is silent, estimates that are nothing but noise have 0.5 and
# more, and what is there may be 20 dB quieter, so that a filter makes it louder.
UNKNOWN = 0.4

# Uncertainty of the secondary path in bands in which nothing passes the primary: the filter is quiet there.
SILENT_UNCERTAINTY = 1e3

# Mean |P|^2 of a band over that of the loudest below which the system is silent: 60 dB, as above half the rate of a
# converter. The quietest bands of 30 measured ears are at -38 dB.
SILENT = 1e-6

# Length from which a filter matches the noise of less than half of the lags, and little tail is missing.
LONG_SAMPLES = 6144

# Length below which noise cannot be told from the response.
LEAST_SAMPLES = 64

# Power of the last quarter over that of the quarter before, above which the end is noise: -3 dB.
STATIONARY = 0.5

# Half-widths of nine-in-ten intervals of the mean noise reduction, for responses of RESPONSE_LENGTHS samples: of 60
# simulated ducts, rooms, windows, headrests and headsets that were cut to each length; the longest's are those of
# estimates by windows of 8192 samples, which need not rise.
RESPONSE_INTERVAL_DB = (12.0, 10.0, 9.0, 10.0, 6.0, 5.0, 5.0)

# Level of the last two eighths over the quietest of the middle, mean over bands, above which a response rises towards
# its end, as division of spectra leaves it: circular lags make its noise loud at both ends. Exact responses of 200
# simulated systems reach 2 dB, estimates of measured ears have 3 to 9.
RISING_DB = 3.0
# Such an estimate lacks what its windows did not hold: of measured ears 25 times the sound after N_TAPS.
LACKED = 25.0
RISING_INTERVAL_DB = 8.0

# Smaller shares are rounding errors of single precision.
SMALLEST_SHARE = 1e-7

# First of the 31 bands that holds many bins.
RISING_FIRST = WIDE_BANDS.index(26)
