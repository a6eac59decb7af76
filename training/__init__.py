"""Training and judging of generators: data, splits, simulated measurements, published checkpoints, tables.

``python training/run_splits.py`` tells the story of a run from top to bottom: it reads listeners' paths and
noises (`datasets`), splits them by listener, simulates their calibrations (`calibration`), mixes neighbouring
support listeners (`mixtures`), trains, publishes what it trained, and scores what it published on the listeners
that were held out, beside every other method.
"""
