#!/bin/sh
# Installs, or with --check names, what the tests need beside Go.
set -eu

have_postgres() {
	[ -n "${PG_BIN:-}" ] && [ -x "$PG_BIN/postgres" ] && return 0
	command -v initdb >/dev/null 2>&1 && command -v postgres >/dev/null 2>&1 && return 0
	for dir in /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /opt/homebrew/opt/postgresql*/bin; do
		[ -x "$dir/initdb" ] && return 0
	done
	return 1
}

have_chromium() {
	for name in chromium chromium-browser google-chrome google-chrome-stable; do
		command -v "$name" >/dev/null 2>&1 && return 0
	done
	[ -x "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome" ]
}

# The race detector needs a C compiler, and so do the tests of clocks, which give PostgreSQL another one.
have_cc() {
	command -v cc >/dev/null 2>&1 || return 1
	[ "$(uname)" != Linux ] || echo '#include <time.h>' | cc -E - >/dev/null 2>&1
}

missing=""
have_postgres || missing="$missing postgresql"
have_chromium || missing="$missing chromium"
have_cc || missing="$missing gcc libc6-dev"
[ -z "$missing" ] && exit 0

if [ "${1:-}" = "--check" ]; then
	echo "missing for the tests:$missing (run 'make setup', or install them with your package manager)" >&2
	exit 1
fi
if ! command -v apt-get >/dev/null 2>&1; then
	echo "please install with your package manager:$missing" >&2
	exit 1
fi
as_root=""
[ "$(id -u)" = 0 ] || as_root="sudo"
# Debian's package would start a server of its own; none is needed.
$as_root apt-get update -qq
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq --no-install-recommends $missing >/dev/null
