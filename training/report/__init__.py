"""Tables and figures of an experiment, made from its rows without running a model: `python -m training.report OUT`.

Reads `cases.csv` in OUT, one row for each design and case, and the optional files `core_time.csv`,
`weighted_fxlms.csv` and `paths.npz` (`inputs.py`). Writes `tables.md`, `splits.md`, the figures and a page for each
listener in `listeners/`. Parts whose input is missing are left out, and the report lists them.
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
