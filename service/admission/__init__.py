"""Admission of requests, decided once, by the head: key, deadline, load and memory."""
