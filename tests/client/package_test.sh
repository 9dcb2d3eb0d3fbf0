#!/usr/bin/env bash
# The Debian packages: what is in them, what they depend on, and that the command runs from where they were unpacked.
#
#   package_test.sh BUILD    the build folder
set -euo pipefail
build=$(realpath "$1")
for tool in cpack dpkg-deb dpkg-shlibdeps; do
  command -v "$tool" >/dev/null || { echo "package_test: no $tool here: not tested"; exit 0; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "package_test: $*" >&2
  exit 1
}

(cd "$build" && cpack -D CPACK_DEBIAN_COMPRESSION_TYPE=gzip -B "$work/packages" >"$work/log" 2>&1) || { cat "$work/log" >&2; fail "cpack fails"; }
for package in quarry libquarry-dev; do
  file=$(echo "$work"/packages/${package}_*.deb)
  [ -e "$file" ] || fail "there is no package $package"
  dpkg-deb -x "$file" "$work/root"
  dpkg-deb -f "$file" Depends >"$work/$package.depends"
done
depends() {
  grep -qE "(^|, )$2" "$work/$1.depends" || fail "$1 does not depend on $2: $(cat "$work/$1.depends")"
}
for library in libc6 librocksdb liburing libtorch libopenblas0-pthread; do depends quarry "$library"; done
for library in libc6 librocksdb libfmt-dev; do depends libquarry-dev "$library"; done
! grep -q torch "$work/libquarry-dev.depends" || fail "the libraries do not need LibTorch"

usr=$work/root/usr
for path in bin/quarry-train share/doc/quarry/LICENSE share/doc/libquarry-dev/LICENSE include/quarry.h lib/quarry/libquarry_sqlite.so \
  share/bash-completion/completions/quarry share/zsh/vendor-completions/_quarry share/fish/vendor_completions.d/quarry.fish; do
  [ -s "$usr/$path" ] || fail "there is no /usr/$path"
done
! readelf -S "$usr/bin/quarry" "$usr/bin/quarry-train" "$usr"/lib/libquarry.so.0 | grep -q '[.]debug_info' || fail "binaries are not stripped"

# `quarry 0.1.0 (7f7ee98e21)`
version=$("$usr/bin/quarry" --version) || fail "the command does not run"
grep -qxE 'quarry [0-9]+[.][0-9]+[.][0-9]+ [(]([0-9a-f]{7,40}|unknown)[)]' <<<"$version" || fail "it says: $version"
"$usr/bin/quarry" generate "$work/graph" --nodes 500 --dim 8 --classes 3 --train-share 50% >/dev/null
"$usr/bin/quarry" import "$work/db" "$work/graph" >/dev/null
"$usr/bin/quarry" train "$work/db" --epochs 1 --hidden 8 >/dev/null 2>"$work/train.log" || { cat "$work/train.log" >&2; fail "it does not train"; }

# The page has a section for each verb, and no request of roff that is none.
page=$work/page
gzip -dc "$usr/share/man/man1/quarry.1.gz" >"$page"
for verb in import train 'layout build' completion; do
  grep -qx "[.]SH QUARRY ${verb^^}" "$page" || fail "the man page has no section of $verb"
done
if command -v groff >/dev/null; then
  groff -man -Tutf8 -ww "$page" >"$work/read" 2>"$work/groff.log"
  [ ! -s "$work/groff.log" ] || { head "$work/groff.log" >&2; fail "groff complains of the man page"; }
  grep -q -- '--fanout' "$work/read" || fail "the man page does not show options"
fi
echo "packages: ok"
