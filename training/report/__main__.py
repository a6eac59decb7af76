"""`python -m training.report OUT`."""

import sys
from pathlib import Path

from training.report.compose import write_report
from training.report.rows import CASES_FILE, ReportError


def main(arguments: list[str]) -> int:
    """Write the report; 2 and one line on standard error where the folder holds no usable rows."""
    if len(arguments) != 1 or not (Path(arguments[0]) / CASES_FILE).is_file():
        print(f"usage: python -m training.report OUT, OUT a run's folder with a {CASES_FILE}", file=sys.stderr)
        return 2
    try:
        print(write_report(Path(arguments[0])))
    except ReportError as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
