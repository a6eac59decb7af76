#!/usr/bin/env bash
# All measurements on a machine with a GPU, in a few minutes, everything under one folder:
#
#     benchmarks/gpu.sh OUT DATA [WHEELS]
#
# DATA holds the PANDAR database and a folder `noise`; `-` simulates both. Needs a python3 (or the one named by
# PYTHON) of 3.11 or later; a torch with CUDA that is installed for it is used as it is. What else is missing is
# installed into a virtual environment, from the folder WHEELS where one is named (a machine without a network), else
# from the package index. A step that fails does not end the run: the last lines say which steps failed, and so does
# the exit status.
set -uo pipefail

if [ $# -lt 2 ]; then
    sed -n '2,10s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
mkdir -p "$1" || exit 2
OUT="$(cd "$1" && pwd)"
DATA_OPTIONS=()
if [ "$2" != "-" ]; then
    [ -d "$2" ] || { echo "gpu.sh: found no folder $2, expected the measured data (or - to simulate)" >&2; exit 2; }
    DATA="$(cd "$2" && pwd)"
    DATA_OPTIONS=(--data "$DATA")
    export PRIME_TEST_DATA="$DATA"
fi
WHEELS="${3:+$(cd "$3" && pwd)}"
cd "$(dirname "$0")/.." || exit 2
PYTHON="${PYTHON:-python3}"
ENVIRONMENT="${PRIME_GPU_ENV:-$(mktemp -d)}"
LOG="$OUT/log.txt"
: >"$LOG"
FAILED=()
export PYTHONPATH="$PWD" PYTHONUNBUFFERED=1

# step NAME LIMIT_S COMMAND...: run it, show and keep what it says, remember a failure, go on.
step() {
    local name="$1" limit="$2" began="$SECONDS"
    shift 2
    echo "=== $name" | tee -a "$LOG"
    if timeout --kill-after=20 "$limit" "$@" 2>&1 | tee -a "$LOG"; then
        echo "=== $name: done in $((SECONDS - began)) s" | tee -a "$LOG"
    else
        echo "=== $name: FAILED after $((SECONDS - began)) s" | tee -a "$LOG"
        FAILED+=("$name")
    fi
}

# A virtual environment that also sees the packages of the python it was made with, even if that is itself one.
prepare() {
    "$PYTHON" -m venv "$ENVIRONMENT" || return
    local own parent
    own="$("$ENVIRONMENT/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    parent="$("$PYTHON" -c 'import site, sys; print("\n".join(p for p in sys.path if p.endswith("-packages")))')"
    echo "$parent" >"$own/parent.pth"
    "$ENVIRONMENT/bin/python" - >"$ENVIRONMENT/needed.txt" <<'PY'
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extras = project["optional-dependencies"]
tests = [each for each in extras["dev"] if not each.startswith(("prime-anc", "mypy", "ruff", "import-linter", "scipy-", "pandas-"))]
print("\n".join(project["dependencies"] + extras["training"] + extras["benchmarks"] + tests))
PY
    sed -i '/^prime-anc/d' "$ENVIRONMENT/needed.txt"
    "$ENVIRONMENT/bin/python" -m pip install --quiet --disable-pip-version-check \
        ${WHEELS:+--no-index --find-links "$WHEELS"} -r "$ENVIRONMENT/needed.txt"
}

step prepare 300 bash -c "$(declare -f prepare); PYTHON='$PYTHON' ENVIRONMENT='$ENVIRONMENT' WHEELS='$WHEELS'; prepare"
[ -x "$ENVIRONMENT/bin/python" ] && PYTHON="$ENVIRONMENT/bin/python"

step machine 60 bash -c "nvidia-smi; '$PYTHON' -c 'import torch; print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name())'"
step tests 300 "$PYTHON" -m pytest -q -m cuda --continue-on-collection-errors -p no:cacheprovider tests
step core 300 "$PYTHON" -m benchmarks core --device cuda --out "$OUT" "${DATA_OPTIONS[@]}"
step trace 120 "$PYTHON" -m benchmarks trace --device cuda --out "$OUT" "${DATA_OPTIONS[@]}"
step http 180 "$PYTHON" -m benchmarks http --device cuda --updates 0 1 3 --out "$OUT" "${DATA_OPTIONS[@]}"
step train 180 "$PYTHON" -m benchmarks train --device cuda --groups 1 30 --out "$OUT" "${DATA_OPTIONS[@]}"
step train-prime 240 "$PYTHON" -m benchmarks train --generator prime --device cuda --groups 1 30 --updates 40 \
    --out "$OUT" "${DATA_OPTIONS[@]}"
step scaling 180 "$PYTHON" -m benchmarks scaling --device cuda --out "$OUT" "${DATA_OPTIONS[@]}"
step report 60 "$PYTHON" -m benchmarks report --out "$OUT"

if [ ${#FAILED[@]} -gt 0 ]; then
    echo "FAILED: ${FAILED[*]} (see $LOG)" | tee -a "$LOG"
    exit 1
fi
echo "All steps done: $OUT" | tee -a "$LOG"
