# syntax=docker/dockerfile:1
# deploy/run_image_steps.py runs these steps where there is no Docker engine; it says which forms it understands.

FROM python:3.11-slim-bookworm AS build
# PyTorch for the CPU by default. For a GPU: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# Extras of pyproject.toml, with commas between. For faster designs on a CPU: --build-arg EXTRAS=fftw (FFTW is GPL).
# For a store on object storage: s3, gcs or azure
ARG EXTRAS=
WORKDIR /build
RUN python -m venv /opt/prime-anc
# Dependencies first: nearly all of the image, and rebuilt only when they change.
COPY pyproject.toml constraints.txt ./
RUN python -c "import sys, tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
    extras = [each for name in sys.argv[1].split(',') if name for each in project['optional-dependencies'][name]]; \
    print(*project['dependencies'], *extras, sep='\n')" "$EXTRAS" > requirements.txt \
    && /opt/prime-anc/bin/python -m pip install --no-cache-dir ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -c constraints.txt -r requirements.txt
COPY README.md LICENSE ./
COPY synthesis synthesis/
COPY model_store model_store/
COPY service service/
RUN PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt \
    /opt/prime-anc/bin/python -m pip install --no-cache-dir --no-deps . \
    && mkdir -p /opt/checkpoints

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="PRIME-ANC" org.opencontainers.image.licenses="MIT"
COPY --from=build /opt/prime-anc /opt/prime-anc/
COPY --from=build --chown=10001:10001 /opt/checkpoints /var/lib/prime-anc/

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
# A number needs no account in the image, and lets Kubernetes see that it is not root.
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=90s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ.get('PRIME_MANAGEMENT_PORT', os.environ['PRIME_PORT']) + '/health/ready', timeout=2)"]
CMD ["python", "-m", "service"]
