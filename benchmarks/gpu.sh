#!/usr/bin/env bash
# All measurements on a machine with a GPU, in three calls of at most nine minutes:
#
#     benchmarks/gpu.sh a|b|c OUT DATA [WHEELS]
#
#   a  tests of the backend, core times with few rounds
#   b  core times in full
#   c  the service over HTTP, its start, training, the service's tests on a GPU
#
# DATA holds the PANDAR database and a folder `noise`; `-` simulates both. The first of $PYTHON, python3, python3.12
# and python3.11 that can import torch is used; torch itself is never installed. Other missing packages go to a temporary
# folder: from the folder WHEELS if given, without a network, else from the package index. To fill WHEELS for Python 3.12:
#
#     benchmarks/gpu.sh needs | pip download --dest WHEELS --only-binary :all: --python-version 3.12 -r /dev/stdin pip
#
# Of these 130 MB all but 15 are NumPy, SciPy, Numba and llvmlite: leave out those that the interpreter there has.
# A failed step does not end the call: the last line names the failed steps, and the status counts them. OUT holds a log,
# at most three JSON files and results.tar.gz with all of it, renewed after every step.
# DEVICE=cpu QUICK=1 runs a short form without a GPU.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2

# Requirements of the service beside torch, of the benchmarks' client and trainer, and of the tests.
needs() {
    "$1" -c '
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
print(*project["dependencies"], "scipy", "httpx", "numba", "pytest", sep="\n")
'
}

if [ "${1:-}" = needs ]; then
    needs "${PYTHON:-python3}"
    exit
fi
if [ $# -lt 3 ] || [[ ! "$1" =~ ^[abc]$ ]]; then
    sed -n '2,24s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
if [ "$3" != - ] && [ ! -d "$3" ]; then
    echo "gpu.sh: the folder $3 does not exist; name the measured data, or - to simulate" >&2
    exit 2
fi
CALL="$1"
mkdir -p "$2" || exit 2
OUT="$(cd "$2" && pwd)"
DEVICE="${DEVICE:-cuda}"
OPTIONS=(--device "$DEVICE" --out "$OUT" ${QUICK:+--quick})
EARS=()
if [ "$3" != - ]; then
    EARS=(--data "$(cd "$3" && pwd)")
fi
WHEELS="${4:+$(cd "$4" && pwd)}"
LIMIT_S=$([ "$DEVICE" = cpu ] && echo 3000 || echo 520)
LOG="$OUT/log-$CALL.txt"
FAILED=()
: >"$LOG"

for python in "${PYTHON:-}" python3 python3.12 python3.11; do
    [ -n "$python" ] && "$python" -c 'import torch' 2>/dev/null && break
    python=
done
if [ -z "$python" ]; then
    echo "gpu.sh: no python3 here can import torch; name one that can as PYTHON" | tee -a "$LOG" >&2
    exit 2
fi
PACKAGES="$(mktemp -d)"
trap 'rm -rf "$PACKAGES"' EXIT
# Behind the project, and in front of what the interpreter has.
export PYTHONPATH="$PWD:$PACKAGES" PYTHONUNBUFFERED=1

# step NAME SECONDS COMMAND...: run it, show and keep its output, record a failure, renew the archive, continue.
step() {
    local name="$1" limit="$2" began="$SECONDS"
    shift 2
    [ "$limit" -gt $((LIMIT_S - SECONDS)) ] && limit=$((LIMIT_S - SECONDS))
    [ "$DEVICE" = cpu ] && limit=$((LIMIT_S - SECONDS))
    echo "=== $name" | tee -a "$LOG"
    if [ "$limit" -gt 5 ] && timeout --kill-after=10 "$limit" "$@" 2>&1 | tee -a "$LOG"; then
        echo "=== $name: done in $((SECONDS - began)) s" | tee -a "$LOG"
    else
        echo "=== $name: FAILED after $((SECONDS - began)) s" | tee -a "$LOG"
        FAILED+=("$name")
    fi
    tar -czf "$PACKAGES/results.tar.gz" -C "$OUT" --exclude ./results.tar.gz . &&
        mv "$PACKAGES/results.tar.gz" "$OUT/results.tar.gz"
}

# Only what this interpreter lacks, and the project's version, which the service reads from its installation. pip
# resolves against the interpreter's packages (--target alone would install all again). An interpreter without pip runs
# the one among the wheels.
install() {
    local pip=("$python" -m pip) from=(${WHEELS:+--no-index --find-links "$WHEELS"}) missing version
    version="$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)"
    mkdir -p "$PACKAGES/prime_anc-$version.dist-info"
    printf 'Metadata-Version: 2.1\nName: prime-anc\nVersion: %s\n' "$version" \
        >"$PACKAGES/prime_anc-$version.dist-info/METADATA"
    "${pip[@]}" --version >/dev/null 2>&1 || pip=("$python" "$(ls "$WHEELS"/pip-*.whl | tail -1)/pip")
    missing="$(needs "$python" | "$python" -c '
import re, sys
from importlib.metadata import PackageNotFoundError, distribution
for line in sys.stdin.read().split():
    try:
        distribution(re.match(r"[\w.-]+", line)[0])
    except PackageNotFoundError:
        print(line)
')"
    [ -z "$missing" ] && return
    # shellcheck disable=SC2086  # split into words
    "${pip[@]}" install --quiet --disable-pip-version-check "${from[@]}" \
        --dry-run --report "$PACKAGES/report.json" $missing &&
        "$python" -c '
import json, sys
for package in json.load(sys.stdin)["install"]:
    print(package["metadata"]["name"], package["metadata"]["version"], sep="==")
' <"$PACKAGES/report.json" >"$PACKAGES/missing.txt" &&
        "${pip[@]}" install --quiet --disable-pip-version-check "${from[@]}" \
            --no-deps --target "$PACKAGES" --requirement "$PACKAGES/missing.txt"
}

machine() {
    nvidia-smi || true
    lscpu | grep "Model name"
    "$python" -c '
import sys, numpy, torch
print(sys.version, numpy.__version__, torch.__version__, torch.version.cuda)
print(torch.cuda.is_available() and torch.cuda.get_device_name())'
}

# Other versions of libraries may emit other warnings, which are no failures here.
tests() {
    "$python" -m pytest -q -p no:cacheprovider -o addopts=--import-mode=importlib -o filterwarnings=default "$@"
    local status=$?
    [ "$status" -eq 5 ] && echo "(no test here needs a GPU)" && return
    return "$status"
}
export -f install needs machine tests
export python PACKAGES WHEELS

step install 150 bash -c install
step machine 30 bash -c machine
case "$CALL" in
a)
    step tests 400 bash -c 'tests "$@"' - ${QUICK:+-k host} tests/method/backends/test_cuda.py
    step core 300 "$python" -m benchmarks core "${OPTIONS[@]}" "${EARS[@]}" --rounds 30
    ;;
b)
    step core 500 "$python" -m benchmarks core "${OPTIONS[@]}" "${EARS[@]}" --prime
    ;;
c)
    step start 300 "$python" -m benchmarks start "${OPTIONS[@]}" --starts 2
    step load 200 "$python" -m benchmarks load "${OPTIONS[@]}" --requests 200 --seconds 30
    step service 120 bash -c 'tests tests/service/test_gpu.py'
    step train 150 "$python" -m benchmarks train "${OPTIONS[@]}" "${EARS[@]}"
    ;;
esac

if [ ${#FAILED[@]} -gt 0 ]; then
    echo "FAILED: ${FAILED[*]} (see $LOG)" | tee -a "$LOG"
    exit 1
fi
echo "All steps of $CALL done: $OUT" | tee -a "$LOG"
