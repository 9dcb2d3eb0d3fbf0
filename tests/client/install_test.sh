#!/usr/bin/env bash
# What is installed serves programs outside: a project of C++ and C finds it by CMake and by pkg-config, also
# where the tree was moved to; and opens a database through both libraries. The installed command finds its
# trainer, and SQLite's shell the extension.
#
#   install_test.sh BUILD QUARRY    the build folder; the command
set -euo pipefail
build=$1
quarry=$2
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
server=
cleanup() {
  [ -z "$server" ] || { kill "$server" && wait "$server" || true; }
  rm -rf "$work"
}
trap cleanup EXIT
fail() {
  echo "install_test: $*" >&2
  exit 1
}

cmake --install "$build" --prefix "$work/first" --component library >"$work/install.log"
mv "$work/first" "$work/moved"
lib=$(dirname "$(find "$work/moved" -name libquarry_remote.so.0)")
export PKG_CONFIG_PATH=$lib/pkgconfig LD_LIBRARY_PATH=$lib
[ -e "$lib/libquarry.so.0" ] || fail "there is no libquarry.so.0"
! ldd "$lib/libquarry_remote.so.0" | grep -E 'rocksdb|torch|not found' || fail "the remote library links these"
! ldd "$lib/libquarry.so.0" | grep -E 'torch|not found' || fail "the library links these"
# The library shows only the names of the interface: quarry_*, and what the installed headers declare.
! nm -DC --defined-only "$lib/libquarry.so.0" | cut -d' ' -f3- | grep -vE '^quarry(_|::)' || fail "libquarry shows these"

# The examples of the manual and of README.md are programs: ```cpp and ```c blocks.
awk -v out="$work/example" '/^```(cpp|c)$/ { f = out (++n) ($0 == "```c" ? ".c" : ".cc"); next } /^```/ { f = "" } f { print > f }' \
  "$root/docs/client.md" "$root/README.md"
examples=$(find "$work" -maxdepth 1 -name 'example*' | paste -sd';')
[ -n "$examples" ] || fail "docs/client.md has no examples"

cmake -S "$here/outside" -B "$work/outside" -DCMAKE_PREFIX_PATH="$work/moved" -DEXAMPLES="$examples" >"$work/configure.log"
cmake --build "$work/outside" -j2 >"$work/build.log" || { cat "$work/build.log" >&2; fail "the outside project does not build"; }
cmake -S "$root/examples" -B "$work/examples" -DCMAKE_PREFIX_PATH="$work/moved" >"$work/configure.log"
cmake --build "$work/examples" -j2 >"$work/build.log" || { cat "$work/build.log" >&2; fail "the examples do not build"; }
for package in quarry quarry-remote; do
  # shellcheck disable=SC2046
  c++ -std=c++20 $(pkg-config --cflags "$package") "$here/outside/counts.cc" $(pkg-config --libs "$package") -o "$work/pc_$package"
  # shellcheck disable=SC2046
  cc -std=c99 -Wall -Wextra -pedantic -Werror $(pkg-config --cflags "$package") "$here/outside/counts.c" \
    $(pkg-config --libs "$package") -o "$work/pc_c_$package"
done

{ "$quarry" generate "$work/source" --nodes 2000 --dim 16 --classes 4 && "$quarry" import "$work/db" "$work/source"; } \
  >"$work/import.log" 2>&1 || { cat "$work/import.log" >&2; fail "no database"; }
# The command, by itself.
cmake --install "$build" --prefix "$work/tool" --component tool >"$work/install_tool.log"
mv "$work/tool" "$work/tool_moved"
tool=$work/tool_moved/bin/quarry
nodes=$(env -u LD_LIBRARY_PATH "$tool" sql --csv "$work/db" "SELECT count(*) AS n FROM nodes") || fail "the installed command does not run"
[ "$nodes" = "$(printf 'n\n2000')" ] || fail "the installed command says: $nodes"
if [ -e "$(dirname "$quarry")/quarry-train" ]; then
  env -u LD_LIBRARY_PATH "$tool" train --help >"$work/train_help" || fail "the installed command does not find its trainer"
  grep -q -- --fanout "$work/train_help" || fail "this is not the help of train"
fi
extension=$(find "$work/tool_moved" -name libquarry_sqlite.so)
[ "$(basename "$(dirname "$extension")")" = quarry ] || fail "there is no lib/quarry/libquarry_sqlite.so"
nodes=$(env -u LD_LIBRARY_PATH sqlite3 :memory: "SELECT load_extension('${extension%.so}')" \
  "CREATE VIRTUAL TABLE g USING quarry('$work/db')" "SELECT 'nodes: ' || count(*) FROM nodes") || fail "SQLite does not load $extension"
grep -qx 'nodes: 2000' <<<"$nodes" || fail "SQLite says: $nodes"

expected=$("$work/outside/counts_cc_quarry" "$work/db")
echo "$expected"
grep -q '^2000 nodes' <<<"$expected" || fail "the counts are wrong"
same() {
  local got
  got=$("$@") || fail "$* ended with $?"
  [ "$got" = "$expected" ] || fail "$* says: $got"
}
same "$work/outside/counts_c_quarry" "$work/db"
same "$work/pc_quarry" "$work/db"
same "$work/pc_c_quarry" "$work/db"
! "$work/outside/counts_cc_remote" "$work/db" 2>"$work/refused" || fail "a remote client opens no folder"
grep -q libquarry "$work/refused" || fail "the refusal names the library that would do"

"$quarry" serve "$work/db" --socket "$work/run/q.sock" --memory 256MiB 2>"$work/serve.log" &
server=$!
for _ in $(seq 100); do
  [ -S "$work/run/q.sock" ] && break
  sleep 0.1
done
for program in outside/counts_cc_quarry outside/counts_cc_remote outside/counts_c_remote pc_quarry-remote pc_c_quarry-remote; do
  same "$work/$program" "unix:$work/run/q.sock"
done

# The examples: what they print follows from the database, a folder's as a server's.
said() {  # PATTERN PROGRAM ADDRESS: all that it prints, its lines joined by blanks, is of the pattern
  local got
  got=$("$work/examples/$2" "$3" | paste -sd' ') || fail "examples/$2 $3 ended with $?"
  grep -qxE "$1" <<<"$got" || fail "examples/$2 $3 says: $got"
}
number='-?[0-9.e+-]+'
epoch=$(env -u LD_LIBRARY_PATH "$quarry" sql --csv "unix:$work/run/q.sock" "SELECT count(*) FROM nodes WHERE split = 'train'" | tail -n 1)
said ".* $epoch seeds; .*" batches_cc "unix:$work/run/q.sock"
kill "$server" && wait "$server" || true
server=
said "[0-9]+ batches, $epoch seeds; $number nodes and $number edges a seed; features of seeds sum to $number" batches_cc "$work/db"
said "[0-9]+ batches, $epoch seeds, [0-9]+ rows gathered" batches_c "$work/db"
first() {
  "$quarry" sql --csv "$work/db" "SELECT vec_to_json(vec_slice(feature, 0, 1)) FROM features WHERE id = $1" | tail -n 1 | tr -d '"[]'
}
three=$(first 3) five=$(first 5)
said "node 3: 16 floats, .*" rows_cc "$work/db"
# A float32 in decimal digits is rounded.
awk -v a="$three" -v b="$(first 3)" 'BEGIN { off = b / 2 - a; exit !(a != 0 && off * off < 1e-12 * a * a) }' || fail "rows.cc made $(first 3) of $three"
said "node 5: 16 floats, .*" rows_c "$work/db"
awk -v a="$five" -v b="$(first 5)" 'BEGIN { exit !(a != 0 && b == -a) }' || fail "rows.c made $(first 5) of $five"
hub=$("$quarry" sql --csv "$work/db" "SELECT id FROM nodes ORDER BY in_degree DESC, id LIMIT 1" | tail -n 1)
said "node $hub: in-degree [0-9]+, split [a-z]+ now: valid" sql_cc "$work/db"
[ "$("$quarry" sql --csv "$work/db" "SELECT split FROM nodes WHERE id = $hub" | tail -n 1)" = valid ] || fail "sql.cc committed nothing"
echo "installed: ok"
