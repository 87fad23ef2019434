# An interpreter and packages: BASE and PACKAGES say which. TOOLS: Debian packages, for those to compile.
# OWN: what the diagnostics need, for Debian's Python, to judge an interpreter that they cannot run on.
ARG BASE
FROM ${BASE}
ARG TOOLS=""
RUN if [ -n "$TOOLS" ] && ! command -v g++ > /dev/null; then \
        apt-get update -q && apt-get install -y -q --no-install-recommends $TOOLS && rm -rf /var/lib/apt/lists/*; fi
RUN "$(command -v python || command -v pypy3)" -m venv /venv
ENV PATH=/venv/bin:$PATH
# Images of Python come without bytecode: each container would compile what it imports.
RUN python -m compileall -q -j 0 -x '/(tests?|lib2to3)/' "$(python -c 'import os; print(os.path.dirname(os.__file__))')"
ARG PACKAGES
RUN --mount=type=secret,id=ca --mount=type=cache,target=/var/cache/pip \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    pip install --quiet --disable-pip-version-check --cache-dir /var/cache/pip $PACKAGES
ARG OWN=""
RUN if [ -n "$OWN" ] && [ ! -x /usr/bin/python3 ]; then \
        apt-get update -q && apt-get install -y -q --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*; fi
RUN --mount=type=secret,id=ca --mount=type=cache,target=/var/cache/pip \
    if [ -n "$OWN" ]; then \
        if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
        /usr/bin/python3 -m venv /own && \
        /own/bin/pip install --quiet --disable-pip-version-check --cache-dir /var/cache/pip $OWN; \
    fi
