#!/usr/bin/env bash
# Link prediction by parts on a generated graph whose vectors and edges exceed memory: the first sets of an epoch in a memory budget,
# inside a memory cgroup of that budget plus OVERHEAD where one can be made. What comes before, making the graph and cutting it, has no
# cgroup. Says the peak memory of each phase, and before all else what the phases take of the disk.
#
# usage: ./dev bench partition_big [NODES (5M)] [EDGES (20M)] [DIM (16)] [PARTS (64)] [SETS (100)] [MEMORY (256MiB)] [FANOUT (0)]
#
# The goal of 500 M nodes and 2 B edges is `./dev bench partition_big 500M 2G 16 64 100 8GiB`; what it wants of the disk, it says.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/bench/memory_group.sh
nodes=${1:-5M} edges=${2:-20M} dim=${3:-16} parts=${4:-64} sets=${5:-100} memory=${6:-256MiB} fanout=${7:-0}
folder=${QUARRY_BENCH_DATA:-build/bench-data}/partition_big
bench=$PWD/build/release/bin/bench_partition_big
overhead=$((256 << 20))  # LibTorch, which is resident, and the stacks and heaps of threads
rm -rf "$folder"
mkdir -p "$folder"
trap 'rm -rf "$folder"' EXIT

# Edges are there twice while they are sorted (8 bytes), once in the topology (4, and 8 a node), and in buckets both ways (4 for the
# neighbor, up to 4 for its list). Vectors have Adagrad's state and a timestamp beside them; pages that differ from the last
# checkpoint's are there twice. With FANOUT the ranking behind a whole epoch (SETS 0) has a file of what the encoder makes, 4 bytes
# a float.
limit=$(python3 - "$nodes" "$edges" "$dim" "$memory" "$(df --output=avail -B1 "$folder" | tail -1)" "$overhead" \
  "$sets" "$fanout" <<'PYTHON'
import re, sys
units = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
def number(text):
    digits, unit = re.fullmatch(r"([\d.]+)(\w*)", text).groups()
    return int(float(digits) * units[unit])
nodes, edges, dim, memory = number(sys.argv[1]), number(sys.argv[2]), int(sys.argv[3]), number(sys.argv[4])
free, overhead = int(sys.argv[5]), int(sys.argv[6])
topology, sorting, buckets = 8 * nodes + 4 * edges, 16 * edges, 16 * edges
vectors = 2 * nodes * (8 * dim + 8)
encoded = 4 * nodes * dim if number(sys.argv[7]) == 0 and number(sys.argv[8]) > 0 else 0
need = topology + buckets + max(sorting, vectors + encoded)
show = lambda value: f"{value / 1e9:.1f} GB"
print(f"{nodes:,} nodes, {edges:,} edges, {dim} floats: topology {show(topology)}, sorting {show(sorting)}, buckets {show(buckets)},"
      f" vectors {show(vectors)}, encoded {show(encoded)}; up to {show(need)} of {show(free)} that are free", file=sys.stderr)
if need > free:
    sys.exit("that does not fit: fewer nodes, edges or floats, or another folder (QUARRY_BENCH_DATA)")
print(memory + overhead)
PYTHON
)

"$bench" make "$folder" "$nodes" "$edges"
"$bench" cut "$folder" "$parts" "$memory"
if cgroup=$(make_cgroup "$limit" 2>/dev/null); then
  trap 'remove_cgroup "$cgroup"; rm -rf "$folder"' EXIT
  echo "memory cgroup of $limit bytes: $memory and what LibTorch takes" >&2
else
  cgroup=
  echo "no memory cgroup can be made here: hold the peak of training against $limit bytes" >&2
fi
(
  [ -z "$cgroup" ] || echo "$BASHPID" >"$cgroup/cgroup.procs"
  exec "$bench" train "$folder" "$dim" "$sets" "$memory" "$fanout"
)
