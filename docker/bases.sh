#!/usr/bin/env bash
# Provides the images that the cells are built on: docker/bases.sh python:2.7-slim pypy:3.11-slim ...
#
# Each is taken as it is there, else pulled. Where it cannot be pulled, as root on Debian, a look-alike is made:
# a minimal Debian with an interpreter that pyenv has, or with Debian's own, which debootstrap fetches.
# Look-alikes are for an engine that nobody else uses: they take the names of the real ones.
set -euo pipefail

say() { printf 'bases: %s\n' "$*" >&2; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

bootstrap() { # SUITE DIRECTORY PACKAGES...
    local suite=$1 directory=$2
    shift 2
    command -v debootstrap > /dev/null || apt-get install -y -q --no-install-recommends debootstrap > "$work/log" 2>&1
    local script=/usr/share/debootstrap/scripts/$suite
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid # a suite younger than this debootstrap
    local include=ca-certificates,netbase,tzdata$(printf ',%s' "$@")
    # From where this machine has its own packages; the archive of security fixes has no whole release.
    local mirror
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | sort -u | head -n 1)
    debootstrap --variant=minbase --include="$include" "$suite" "$directory" "$mirror" "$script" \
        > "$work/log" 2>&1 || { tail -n 3 "$work/log" >&2; return 1; }
    rm -rf "$directory"/var/cache/apt/archives/*.deb "$directory"/var/lib/apt/lists/* "$directory"/dev/*
}

libraries() { # that pyenv's interpreters are linked with, as Debian packages
    find "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/bin "${PYENV_ROOT:-$HOME/.pyenv}"/versions/*/lib -type f \
        \( -name '*.so*' -o -name 'python?.?*' \) ! -name '_tkinter*' ! -path '*/site-packages/*' -print0 |
        xargs -0 ldd 2> /dev/null | sed -n 's,.* => \(/usr\)\?\(/.*\) (0x.*,\2\n/usr\2,p' | sort -u |
        xargs dpkg -S 2> /dev/null | sed 's/:.*//' | sort -u
}

pyenv_version() { # the newest in pyenv of 3.13
    find "${PYENV_ROOT:-$HOME/.pyenv}/versions" -maxdepth 1 -name "$1.*" 2> /dev/null | sort -V | tail -n 1
}

from_pyenv() { # IMAGE DIRECTORY
    local base=$work/base
    if [ ! -d "$base" ]; then
        # One for all versions, of the release that they were built on.
        bootstrap "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$base" $(libraries) || return 1
    fi
    local image=$work/image
    rm -rf "$image"
    cp -al "$base" "$image" &&
        tar --directory="$2" --exclude='*/test' --exclude='__pycache__' -c bin lib include |
        tar --directory="$image/usr/local" -x &&
        tar --directory="$image" -c . |
        docker import --change 'ENV LD_LIBRARY_PATH=/usr/local/lib' --change 'CMD ["python"]' - "$1" > /dev/null
}

from_debian() { # IMAGE SUITE PROGRAM PACKAGES...
    local image=$1 suite=$2 program=$3
    shift 3
    rm -rf "$work/debian"
    bootstrap "$suite" "$work/debian" "$@" || return 1
    ln -s "/usr/bin/$program" "$work/debian/usr/local/bin/python"
    tar --directory="$work/debian" -c . | docker import --change 'CMD ["python"]' - "$image" > /dev/null
}

make_one() { # IMAGE
    local version=${1#*:} found
    version=${version%-slim}
    case $1 in
        pypy:*)
            from_debian "$1" trixie pypy3 pypy3 pypy3-venv pypy3-dev python3-venv gcc g++ make libc6-dev libffi-dev ;;
        *)
            found=$(pyenv_version "$version")
            if [ -n "$found" ]; then
                from_pyenv "$1" "$found"
            else
                from_debian "$1" forky "python$version" "python$version" "python$version-venv" "python$version-dev" \
                    gcc g++ make libc6-dev libffi-dev
            fi ;;
    esac
}

reachable=yes
for image in "$@"; do
    docker image inspect "$image" > /dev/null 2>&1 && continue
    if [ $reachable = yes ]; then
        docker pull --quiet "$image" > /dev/null 2> "$work/log" && continue
        # Some are not there yet; only where no registry answers are the others not asked for.
        grep -q 'manifest unknown\|not found' "$work/log" || reachable=no
    fi
    [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null || { say "$image cannot be pulled, and is only made as root on Debian"; exit 3; }
    began=$SECONDS
    make_one "$image" || { say "$image could not be made"; exit 3; }
    say "$image made in $((SECONDS - began)) s"
done
