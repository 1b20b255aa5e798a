#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a while on a copy of its corpus.
#
#   tools/fuzz.sh SECONDS [NAME...]           every target (or the named ones) for SECONDS each
#   tools/fuzz.sh --total SECONDS [NAME...]   SECONDS in all, split evenly
#   tools/fuzz.sh --keep SECONDS [NAME...]    new inputs that reach new code join tests/fuzz/corpus/NAME
#
# NAME is a program of build/fuzz/bin without its "_fuzz". A crash, a leak, an input over 5 s or 512 MB is a
# failure; the input stays in build/fuzz/findings/NAME, and the command that repeats it is printed.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

keep=false
total=false
while [[ ${1:-} == --* ]]; do
  case "$1" in
    --keep) keep=true ;;
    --total) total=true ;;
    *) usage ;;
  esac
  shift
done
[[ ${1:-} =~ ^[0-9]+$ ]] || usage
seconds=$1
shift
names=("$@")

echo "fuzz: building"
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --parallel "${JOBS:-$(nproc)}" --target fuzzers

if ((${#names[@]} == 0)); then
  for program in build/fuzz/bin/*_fuzz; do
    [[ -x $program ]] || continue
    name=$(basename "$program")
    names+=("${name%_fuzz}")
  done
fi
if ((${#names[@]} == 0)); then
  echo "fuzz: the build made no target" >&2
  exit 1
fi
if $total; then
  seconds=$((seconds / ${#names[@]}))
  ((seconds > 0)) || seconds=1  # libFuzzer takes 0 for "no limit"
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The longest seed, but at least 16 KiB: shorter would cut seeds, longer only makes every run slower.
longest_input() {
  local longest
  longest=$(find "$1" -type f -printf '%s\n' | sort -n | tail -n 1)
  echo $((${longest:-0} > 16384 ? longest : 16384))
}

failures=0
for name in "${names[@]}"; do
  program=build/fuzz/bin/${name}_fuzz
  seeds=tests/fuzz/corpus/$name
  corpus=$scratch/$name
  findings=build/fuzz/findings/$name
  log=build/fuzz/$name.log
  mkdir -p "$corpus" "$findings"
  if [[ -d $seeds ]]; then
    cp -R "$seeds/." "$corpus/"
  fi
  arguments=(-max_total_time="$seconds" -rss_limit_mb=512 -timeout=5 -max_len="$(longest_input "$corpus")"
             -artifact_prefix="$findings/" -print_final_stats=1)
  if [[ -f tests/fuzz/$name.dict ]]; then
    arguments+=(-dict="tests/fuzz/$name.dict")
  fi

  if "$program" "${arguments[@]}" "$corpus" >"$log" 2>&1; then
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    echo "fuzz: $name: $seconds s, $runs inputs, nothing found"
    if $keep; then
      mkdir -p "$seeds"
      "$program" -merge=1 "$seeds" "$corpus" >>"$log" 2>&1
    fi
  else
    failures=$((failures + 1))
    tail -n 40 "$log" >&2
    finding=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    echo "fuzz: $name: FAILED; the whole log is $log; to repeat it:" >&2
    echo "  $program ${finding:-$seeds}" >&2
  fi
done
((failures == 0))
