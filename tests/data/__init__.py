"""Six measured ears, for tests where there is no database of measurements."""
