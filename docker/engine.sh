#!/usr/bin/env bash
# Runs a command with a container engine and compose v2 at hand: docker/engine.sh COMMAND...
#
# Where an engine runs, that one is used. Where none does, and this is root on Debian or a relative, one is
# installed and started for the command alone, and stopped after it, also by Ctrl-C: on a socket of its
# own, with images and build cache in $MATRIX_ENGINE, kept for the next time. Compose v2, where
# missing, comes from apt or is built by go. `docker/engine.sh --purge` removes what is kept.
set -euo pipefail
home=${MATRIX_ENGINE:-/var/tmp/matrix-engine}
compose=v2.32.4

say() { printf 'engine: %s\n' "$*" >&2; }

if [ "${1:-}" = --purge ]; then
    rm -rf "$home"
    exit
fi

missing() { # of the programs named
    for program in "$@"; do command -v "$program" > /dev/null || return 0; done
    return 1
}

fetch() { # Debian packages
    [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || { say "no engine, and not root on Debian: install one"; exit 3; }
    # No services are started by the installation: a container has nobody to start them.
    DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -q --no-install-recommends "$@" >> "$home/apt.log" 2>&1 ||
        { apt-get update -q >> "$home/apt.log" 2>&1 && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
            apt-get install -y -q --no-install-recommends "$@" >> "$home/apt.log" 2>&1; } ||
        { tail -n 3 "$home/apt.log" >&2; say "apt could not install $*"; exit 3; }
}

provide_compose() {
    docker compose version > /dev/null 2>&1 && return
    export DOCKER_CONFIG=$home/config
    docker compose version > /dev/null 2>&1 && return
    for package in docker-compose-v2 docker-compose; do
        case $(apt-cache policy "$package" 2> /dev/null | sed -n 's/ *Candidate: //p') in
            2.* | [3-9].*) fetch "$package" && docker compose version > /dev/null 2>&1 && return ;;
        esac
    done
    missing go && { say "compose v2 is missing, and so is go to build it"; exit 3; }
    say "building compose $compose, which takes minutes, once"
    local source=$home/compose-source
    cp -r "$(cd "$home" && go mod download -json "github.com/docker/compose/v2@$compose" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')" "$source"
    chmod -R u+w "$source"
    mkdir -p "$DOCKER_CONFIG/cli-plugins"
    (cd "$source" && CGO_ENABLED=0 go build -mod=mod -ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$compose" \
        -o "$DOCKER_CONFIG/cli-plugins/docker-compose" ./cmd)
    rm -rf "$source"
}

pid= child=
stop() {
    trap '' INT TERM
    [ -n "$pid" ] || return 0
    # Whatever the command has left, a container would outlive the daemon.
    local network name bridges
    bridges=$(docker network ls --quiet --filter driver=bridge --filter type=custom 2> /dev/null || true)
    # More than once: what was interrupted while it started begins only now, or still counts as one of its
    # network's although it is gone.
    for _ in $(seq 20); do
        docker ps --all --quiet | xargs -r docker rm --force --volumes || true
        for network in $(docker network ls --quiet --filter driver=bridge --filter type=custom); do
            for name in $(docker network inspect --format '{{range .Containers}}{{.Name}} {{end}}' "$network"); do
                docker network disconnect --force "$network" "$name" || true
            done
            docker network rm "$network" || true
        done
        [ -n "$(docker ps --all --quiet)$(docker network ls --quiet --filter type=custom)" ] || break
        sleep 0.5
    done > /dev/null 2>&1
    kill "$pid" 2> /dev/null || true
    wait "$pid" 2> /dev/null || true
    # What a daemon leaves in the kernel when it ends.
    for network in $bridges; do ip link delete "br-$network" 2> /dev/null || true; done
    if [ -z "$bridged" ]; then
        ip link delete docker0 2> /dev/null || true
        iptables-save | sed '/DOCKER/d; /docker0/d' | iptables-restore || true
    fi
    printf '%s\n' "$forwarding" > /proc/sys/net/ipv4/ip_forward || true
    umount "$run"/exec/netns/* 2> /dev/null || true
    rm -rf "$run"
    say "stopped"
}

mkdir -p "$home"
if ! docker info > /dev/null 2>&1; then
    if missing dockerd docker iptables ip; then
        say "installing docker.io"
        fetch docker.io iptables iproute2 ca-certificates
    fi
    run=$(mktemp -d)
    bridged=$(ls -d /sys/class/net/docker0 2> /dev/null || true)
    forwarding=$(cat /proc/sys/net/ipv4/ip_forward)
    trap stop EXIT
    export DOCKER_HOST=unix://$run/docker.sock
    # In a session of its own: Ctrl-C is for the command, which needs the engine to clean up.
    setsid dockerd --mtu 1400 --data-root "$home/data" --exec-root "$run/exec" --pidfile "$run/pid" \
        --host "$DOCKER_HOST" > "$home/dockerd.log" 2>&1 &
    pid=$!
    for _ in $(seq 300); do
        docker info > /dev/null 2>&1 && break
        kill -0 "$pid" 2> /dev/null || { tail -n 3 "$home/dockerd.log" >&2; say "the engine did not start"; exit 3; }
        sleep 0.1
    done
    say "started, for this command"
fi
provide_compose
# In a process group of its own, to which whatever ends this is passed on; then it is waited for: a shell
# that waits for a command in the foreground would not heed SIGTERM.
again=
pass_on() {
    [ -n "$child" ] || return 0
    kill "-$1" -- "-$child" 2> /dev/null || true
    # Compose waits for ever for a container that began while it stopped the others; the second time it kills.
    [ -z "$again" ] || return 0
    set -m
    (sleep 20 && kill "-$1" -- "-$child") 2> /dev/null &
    again=$!
    set +m
}
trap 'pass_on INT' INT
trap 'pass_on TERM' TERM
set -m
"$@" < /dev/null &
child=$!
set +m
code=0
wait "$child" || code=$?
while kill -0 "$child" 2> /dev/null; do # a signal ended the waiting
    code=0
    wait "$child" || code=$?
done
[ -z "$again" ] || kill -- "-$again" 2> /dev/null || true
exit "$code"
