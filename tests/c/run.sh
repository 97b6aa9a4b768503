#!/bin/sh
# The C tests: `run.sh` on this machine under address and undefined-behaviour sanitizers; `run.sh aarch64` cross-compiled
# for NEON and run by qemu-user (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user). Exit code 0: all pass.
set -eu
cd "$(dirname "$0")/../.."
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

flags="-std=c11 -Wall -Wextra -Werror -ffp-contract=off -fno-math-errno -Itests/c"
case "${1:-native}" in
native)
    compiler=${CC:-cc}
    flags="$flags -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer"
    runner="" plans=3000 ;;
aarch64)
    compiler=aarch64-linux-gnu-gcc
    flags="$flags -O3 -static"
    runner=qemu-aarch64 plans=1500 ;;
*)
    echo "usage: $0 [native|aarch64]" >&2
    exit 2 ;;
esac

command -v "$compiler" >/dev/null || { echo "$0: no $compiler: install it, see the top of this file" >&2; exit 2; }
if [ -n "$runner" ]; then
    command -v "$runner" >/dev/null || { echo "$0: no $runner: install qemu-user" >&2; exit 2; }
fi

# module.c is the Python binding; all else of a folder is plain C.
sources() { find "edge_app/$1" -name '*.c' ! -name module.c; }

for part in preprocess decode; do
    # shellcheck disable=SC2046,SC2086
    $compiler $flags "-Iedge_app/$part" -o "$build/$part" "tests/c/test_$part.c" $(sources $part) -lm
done
$runner "$build/preprocess" tests/golden/preprocess.txt $plans
$runner "$build/decode" tests/golden/decode.txt $plans
