"""Measurements from users' files: tables, audio and arrays. `synthesis` itself reads and writes nothing."""
