# The story's interpreters and packages: pip as old as they are, and no venv in Python 2.7.
ARG BASE
FROM ${BASE}
# Images of Python come without bytecode: each container would compile what it imports.
RUN python -m compileall -q -x '/(tests?|lib2to3)/' "$(python -c 'import os; print(os.path.dirname(os.__file__))')"
ARG PACKAGES
RUN --mount=type=secret,id=ca --mount=type=cache,target=/var/cache/pip \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \
    python -m pip install --quiet --disable-pip-version-check --cache-dir /var/cache/pip $PACKAGES
