#!/usr/bin/env bash
# Fetch what tests need beyond Python into FOLDER where this machine lacks it: the programs that read the files of
# deploy/, nginx and Prometheus (with promtool), a Chromium for the page, and the libraries of the sanitizers under
# which the core is tested. Without them, or where they cannot be fetched, their tests are skipped with that reason.
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
command -v chromium >/dev/null || missing+=(chromium-headless-shell)
for package in libasan8 libubsan1; do
    file="usr/lib/*/${package%[0-9]}.so.*"
    compgen -G "/$file" >/dev/null || compgen -G "$folder/$file" >/dev/null || missing+=("$package")
done
[ "${#missing[@]}" -eq 0 ] && exit 0
command -v apt-get >/dev/null || { echo "no apt-get: ${missing[*]} cannot be fetched"; exit 0; }
apt-get -qq update || true
cd "$folder"
chmod 755 .
# Debian's packages, with those that they need, are unpacked, not installed, so that no server is started.
unpack() {
    packages="$(apt-get -qq -s install --no-install-recommends "$1" | awk '/^Inst/ {print $2}')"
    apt-get -qq download $packages && for file in *.deb; do dpkg -x "$file" . && rm "$file" || return; done
}
for package in "${missing[@]}"; do
    unpack "$package" || echo "$package cannot be fetched: its tests will be skipped"
done
if [ ! -e usr/bin/chromium ] && [ -e usr/lib/chromium ]; then
    cat >usr/bin/chromium <<'END'
#!/bin/sh
here="$(dirname "$0")/../.."
libraries="$(echo "$here"/usr/lib/*-linux-gnu)"
LD_LIBRARY_PATH="$libraries:$libraries/pulseaudio" exec "$here/usr/lib/chromium/chromium-headless-shell" "$@"
END
    chmod 755 usr/bin/chromium
fi
