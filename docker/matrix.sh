#!/usr/bin/env bash
# The matrix in containers: docker/matrix.sh [CELL-PATTERN...], such as 'stage-*' '*-py3.13'; default: all cells.
#
# Uses the engine that runs, or one that is started for this (engine.sh), and leaves no container, network,
# volume or image of ours behind; base images and the build cache stay. PYTHON: any Python >= 3.10.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" != --with-engine ]; then
    exec docker/engine.sh docker/matrix.sh --with-engine "$@"
fi
shift
[ $# -gt 0 ] || set -- '*'
list() { "${PYTHON:-python3}" -m docker.compose "$@"; }
cells=$(list --names "$@")
export CELLS=${cells//$'\n'/,}
# pip's own variable for the CA of a proxy; in the builds it is a secret.
export TEST_CA_FILE=${TEST_CA_FILE:-${PIP_CERT:-/dev/null}}

compose() { docker compose --progress quiet --file docker/compose.yaml "$@"; }
leave() {
    trap '' INT TERM
    # Twice: what is interrupted while it starts may have containers that begin only now.
    compose down --volumes --remove-orphans --timeout 1 || compose down --volumes --remove-orphans --timeout 1
    compose down --rmi all
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
docker/bases.sh $(list --bases "$@")
compose build --quiet $(list --builders "$@")
compose up --exit-code-from report --attach report --no-log-prefix origin report $cells
