#!/usr/bin/env bash
# Fetch the programs that read the files of deploy/, nginx and Prometheus (with promtool), into FOLDER where this
# machine lacks them. Without them, or where they cannot be fetched, their tests are skipped with that reason.
#
#     deploy/fetch_programs.sh FOLDER
set -euo pipefail
folder="$1"
mkdir -p "$folder"
export PATH="$folder/usr/bin:$folder/usr/sbin:$PATH"
missing=()
for program in prometheus nginx; do
    command -v "$program" >/dev/null || missing+=("$program")
done
[ "${#missing[@]}" -eq 0 ] && exit 0
command -v apt-get >/dev/null || { echo "no apt-get: ${missing[*]} cannot be fetched"; exit 0; }
# Debian's packages are unpacked, not installed, so that no server is started.
apt-get -qq update || true
for program in "${missing[@]}"; do
    (cd "$folder" && chmod 755 . && apt-get -qq download "$program" && dpkg -x "$program"_*.deb . && rm "$program"_*.deb) \
        || echo "$program cannot be fetched: its tests will be skipped"
done
