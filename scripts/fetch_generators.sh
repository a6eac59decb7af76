#!/usr/bin/env bash
# Install into FOLDER the generators whose clients tests/generated_clients calls or reads: openapi-python-client and
# OpenAPI Generator (Java) from PyPI, those for TypeScript and the Kotlin compiler from npm. Tests of what is missing
# are skipped.
#
#     scripts/fetch_generators.sh FOLDER
set -euo pipefail
here="$(cd "$(dirname "$0")/.." && pwd)"
folder="$1"
mkdir -p "$folder"
"${PYTHON:-python3}" -m venv "$folder/python"
"$folder/python/bin/pip" install -q openapi-python-client==0.29.1 openapi-generator-cli==7.26.0 \
    || echo "the generators for Python, Kotlin and Swift cannot be installed: their tests will be skipped"
command -v npm >/dev/null || { echo "no npm: clients for TypeScript and Kotlin are not tested"; exit 0; }
cp "$here/tests/generated_clients/package.json" "$folder"
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" \
    || echo "what npm has cannot be installed: tests of TypeScript and Kotlin will be skipped"
