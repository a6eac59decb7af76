"""First taps: path ratio, features and generator, finite Wiener filter, WMMSE (theory (2) to (11))."""
