"""The workbench: a page to measure, design, listen, compare and export. The service serves its files."""
