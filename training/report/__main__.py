"""`python -m training.report RUN [OUT]`, with RUN a run's folder or a packed run (`training/packed_run.py`).

The report of a folder is written into it. A packed run is unpacked into OUT with its report; without OUT the report
is only printed.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from training.packed_run import unpack
from training.report.compose import write_report
from training.report.rows import CASES_FILE, ReportError
from training.run_folder import RunError


def main(arguments: list[str]) -> int:
    """Write the report. Without usable rows, print one line on standard error and return 2."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    run, *out = map(Path, arguments or ["."])
    is_packed = run.is_file() and len(out) <= 1
    if not is_packed and (out or not (run / CASES_FILE).is_file()):
        usage = f"RUN, a run's folder with a {CASES_FILE}, or FILE [OUT], a packed run"
        print(f"usage: python -m training.report {usage}", file=sys.stderr)
        return 2
    try:
        with TemporaryDirectory() as temporary:
            folder = run if not is_packed else out[0] if out else Path(temporary)
            if is_packed:
                unpack(run, folder)
            print(write_report(folder))
    except (ReportError, RunError, OSError) as error:
        print(f"report: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
