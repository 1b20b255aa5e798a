#!/usr/bin/env bash
# Installs the packages that the build and the tests need.
#
#   tools/bootstrap.sh           silent if no package is missing. As root it installs the missing packages
#                                without a prompt; otherwise it prints the command that does, and fails.
#   tools/bootstrap.sh --list    prints the packages, one per line
#
# Packages have their Debian 12 names. Without dpkg it prints the list and succeeds; the build then reports
# what it does not find.
set -euo pipefail

packages=(
  # the compiler and the build
  g++ cmake ninja-build make git pkg-config
  # libraries
  nlohmann-json3-dev libcli11-dev libfmt-dev libexpected-dev libpcre2-dev libutf8proc-dev liburing-dev
  # tests and benchmarks
  libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev libxxhash-dev python3 python3-numpy python3-jinja2 tmux
  # the second compiler: fuzzing, thread-safety analysis, formatting, linting
  clang libclang-rt-14-dev clang-format clang-tidy
)

case "${1:-}" in
  '') ;;
  --list)
    printf '%s\n' "${packages[@]}"
    exit 0
    ;;
  *)
    echo "usage: tools/bootstrap.sh [--list]" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "bootstrap: no dpkg here; please install the equivalents of: ${packages[*]}" >&2
  exit 0
fi

# dpkg-query fails if it does not know one of the packages, but still prints the others.
installed=" $(dpkg-query -W -f='${Package}=${db:Status-Status} ' "${packages[@]}" 2>/dev/null || true)"
missing=()
for package in "${packages[@]}"; do
  [[ $installed == *" $package=installed "* ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  exit 0
fi

if ((EUID != 0)); then
  echo "bootstrap: some packages are missing; install them with" >&2
  echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

echo "bootstrap: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}"
