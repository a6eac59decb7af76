"""Acoustic paths from recordings and from files.

estimate     paths from recordings, under a prior from earlier listeners' paths (`prior`)
calibration  calibration of one ear from the takes of a condition
checks       verdict on a calibration, with its reasons
verify       comparison of a running filter with its prediction
files        paths, filters and recordings from users' files
"""
