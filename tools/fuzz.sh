#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a while, starting from the seeds in tests/fuzz/corpus/NAME.tar.xz.
#
#   tools/fuzz.sh SECONDS [NAME...]           all targets, or the named ones, for SECONDS each
#   tools/fuzz.sh --total SECONDS [NAME...]   SECONDS for all of them together, split evenly
#   tools/fuzz.sh --total SECONDS --long NAME the same, but NAME runs for SECONDS alone, next to the others
#   tools/fuzz.sh --keep SECONDS [NAME...]    inputs that reach new code are added to the archive of seeds
#
# NAME is a program of build/fuzz/bin without "_fuzz". A crash, a leak, an input that takes over 5 s or uses
# over 512 MB is a failure. Its input stays in build/fuzz/findings/NAME, and the command that reproduces it is
# printed. Seeds are unpacked into build/fuzz/corpus/NAME.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  sed -n '2,11s/^# \{0,1\}//p' "$0" >&2
  exit 2
}

keep=false
total=false
long=
arguments=()
while (($# > 0)); do
  case "$1" in
    --keep) keep=true ;;
    --total) total=true ;;
    --long) long=${2:-} && shift ;;
    --*) usage ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
[[ ${arguments[0]:-} =~ ^[0-9]+$ ]] || usage
seconds=${arguments[0]}
names=("${arguments[@]:1}")

echo "fuzz: building"
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --parallel "${JOBS:-$(nproc)}" --target fuzzers

if ((${#names[@]} == 0)); then
  for program in build/fuzz/bin/*_fuzz; do
    [[ -x $program ]] || continue
    name=$(basename "$program" _fuzz)
    [[ $name == "$long" ]] || names+=("$name")
  done
fi
if ((${#names[@]} == 0)); then
  echo "fuzz: build/fuzz/bin has no fuzz target" >&2
  exit 1
fi

# Targets run in parallel, one per processor; the long one has its own processor.
lanes=$((${JOBS:-$(nproc)} - (${#long} > 0)))
((lanes > 0)) || lanes=1
long_seconds=$seconds
if $total; then
  in_turn=$(((${#names[@]} + lanes - 1) / lanes))
  seconds=$((seconds / in_turn))
  ((seconds > 0)) || seconds=1  # libFuzzer takes 0 for "no limit"
fi

scratch=$(mktemp -d)
running=()
trap 'kill "${running[@]}" 2>/dev/null || true; rm -rf "$scratch"' EXIT

# The length of the longest seed, but at least 16 KiB: a shorter limit cuts seeds, a longer one is slower.
longest_input() {
  local longest
  longest=$(find "$1" -type f -printf '%s\n' | sort -n | tail -n 1)
  echo $((${longest:-0} > 16384 ? longest : 16384))
}

# fuzz_one NAME SECONDS
fuzz_one() {
  local name=$1 seconds=$2
  local program=build/fuzz/bin/${name}_fuzz corpus=build/fuzz/corpus/$name seeds=$scratch/$name
  local findings=build/fuzz/findings/$name log=build/fuzz/$name.log
  rm -rf "$corpus"
  mkdir -p "$findings"
  tools/fuzz_corpus.py unpack "$name" "$corpus"
  local flags=(-max_total_time="$seconds" -rss_limit_mb=512 -timeout=5 -max_len="$(longest_input "$corpus")"
               -artifact_prefix="$findings/" -print_final_stats=1)
  if [[ -f tests/fuzz/$name.dict ]]; then
    flags+=(-dict="tests/fuzz/$name.dict")
  fi

  if "$program" "${flags[@]}" "$corpus" >"$log" 2>&1; then
    echo "fuzz: $name: $seconds s, $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs, nothing found"
    if $keep; then
      tools/fuzz_corpus.py unpack "$name" "$seeds"
      "$program" -merge=1 "$seeds" "$corpus" >>"$log" 2>&1
      tools/fuzz_corpus.py pack "$name" "$seeds"
    fi
  else
    tail -n 40 "$log" >&2
    local finding
    finding=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    echo "fuzz: $name: FAILED; the whole log is $log; to reproduce it:" >&2
    echo "  $program ${finding:-$corpus}" >&2
    return 1
  fi
}

# fuzz_in_turn NAME...: runs all of them, even after a failure.
fuzz_in_turn() {
  local failures=0 name
  for name in "$@"; do
    fuzz_one "$name" "$seconds" || failures=$((failures + 1))
  done
  ((failures == 0))
}

if [[ -n $long ]]; then
  fuzz_one "$long" "$long_seconds" &
  running+=($!)
fi
for ((lane = 0; lane < lanes; ++lane)); do
  of_lane=()
  for ((i = lane; i < ${#names[@]}; i += lanes)); do
    of_lane+=("${names[i]}")
  done
  fuzz_in_turn "${of_lane[@]}" &
  running+=($!)
done
failed=0
for lane in "${running[@]}"; do
  wait "$lane" || failed=1
done
exit $failed
