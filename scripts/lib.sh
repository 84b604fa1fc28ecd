# Sourced by run, test and the scripts beside it: messages, steps with their time, and progress where nobody watches a terminal.
# shellcheck shell=bash
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export LC_ALL=C.UTF-8

# shellcheck disable=SC2034
data_dir=${SPACE_DATA_DIR:-/var/lib/space}
# shellcheck disable=SC2034
run_dir=${SPACE_RUN_DIR:-/run/space}
# shellcheck disable=SC2034
cache_dir=${SPACE_CACHE_DIR:-/var/cache/space}
# shellcheck disable=SC2034
program=$root/build/release/space

say() { printf '\033[1m==>\033[0m %s\n' "$*"; }
[[ -t 1 ]] || say() { printf '==> %s\n' "$*"; }
note() { printf '    %s\n' "$*"; }
die() {
  printf 'error: %s\n' "$1" >&2
  shift
  (($# == 0)) || printf '       %s\n' "$@" >&2
  exit 1
}

# The folder of `$1` that exists already: the one whose disk it would lie on.
existing_folder() {
  local folder=$1
  while [[ ! -d $folder ]]; do folder=$(dirname "$folder"); done
  printf '%s' "$folder"
}

free_mib() { df -Pm "$(existing_folder "$1")" | awk 'NR == 2 { print $4 }'; }

# Reads ninja's output: on a terminal as it is, else a line every tenth of the way; whatever is no status line in full.
show_ninja() {
  if [[ -t 1 ]]; then
    cat
  else
    awk '/^\[[0-9]+\/[0-9]+\]/ {
           split(substr($1, 2), part, /[\/\]]/); tenth = int(10 * part[1] / part[2])
           if (tenth != shown) { print "    compiled " part[1] " of " part[2]; fflush(); shown = tenth }
           next }
         /^ninja: no work to do/ { next }
         { print; fflush() }'
  fi
}

# build PRESET TARGET…: configures once and builds. Memory decides how many compilers run: one takes up to 2 GiB.
build() {
  local preset=$1 jobs memory_gib
  shift
  memory_gib=$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
  jobs=$(nproc)
  ((memory_gib / 2 >= jobs)) || jobs=$((memory_gib / 2 > 0 ? memory_gib / 2 : 1))
  mkdir -p "$root/build"
  if [[ ! -f $root/build/$preset/build.ninja ]]; then
    (cd "$root" && cmake --preset "$preset") >"$root/build/$preset.log" 2>&1 ||
      { tail -n 20 "$root/build/$preset.log" >&2; die "cmake --preset $preset failed; the lines above are the end of build/$preset.log"; }
  fi
  if [[ -t 1 ]]; then
    nice ninja -C "$root/build/$preset" -j "$jobs" "$@" || die "the build failed; see the errors above"
  else
    nice ninja -C "$root/build/$preset" -j "$jobs" "$@" 2>&1 | show_ninja || die "the build failed; see the errors above"
  fi
  # While the packages that it was built from are those that are installed.
  local made=$root/build/$preset/space
  [[ $preset != release || ! -x $made || $made.cdx.json -nt $made ]] || "$root/scripts/sbom" "$root/build/$preset" >/dev/null || note "there is no bill of materials of this build"
}

# stop_earlier_build: a server of a build before this one has lost its program to the linker and is stopped, by its process id; sandboxes
# do not notice that another takes them over. Nothing otherwise.
stop_earlier_build() {
  local old
  old=$(cat "$run_dir/lock" 2>/dev/null || true)
  [[ $old =~ ^[0-9]+$ && $(readlink "/proc/$old/exe") == "$program (deleted)" ]] || return 0
  say "stopping the server of the build before (process $old); its sandboxes go on"
  kill "$old"
  timeout 60 tail --pid="$old" -f /dev/null || die "process $old does not end" "stop it, and call ./run again"
}

# end_group PID: ends a process that was started with setsid, and everything that it started.
end_group() {
  kill -0 "$1" 2>/dev/null || return 0
  kill -- "-$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}
