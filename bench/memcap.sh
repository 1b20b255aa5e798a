#!/usr/bin/env bash
# Runs a command as if the machine had less memory: in its own control group, whose hard limit includes the
# page cache that the command fills, and which does not swap.
#
#   bench/memcap.sh BYTES[K|M|G] EVICT_PATH COMMAND [ARGUMENT...]
#
# EVICT_PATH is a file, or a directory with all its files, that is evicted from the page cache first: a page
# that is already cached stays charged to the group that read it, and would be free memory to the command. "-"
# evicts nothing.
#
# Works with control groups version 1 and 2. After the command, one line goes to stderr; numbers that the
# kernel does not provide are "unknown":
#   memcap: limit=BYTES peak=BYTES limit_hits=N major_faults=N oom_kills=N rc=N
# Processes that the command leaves behind are killed, and the group is removed.
#
# Exit status: that of the command (137 if it was killed for its memory); 77 if no group can be created, with
# one line that gives the reason; 125 for wrong arguments.
#
# MEMCAP_ROOT is for tests: a directory whose proc and sys are read instead of the machine's.
set -euo pipefail

say() { echo "memcap: $*" >&2; }
wrong_arguments() { say "$*"; exit 125; }
cannot() { say "cannot limit memory here: $*"; exit 77; }

root=${MEMCAP_ROOT:-}
group=

parse_bytes() {
  [[ $1 =~ ^([1-9][0-9]{0,14})([KMG]?)$ ]] || wrong_arguments "expected BYTES[K|M|G], found '$1'"
  local unit=1
  case ${BASH_REMATCH[2]} in K) unit=$((1 << 10)) ;; M) unit=$((1 << 20)) ;; G) unit=$((1 << 30)) ;; esac
  ((BASH_REMATCH[1] <= (1 << 62) / unit)) || wrong_arguments "expected at most $((1 << 62)) bytes, found '$1'"
  echo $((BASH_REMATCH[1] * unit))
}

# Dirty pages and pages that another process maps cannot be evicted: the former are written first, the latter
# reported.
evict() {
  local file files=() left=0
  mapfile -d '' -t files < <(find -L "$1" -type f -print0)
  for file in "${files[@]}"; do
    sync "$file" 2>/dev/null || true  # on a read-only disk there is nothing to write
    dd if="$file" iflag=nocache count=0 status=none || wrong_arguments "cannot evict '$file'"
  done
  ((${#files[@]} > 0)) && command -v fincore >/dev/null || return 0
  left=$(printf '%s\0' "${files[@]}" | xargs -0 fincore --bytes --noheadings --output RES 2>/dev/null |
    awk '{ sum += $1 } END { print sum + 0 }') || return 0
  ((left == 0)) || say "$left bytes of '$1' stay in the page cache: they do not count against the limit"
}

# The directory of this process's group: mount point and group name. In a container the name may be that of
# the host, which does not exist; then the mount point is the group of the container.
own_group() {
  if [[ -d $root$1$2 ]]; then echo "$root${1%/}${2%/}"; else echo "$root$1"; fi
}

# Sets version and parent: the place where a group with a limit can be created.
find_parent() {
  local mount name
  [[ -r $root/proc/self/cgroup && -r $root/proc/self/mounts ]] || cannot "the system has no control groups"
  name=$(awk -F: '$2 ~ /(^|,)memory(,|$)/ { print $3; exit }' "$root/proc/self/cgroup")
  if [[ -n $name ]]; then
    version=1
    mount=$(awk '$3 == "cgroup" && $4 ~ /(^|,)memory(,|$)/ { print $2; exit }' "$root/proc/self/mounts")
    [[ -n $mount ]] || cannot "the memory controller is not mounted"
    parent=$(own_group "$mount" "$name")
    return
  fi
  version=2
  name=$(awk -F: '$1 == "0" && $2 == "" { print $3; exit }' "$root/proc/self/cgroup")
  mount=$(awk '$3 == "cgroup2" { print $2; exit }' "$root/proc/self/mounts")
  [[ -n $name && -n $mount ]] || cannot "no control groups are mounted"
  # A group with processes cannot give its children a controller, so the parent may be further up.
  parent=$(own_group "$mount" "$name")
  until gives_memory "$parent"; do
    [[ $parent != "$root$mount" ]] ||
      cannot "no group around this process may limit the memory of its children"
    parent=${parent%/*}
  done
}

gives_memory() {
  grep -qw memory "$1/cgroup.subtree_control" 2>/dev/null ||
    { grep -qw memory "$1/cgroup.controllers" && echo +memory >"$1/cgroup.subtree_control"; } 2>/dev/null
}

put() { { echo "$1" >"$group/$2"; } 2>/dev/null; }
put_where_there() { [[ ! -e $group/$2 ]] || put "$1" "$2" || true; }

make_group() {
  group=$parent/memcap.$$
  if ! mkdir "$group" 2>/dev/null; then
    local tried=$group
    group=
    cannot "'$tried' cannot be made"
  fi
  if ((version == 1)); then
    put "$limit" memory.limit_in_bytes || cannot "'$group/memory.limit_in_bytes' cannot be written"
    # Memory and swap together get 1 MiB more: with equal limits this one would be hit, and Linux (for example
    # 6.18) does not count its hits.
    put_where_there $((limit + (1 << 20))) memory.memsw.limit_in_bytes
    put_where_there 0 memory.swappiness
  else
    put "$limit" memory.max || cannot "'$group/memory.max' cannot be written"
    put_where_there 0 memory.swap.max
  fi
  (put "$BASHPID" cgroup.procs) || cannot "no process can be put into '$group'"
}

remove_group() {
  [[ -n $group && -z $root ]] || return 0  # the test reads the simulated group
  local process
  for _ in {1..20}; do
    while read -r process; do
      kill -KILL "$process" 2>/dev/null || true
    done < <(cat "$group/cgroup.procs" 2>/dev/null || true)
    ! rmdir "$group" 2>/dev/null || return 0
    sleep 0.1
  done
  say "'$group' could not be removed"
}

# number FILE [KEY]: prints the number in a file of the group, or in its line "KEY number".
number() {
  local found
  found=$(awk -v key="${2:-}" 'key == "" { print $1; exit } $1 == key { print $2; exit }' \
    "$group/$1" 2>/dev/null) || true
  echo "${found:-unknown}"
}

report() {
  local peak hits faults kills
  if ((version == 1)); then
    peak=$(number memory.max_usage_in_bytes) hits=$(number memory.failcnt)
    faults=$(number memory.stat total_pgmajfault) kills=$(number memory.oom_control oom_kill)
  else
    peak=$(number memory.peak) hits=$(number memory.events max)
    faults=$(number memory.stat pgmajfault) kills=$(number memory.events oom_kill)
  fi
  say "limit=$limit peak=$peak limit_hits=$hits major_faults=$faults oom_kills=$kills rc=$rc"
}

# In the background, so that a signal reaches this shell at once and is forwarded; with the standard input of
# this shell, which a background command would not have.
run_command() {
  local child
  (
    trap - EXIT INT TERM HUP
    put "$BASHPID" cgroup.procs
    exec "$@"
  ) <&0 &
  child=$!
  trap 'kill -TERM "$child" 2>/dev/null || true' TERM HUP
  trap 'kill -INT "$child" 2>/dev/null || true' INT
  while true; do
    rc=0
    wait "$child" 2>/dev/null || rc=$?  # hides the "Killed" of the shell
    kill -0 "$child" 2>/dev/null || break  # otherwise a signal to this shell ended the wait
  done
}

(($# >= 3)) || wrong_arguments "expected BYTES[K|M|G] EVICT_PATH COMMAND [ARGUMENT...], found $# arguments"
limit=$(parse_bytes "$1")
evicted=$2
shift 2
[[ $evicted == - || -e $evicted ]] ||
  wrong_arguments "expected a file or directory to evict, found nothing at '$evicted'"

find_parent
trap remove_group EXIT
make_group
[[ $evicted == - ]] || evict "$evicted"
rc=0
run_command "$@"
report
exit "$rc"
