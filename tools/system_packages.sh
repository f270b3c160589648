#!/bin/sh
# What the tests need beside Python: a headless browser, PostgreSQL, nginx, gcc, Node.js and Java (for Spark). As root on Debian they are installed; otherwise
# the tests that need them are skipped by name (in CI a skip of that kind fails the run). With the argument `python` only what a virtual
# environment needs.
set -eu
need=""
# A fresh Debian python3 has no ensurepip, without which there is no virtual environment.
python3 -c 'import ensurepip' 2>/dev/null || need="$need python3-venv"
if [ "${1:-}" != python ]; then
  command -v chromium >/dev/null 2>&1 || need="$need chromium"
  command -v node >/dev/null 2>&1 || need="$need nodejs"
  command -v java >/dev/null 2>&1 || need="$need openjdk-17-jre-headless"
  command -v nginx >/dev/null 2>&1 || [ -x /usr/sbin/nginx ] || need="$need nginx"
  command -v promtool >/dev/null 2>&1 || need="$need prometheus"
  command -v gcc >/dev/null 2>&1 || need="$need gcc libc6-dev"
  ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || need="$need postgresql"
fi
[ -n "$need" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  # The tests start these programs themselves: no service is to listen because of them.
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  # shellcheck disable=SC2086
  apt-get install -y -qq --no-install-recommends $need >/dev/null
else
  echo "not installed, and this is not root on Debian:$need" >&2
fi
