"""Measurements from users' files: tables, audio and arrays. Only this package reads files."""
