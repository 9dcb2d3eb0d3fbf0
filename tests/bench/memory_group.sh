# Sourced by the benchmarks that are held to a limit of memory.
#
#   make_cgroup BYTES      makes a memory cgroup (v1 or v2) of so many and prints its folder; fails where that is not possible
#   remove_cgroup FOLDER   removes it, for a trap; never fails, but says it where a process stays in it
make_cgroup() {
  local v1=/sys/fs/cgroup/memory/quarry-$$ v2=/sys/fs/cgroup/quarry-$$
  if [ -d /sys/fs/cgroup/memory ]; then
    mkdir "$v1" && echo "$1" >"$v1/memory.limit_in_bytes" && echo "$v1"
  elif grep -qw memory /sys/fs/cgroup/cgroup.controllers; then
    echo +memory >/sys/fs/cgroup/cgroup.subtree_control
    mkdir "$v2" && echo "$1" >"$v2/memory.max" && echo 0 >"$v2/memory.swap.max" && echo "$v2"
  else
    return 1
  fi
}

# The kernel empties it a moment after its last process is gone.
remove_cgroup() {
  local tries
  for ((tries = 0; tries < 20; tries++)); do
    if rmdir "$1" 2>/dev/null; then return 0; fi
    sleep 0.1
  done
  echo "$1: still in use; remove it with rmdir" >&2
}
