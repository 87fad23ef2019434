# A node of a Ray cluster with this program: see cluster.compose.yaml.
ARG BASE=python:3.12-slim
FROM ${BASE}
WORKDIR /src
COPY setup.cfg pyproject.toml README.md LICENSE ./
COPY downloader downloader
COPY diagnostics diagnostics
RUN --mount=type=secret,id=ca \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    pip install --no-cache-dir '.[ray]'
WORKDIR /shared
