# Sourced by the benchmarks that make a graph of their own.
#
#   make_graph NAME NODES
#
# leaves the database "$folder/graph.db", of NODES with 128 float32 each, which goes when the script ends.
quarry=build/release/bin/quarry

make_graph() {
  folder=${QUARRY_BENCH_DATA:-build/bench-data}/$1
  rm -rf "$folder"
  mkdir -p "$folder"
  trap 'rm -rf "$folder"' EXIT
  $quarry generate "$folder/graph" --nodes "$2" --dim 128 --degree 15 --classes 50 --seed 1
  $quarry import "$folder/graph.db" "$folder/graph" --memory 4GiB
  rm -rf "$folder/graph"
}
