# Sourced by the scripts: where things are, how they speak and fail, and the step from sources to build files.
# A script's leading comment is its help. Everything said goes to stderr.
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
VENV=${LORIKEET_VENV:-$ROOT/.venv}
[[ $VENV == /* ]] || VENV=$PWD/$VENV
export LORIKEET_VENV=$VENV

say() { printf '%s\n' "$*" >&2; }

# die CODE TEXT: 2 for wrong usage, 3 for an environment that is not fit.
die() {
  local code=$1
  shift
  say "${0##*/}: $*"
  exit "$code"
}

usage() { sed -n '2,/^[^#]/{/^#/s/^# \{0,1\}//p}' "$0"; }

# Answers --help, whatever else is there.
help_if_asked() {
  local argument
  for argument in "$@"; do
    if [[ $argument == --help || $argument == -h ]]; then
      usage
      exit 0
    fi
  done
}

# Compilers to run side by side: one a core, but not more than one for 2 GB of memory, which libtorch's headers need.
build_jobs() {
  local cores memory_gb
  cores=$(nproc)
  memory_gb=$(awk '/^MemAvailable/ { print int($2 / 2097152) }' /proc/meminfo)
  ((memory_gb >= 1)) || memory_gb=1
  echo $((cores < memory_gb ? cores : memory_gb))
}

# configure PRESET [-DX=Y ...]: makes build/PRESET unless it is there for this virtual environment (ninja itself sees
# to later changes of the CMake files).
configure() {
  local preset=$1 cache=$ROOT/build/$1/CMakeCache.txt log=$ROOT/build/configure-$1.log
  shift
  if [[ -f $ROOT/build/$preset/build.ninja ]] && grep -qxF "LORIKEET_VENV:PATH=$VENV" "$cache"; then
    return
  fi
  say "Configuring build/$preset ..."
  mkdir -p "$ROOT/build"
  (cd "$ROOT" && cmake --preset "$preset" -DLORIKEET_VENV:PATH="$VENV" "$@") >"$log" 2>&1 || {
    cat "$log" >&2
    die 3 "cmake could not configure build/$preset; its words are above"
  }
}

# build PRESET [TARGET ...]: compiles all, or the targets named.
build() {
  local preset=$1
  shift
  (cd "$ROOT" && cmake --build "build/$preset" --parallel "$(build_jobs)" ${1:+--target "$@"}) >&2
}

# On shared cores OpenMP's spinning barriers can slow a program down tens of times.
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-1000}"
