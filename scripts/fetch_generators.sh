#!/usr/bin/env bash
# Install into FOLDER the generators whose clients tests/generated_clients calls: openapi-python-client from PyPI, those
# for TypeScript from npm. Tests of what is missing are skipped.
#
#     scripts/fetch_generators.sh FOLDER
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
folder="$1"
mkdir -p "$folder"
"${PYTHON:-python3}" -m venv "$folder/python"
"$folder/python/bin/pip" install -q openapi-python-client==0.29.1 \
    || echo "the generator for Python cannot be installed: its test will be skipped"
command -v npm >/dev/null || { echo "no npm: the client for TypeScript is not tested"; exit 0; }
cp "$here/tests/generated_clients/package.json" "$folder"
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" \
    || echo "what npm has cannot be installed: the test of TypeScript will be skipped"
