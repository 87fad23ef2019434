# An interpreter and packages: BASE and PACKAGES say which. TOOLS: Debian packages, for those to compile.
ARG BASE
FROM ${BASE}
ARG TOOLS=""
RUN if [ -n "$TOOLS" ] && ! command -v g++ > /dev/null; then \
        apt-get update -q && apt-get install -y -q --no-install-recommends $TOOLS && rm -rf /var/lib/apt/lists/*; fi
RUN "$(command -v python || command -v pypy3)" -m venv /venv
ENV PATH=/venv/bin:$PATH
ARG PACKAGES
RUN --mount=type=secret,id=ca --mount=type=cache,target=/var/cache/pip \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    pip install --quiet --disable-pip-version-check --cache-dir /var/cache/pip $PACKAGES
