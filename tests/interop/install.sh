#!/bin/sh
# Install the servers of these tests, and ntfs-3g and btrfs-progs for tests/faults, on Debian or Ubuntu, as root.
# None of the servers is started.
# `install.sh versitygw` builds the S3 server, with Go, instead: that takes some minutes.
# `install.sh browser` installs chromium instead, for tests/diagnostics/test_report_page.py (Ubuntu's is a snap, which no
# container has).
set -eu
if [ "${1-}" = versitygw ]; then
    GOBIN=/usr/local/bin exec go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
fi
export DEBIAN_FRONTEND=noninteractive

# Debian starts the servers that it installs unless this script forbids it; an existing one is kept.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
fi

apt-get update -qq
if [ "${1-}" = browser ]; then
    apt-get install -qq -y --no-install-recommends chromium > /dev/null
    exit
fi
apt-get install -qq -y --no-install-recommends \
    nginx-light apache2-bin lighttpd haproxy squid-openssl ntfs-3g btrfs-progs > /dev/null
