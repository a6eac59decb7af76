#!/usr/bin/env bash
# Install the project and its pinned dependencies into a virtual environment; `make` and the Dockerfile run this.
#
#     scripts/install.sh FOLDER PROJECT...        e.g. scripts/install.sh .venv -e '.[dev]'
#
# PYTHON names the interpreter (3.11 or later). The compiled core is built by a compiler that pip fetches for the build.
set -euo pipefail
cd "$(dirname "$0")/.."
folder="$1"
shift
python="${PYTHON:-python3}"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "Python 3.11 or later is needed and $python is older; say for example: make PYTHON=python3.12" >&2
    exit 1
}
echo "Installing into $folder and compiling the CPU core, once; this takes a minute or more ..."
"$python" -m venv "$folder"
# Served packages first, by digest: what the index or a proxy sends in their place is refused.
"$folder/bin/python" -m pip install --disable-pip-version-check --no-compile --require-hashes -r requirements.txt
# The constraints apply to pip's isolated build environments too: PIP_CONSTRAINT up to pip 25.2, PIP_BUILD_CONSTRAINT
# from 25.3 on.
PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
    "$folder/bin/python" -m pip install --disable-pip-version-check --no-compile "$@"
# Bytecode for what the service imports, which the first start would wait for, and every start of an image that may not
# write. pip would compile all of torch too.
env -u PYTHONDONTWRITEBYTECODE "$folder/bin/python" -P -c \
    "import service.app, service.heap, service.server, uvicorn.lifespan.on, uvloop, safetensors.numpy"
