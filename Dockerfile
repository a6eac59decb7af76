# syntax=docker/dockerfile:1

# By digest: --build-arg BASE=python:3.11-slim-bookworm@sha256:...
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE} AS build
# Extras of pyproject.toml in brackets, for example --build-arg EXTRAS=[s3] for a store on object storage, or
# --build-arg EXTRAS=[gpu] --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 for a GPU.
ARG EXTRAS=
ARG TORCH_INDEX=
WORKDIR /build
COPY pyproject.toml setup.py constraints.txt requirements.txt README.md LICENSE ./
COPY scripts/install.sh scripts/
COPY prime_anc prime_anc/
COPY model_store model_store/
COPY service service/
# The page links to it.
COPY docs/guide.md docs/
# Also compiles the CPU core, for every level of the processor architecture.
RUN PIP_NO_CACHE_DIR=1 scripts/install.sh /opt/prime-anc \
        ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} ".$EXTRAS" \
    && mkdir -p /opt/checkpoints

FROM ${BASE}
LABEL org.opencontainers.image.title="PRIME-ANC" org.opencontainers.image.licenses="MIT"
ARG EXTRAS=
# On a GPU, stages are compiled when a model is loaded, which needs a C compiler of any version.
# hadolint ignore=DL3008
RUN case "$EXTRAS" in *gpu*) apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev \
        && rm -rf /var/lib/apt/lists/* ;; esac
COPY --from=build /opt/prime-anc /opt/prime-anc/
COPY --from=build --chown=10001:10001 /opt/checkpoints /var/lib/prime-anc/
COPY --from=build --chown=10001:10001 /opt/checkpoints /var/cache/prime-anc/

# --build-arg COMMIT="$(git rev-parse HEAD)" shows in the metrics which commit runs.
ARG COMMIT=
ENV PATH=/opt/prime-anc/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp \
    PRIME_HOST=0.0.0.0 \
    PRIME_PORT=8000 \
    PRIME_COMMIT=$COMMIT \
    PRIME_STORE=/var/lib/prime-anc
WORKDIR /var/lib/prime-anc
# A numeric user needs no account in the image, and Kubernetes can verify that it is not root.
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['PRIME_PORT'] + '/health/ready', timeout=2)"]
CMD ["python", "-m", "service"]
