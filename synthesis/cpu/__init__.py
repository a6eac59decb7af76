"""The served design on a processor: the reference's recipe for one ear at a time, on NumPy arrays and FFTW's plans.

The package around this one says what is computed; here the same numbers come out several times faster. On arrays of
a few thousand values the reference spends more on each operation's overhead than on its arithmetic, and computes
for whole batches what a single ear may skip. What is kept between calls: transform plans and buffers, and
everything that depends on the grid or the weights alone. Every module names the reference that it follows and is
tested against it.
"""

from synthesis.cpu.synthesizer import CpuLogSynthesizer, CpuSynthesizer, EarDesign, quiet, served

__all__ = ["CpuLogSynthesizer", "CpuSynthesizer", "EarDesign", "quiet", "served"]
