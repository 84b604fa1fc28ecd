# Sourced by the scripts beside it: messages, and apt with the machine's sources, proxies and keys, but without its installed
# packages, its pins and its state, so that a template is the same wherever it is built.
# shellcheck shell=bash
export LC_ALL=C.UTF-8
unset CDPATH PYTHONPATH PYTHONHOME PERL5LIB
umask 022

say() { printf '==> %s\n' "$*" >&2; }
die() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}
need() {
  local tool
  ((EUID == 0)) || die "building a template needs root; run it with sudo"
  for tool in apt-get "$@"; do
    command -v "$tool" >/dev/null || die "'$tool' is not installed; run scripts/setup"
  done
}

# open_apt CACHE: takes the cache for this process alone, sets `cache`, `work` (removed at exit), `apt_options`, and writes
# $work/sources.list with the sources that call themselves Debian and bookworm: others may carry packages of the same names
# (Node.js is the usual one).
open_apt() {
  mkdir -p "$1/lists/partial"
  cache=$(cd "$1" && pwd)
  exec 9>"$cache/lock"
  flock -n 9 || {
    say "another build uses $cache: waiting for it"
    flock 9
  }
  work=$(mktemp -d "${TMPDIR:-/tmp}/space-build-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  chmod 755 "$work"
  mkdir "$work/none"
  apt_options=(
    -o Dir::State::lists="$cache/lists" -o Dir::State::status=/dev/null -o Dir::State::extended_states="$work/none/states"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts="$work/none"
    -o APT::Sandbox::User=root -o Acquire::ForceHash=SHA256 -o Acquire::Languages=none -o Acquire::Retries=3
    -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false -o APT::Architectures=amd64 -o Debug::NoLocking=1
  )
  say "reading the machine's package sources"
  apt-get "${apt_options[@]}" -qq update >"$work/update.log" 2>&1 || {
    cat "$work/update.log" >&2
    die "apt-get update failed; check the network and the machine's package sources"
  }
  # $(…) are apt's own names here.
  # shellcheck disable=SC2016
  apt-get "${apt_options[@]}" indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
    awk '$1 == "Debian" && $2 ~ /^bookworm(-updates|-security)?$/ { print "deb", $3, $4, $5 }' | sort -u >"$work/sources.list"
  [[ -s $work/sources.list ]] || die "the machine's package sources hold no Debian 12 (bookworm) archive; add one to /etc/apt/sources.list.d"
  apt_options+=(-o Dir::Etc::sourcelist="$work/sources.list" -o Dir::Etc::sourceparts="$work/none")
}
