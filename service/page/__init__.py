"""Workbench: a page, served by the service, to measure, design, listen, compare and export."""
