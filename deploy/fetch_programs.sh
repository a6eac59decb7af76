#!/usr/bin/env bash
# Fetch what tests need beyond Python into FOLDER where this machine lacks it: the programs that read the files of
# deploy/, nginx and Prometheus (with promtool), and the libraries of the sanitizers under which the core is tested.
# Without them, or where they cannot be fetched, their tests are skipped with that reason.
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
for package in libasan8 libubsan1; do
    file="usr/lib/*/${package%[0-9]}.so.*"
    compgen -G "/$file" >/dev/null || compgen -G "$folder/$file" >/dev/null || missing+=("$package")
done
[ "${#missing[@]}" -eq 0 ] && exit 0
command -v apt-get >/dev/null || { echo "no apt-get: ${missing[*]} cannot be fetched"; exit 0; }
# Debian's packages are unpacked, not installed, so that no server is started.
apt-get -qq update || true
for package in "${missing[@]}"; do
    (cd "$folder" && chmod 755 . && apt-get -qq download "$package" && dpkg -x "$package"_*.deb . && rm "$package"_*.deb) \
        || echo "$package cannot be fetched: its tests will be skipped"
done
