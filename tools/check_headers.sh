#!/usr/bin/env bash
# Checks that every header of src/ and include/ compiles alone (clang++), and that the headers that device
# code may include compile as CUDA C++. Without nvcc the second check is skipped, with a note.
#
#   tools/check_headers.sh
set -euo pipefail
cd "$(dirname "$0")/../src"

# One "#include" per process: no earlier include can hide what a header forgot.
compile_alone() {
  printf '#include "%s"\n' "$1" | clang++ -std=c++20 -DMOEFLUX_REPOSITORY=\".\" -Wall -Wextra -Werror -fsyntax-only -I . -I ../include -x c++ - && return
  echo "src/$1 does not compile alone" >&2
  return 1
}
export -f compile_alone

# A header in a folder of an architecture is for one instruction set, and for the files that are compiled for
# it; the build of every family compiles it as the first include.
headers() { find . ../include -name '*.h' -not -path '*/kernels/x86/*' -not -path '*/kernels/aarch64/*' "$@"; }
headers -printf '%P\0' | sort -z |
  xargs -0 -P "${JOBS:-$(nproc)}" -I '{}' bash -c "compile_alone '{}'"
echo "headers: $(headers | wc -l) compile alone"

nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
if [[ -z $nvcc ]]; then
  echo "headers: no nvcc found, the CUDA check is skipped"
  exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
find base quant model -name '*.h' -not -path '*/testing/*' -printf '#include "%p"\n' | sort >"$scratch/headers.cu"
"$nvcc" -std=c++20 -I . -c -o "$scratch/headers.o" "$scratch/headers.cu"
echo "headers: $(wc -l <"$scratch/headers.cu") compile as CUDA C++"
