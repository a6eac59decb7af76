"""Acoustic paths from recordings and from files.

estimate     paths from recordings, given what earlier listeners' paths were like (`prior`)
calibration  a calibration from the takes of a condition
checks       whether a calibration may be used: findings and a verdict
verify       whether a filter that runs does what was predicted
files        paths, filters and recordings from users' files
"""
