#!/usr/bin/env bash
# All measurements on a machine with a GPU, in a few minutes, everything under one folder:
#
#     benchmarks/gpu.sh OUT DATA [WHEELS]
#
# DATA holds the PANDAR database and a folder `noise`; `-` simulates both. Needs a python3 (or the one that PYTHON
# names) of 3.11 or later with `venv` and `ensurepip` (Debian: python3-venv), and, for the kernels, a C compiler and
# Python's headers (gcc, python3-dev). A torch that is installed for it is used as it is; what else is missing goes
# into a virtual environment that is removed again, from the folder WHEELS where one is named (a machine without a
# network), else from the package index. A step that fails does not end the run: the last line says which did, and so
# does the status. Step `machine` fails where the kernels cannot be used, and says why.
# STEPS="core trace" runs those alone, where one command may not take minutes; OUT/results.tar.gz holds all of OUT.
# DEVICE=cpu QUICK=1 runs every step in a short form on a machine without a GPU, with thrice the time for each.
set -uo pipefail

if [ $# -lt 2 ]; then
    sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
if [ "$2" != "-" ] && [ ! -d "$2" ]; then
    echo "gpu.sh: found no folder $2, expected the measured data (or - to simulate)" >&2
    exit 2
fi
mkdir -p "$1" || exit 2
OUT="$(cd "$1" && pwd)"
OPTIONS=(--device "${DEVICE:-cuda}" --out "$OUT")
if [ "$2" != "-" ]; then
    PRIME_TEST_DATA="$(cd "$2" && pwd)"
    export PRIME_TEST_DATA
    OPTIONS+=(--data "$PRIME_TEST_DATA")
fi
GROUP=30  # ten splits, three seeds
UPDATES=40
if [ -n "${QUICK:-}" ]; then
    OPTIONS+=(--quick)
    GROUP=2
    UPDATES=3
fi
PATIENCE=1
[ "${DEVICE:-cuda}" = cpu ] && PATIENCE=3
WHEELS="${3:+$(cd "$3" && pwd)}"
cd "$(dirname "$0")/.." || exit 2
PYTHON="${PYTHON:-python3}"
ENVIRONMENT="$(mktemp -d)"
trap 'rm -rf "$ENVIRONMENT"' EXIT
LOG="$OUT/log.txt"
: >"$LOG"
FAILED=()
export PYTHON ENVIRONMENT WHEELS PYTHONUNBUFFERED=1 PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

# step NAME LIMIT_S COMMAND...: run it if it is asked for, show and keep what it says, remember a failure, go on.
step() {
    local name="$1" limit="$((PATIENCE * $2))" began="$SECONDS"
    case " ${STEPS:-$name} prepare machine " in *" $name "*) ;; *) return ;; esac
    shift 2
    echo "=== $name" | tee -a "$LOG"
    if timeout --kill-after=20 "$limit" "$@" 2>&1 | tee -a "$LOG"; then
        echo "=== $name: done in $((SECONDS - began)) s" | tee -a "$LOG"
    else
        echo "=== $name: FAILED after $((SECONDS - began)) s" | tee -a "$LOG"
        FAILED+=("$name")
    fi
}

# A virtual environment that also sees the packages of the python it is made with, even if that is itself one.
prepare() {
    "$PYTHON" -m venv "$ENVIRONMENT" || return
    local inside="$ENVIRONMENT/bin/python" own
    own="$("$inside" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    "$PYTHON" -c 'import sys; print("\n".join(p for p in sys.path if p.endswith("-packages")))' >"$own/parent.pth"
    "$inside" -c '
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
extras = project["optional-dependencies"]
tools = ("prime-anc", "mypy", "ruff", "import-linter", "scipy-stubs", "pandas-stubs")
used = ("training", "benchmarks", "gpu", "fftw", "dev")
needed = [*project["dependencies"], *(each for extra in used for each in extras[extra])]
print("\n".join(each for each in needed if not each.startswith(tools)))
' >"$ENVIRONMENT/needed.txt" || return
    local install=("$inside" -m pip install --quiet --disable-pip-version-check)
    install+=(${WHEELS:+--no-index --find-links "$WHEELS"})
    "${install[@]}" -r "$ENVIRONMENT/needed.txt" && return
    # One that is not to be had shall not keep out the others: the tests that need it say so.
    local each status=0
    while read -r each; do "${install[@]}" "$each" || status=1; done <"$ENVIRONMENT/needed.txt"
    return "$status"
}
export -f prepare

step prepare 300 bash -c prepare
[ -x "$ENVIRONMENT/bin/python" ] && PYTHON="$ENVIRONMENT/bin/python"
# What the machine is, and why the kernels are not used on it, if they are not.
PROBE='
import sys, torch
print(torch.__version__, torch.version.cuda, torch.cuda.is_available() and torch.cuda.get_device_name())
if sys.argv[1].startswith("cuda"):
    from synthesis.gpu.served import obstacle
    reason = obstacle(torch.device("cuda", 0))
    print("kernels:", reason or "used")
    sys.exit(reason is not None)
'
step machine 180 bash -c 'nvidia-smi; lscpu | grep "Model name"; exec "$@"' bash "$PYTHON" -c "$PROBE" "${DEVICE:-cuda}"

# The tests that need a GPU, each folder in a process of its own: a capture that breaks spoils all later ones of its
# process. A folder without such tests (status 5) is no failure.
tests() {
    local folder status=0
    for folder in $(grep -rlwE "cuda|device" --include="test_*.py" tests | xargs -n1 dirname | sort -u); do
        echo "--- $folder"
        "$PYTHON" -m pytest -q -m cuda --continue-on-collection-errors -p no:cacheprovider "$folder"/test_*.py
        case $? in 0 | 5) ;; *) status=1 ;; esac
    done
    return "$status"
}
export -f tests
step tests 600 bash -c tests
step core 300 "$PYTHON" -m benchmarks core "${OPTIONS[@]}"
step trace 120 "$PYTHON" -m benchmarks trace "${OPTIONS[@]}"
step floor 60 "$PYTHON" -m benchmarks floor --device "${DEVICE:-cuda}" --out "$OUT"
step http 180 "$PYTHON" -m benchmarks http --updates 0 1 3 "${OPTIONS[@]}"
step start 120 "$PYTHON" -m benchmarks start --starts 5 --device "${DEVICE:-cuda}" --out "$OUT" ${QUICK:+--quick}
step train 180 "$PYTHON" -m benchmarks train --groups 1 "$GROUP" "${OPTIONS[@]}"
step train-prime 240 "$PYTHON" -m benchmarks train --generator prime --groups 1 "$GROUP" --updates "$UPDATES" "${OPTIONS[@]}"
step scaling 180 "$PYTHON" -m benchmarks scaling "${OPTIONS[@]}"
step report 60 "$PYTHON" -m benchmarks report --out "$OUT"

tar -czf "$ENVIRONMENT/results.tar.gz" -C "$OUT" --exclude ./results.tar.gz . && mv "$ENVIRONMENT/results.tar.gz" "$OUT"
if [ ${#FAILED[@]} -gt 0 ]; then
    echo "FAILED: ${FAILED[*]} (see $LOG)" | tee -a "$LOG"
    exit 1
fi
echo "All steps done: $OUT" | tee -a "$LOG"
