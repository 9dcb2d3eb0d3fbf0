# Sourced by the benchmarks that train on the data sets, of which $QUARRY_SHARED_DATA (../shared/data) is the folder.
#
#   use_sets NAME            leaves the folder "$folder", which has what was done before
#   import_set SET [OPT..]   makes the database "$folder/SET.db" with these options, unless it is there
#   partition_set SET NAME [OPT..]   cuts that database into the partitioning NAME with these options, unless it has one
#   once KEY COMMAND..       prints the last line of what the command prints, and its seconds of processor time; a command that
#                            this build of quarry has done before under this key is not run again. A command that fails ends the
#                            script with what it said
#
# Each run is kept as soon as it is done, so a benchmark that was stopped goes on where it was; removing the folder begins it anew.
quarry=build/release/bin/quarry

use_sets() {
  sets=${QUARRY_SHARED_DATA:-../shared/data}
  [ -x "$sets/unpack" ] || { echo "the data sets are not in $sets (QUARRY_SHARED_DATA names it)" >&2; exit 1; }
  folder=${QUARRY_BENCH_DATA:-build/bench-data}/$1
  mkdir -p "$folder/done"
  build=$(sha256sum "$quarry" | cut -c1-12)
}

import_set() {
  local name=$1
  shift
  [ -d "$folder/$name.db" ] && return
  "$sets/unpack" "$name" "$folder" >/dev/null
  "$quarry" import "$folder/$name.db" "$folder/$name" "$@" >/dev/null
}

partition_set() {
  local name=$1 partitioning=$2
  shift 2
  "$quarry" partition list "$folder/$name.db" 2>/dev/null | grep -qw "$partitioning" ||
    "$quarry" partition build "$folder/$name.db" "$partitioning" "$@" >/dev/null
}

once() {
  local kept=$folder/done/$1-$build TIMEFORMAT='%U %S' status
  shift
  if [ ! -e "$kept" ]; then
    set +e  # in an `if` the steps of a command that is a function would not end it
    { time (set -e; "$@" >"$kept.out" 2>"$kept.err"); } 2>"$kept.time"
    status=$?
    set -e
    if [ $status != 0 ]; then
      echo "failed with $status: $*" >&2
      cat "$kept.err" >&2
      exit $status
    fi
    { tail -1 "$kept.out"; cat "$kept.time"; } >"$kept.new"
    rm -f "$kept.out" "$kept.err" "$kept.time"
    mv "$kept.new" "$kept"
  fi
  cat "$kept"
}
