"""Acoustic paths from recordings and from files.

posterior    paths from recordings, under a prior from earlier listeners' paths (`prior`)
estimate     paths from plain spectra, by which recordings are judged (`figures`, `signals`, `clocks`, `hum`)
calibration  calibration of one ear from the takes of a condition
checks       verdict on a calibration, with its reasons
verify       comparison of a running filter with its prediction
files        paths, filters and recordings from users' files
"""
