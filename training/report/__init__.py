"""Tables and figures of an experiment, from its rows alone: `python -m training.report OUT`. Never runs a model.

Read in OUT: `cases.csv`, a row for each design and case, and where they are there `core_time.csv`,
`weighted_fxlms.csv` and `paths.npz` (`inputs.py`). Written there: `tables.md`, `splits.md`, the figures and a page
for each listener in `listeners/`. A part whose input is missing is left out, with a line that says so.
"""

from training.report.compose import write_report
from training.report.designs import as_design, design_name
from training.report.rows import CASES_FILE, COLUMNS, ReportError, read_rows, split_means

__all__ = [
    "CASES_FILE",
    "COLUMNS",
    "ReportError",
    "as_design",
    "design_name",
    "read_rows",
    "split_means",
    "write_report",
]
