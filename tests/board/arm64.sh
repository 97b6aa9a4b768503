#!/usr/bin/env bash
# The board as far as an x86_64 machine can show it: a Debian arm64 root under qemu-user, the wheel installed there by pip,
# and what must hold on a board without a DSP. Not part of .ci/run (45 minutes, most of it emulated); run it before a
# release, as root:
#
#   tests/board/arm64.sh FOLDER            all steps; FOLDER/root is kept, and a step that is done is not done again
#   tests/board/arm64.sh FOLDER wheel install check     only these, e.g. after a change
#
# Seen: all steps to their end (2026-11-30, Debian 12, on a busy machine): `provider: auto` falls to the CPU and gives the
# three parts their true verdicts; 572 tests pass, 127 are skipped (117 compare with OpenCV, whose arithmetic is another
# one on ARM; no camera of Aravis and no real pictures are in the root). One needs a checkout's sources and is left out.
#
# Needs Debian or Ubuntu with: debootstrap qemu-user-static binfmt-support gcc-aarch64-linux-gnu libc6-dev-arm64-cross
set -euo pipefail
repository=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(realpath -m "${1:?usage: $0 FOLDER [root] [wheel] [install] [check]}")
shift
steps=("$@")
((${#steps[@]})) || steps=(root wheel install check)
root=$folder/root
mkdir -p "$folder"

# qemu shows programs the host's /proc/cpuinfo; onnxruntime, which looks for an ARM CPU there, ends with a segmentation
# fault. It is given two cores of a Cortex-A78 instead.
cpuinfo() {
  for core in 0 1; do
    printf '%s\t: %s\n' processor $core BogoMIPS 38.40 Features 'fp asimd aes crc32 atomics fphp asimdhp asimdrdm asimddp' \
      'CPU implementer' 0x41 'CPU architecture' 8 'CPU variant' 0x1 'CPU part' 0xd41 'CPU revision' 0
    echo
  done
}

# Runs a command in the root, with mounts that end with it.
inside() {
  cpuinfo >"$folder/cpuinfo"
  unshare --mount -- bash -c '
    root=$1; shift
    mount -t proc proc "$root/proc"
    mount --bind "$root/../cpuinfo" "$root/proc/cpuinfo"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    exec chroot "$root" /usr/bin/env -i PATH=/opt/edge_app/bin:/usr/bin:/bin HOME=/root LANG=C.UTF-8 \
      PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_DISABLE_PIP_VERSION_CHECK=1 "$@"' inside "$root" "$@"
}

step_root() {
  if ! [ -x "$root/usr/bin/python3" ]; then
    debootstrap --arch=arm64 --variant=minbase --include=python3,python3-venv \
      bookworm "$root" ${MIRROR:+"$MIRROR"}    # without MIRROR: the one of debootstrap
  fi
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  mkdir -p "$root/etc/ssl/certs"
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"    # a mirror may have a CA of its own
  inside uname -m
}

step_wheel() {
  [ -x "$folder/build/bin/pip" ] || python3 -m venv "$folder/build"
  "$folder/build/bin/pip" install --quiet build
  rm -rf "$folder/wheel"
  (cd "$repository" && CC=aarch64-linux-gnu-gcc LDSHARED="aarch64-linux-gnu-gcc -shared" \
    _PYTHON_HOST_PLATFORM=linux-aarch64 "$folder/build/bin/python" -m build --wheel --outdir "$folder/wheel" . >/dev/null)
  ls "$folder/wheel"
}

# Packages are fetched here, where that is quick; pip inside resolves and installs them.
step_install() {
  wheel=("$folder"/wheel/edge_app-*.whl)
  "$folder/build/bin/pip" download --quiet --dest "$folder/wheel" --only-binary=:all: --python-version 3.11 \
    --implementation cp --abi cp311 --abi abi3 --abi none \
    --platform manylinux_2_34_aarch64 --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 \
    --platform manylinux_2_26_aarch64 --platform manylinux_2_17_aarch64 --platform manylinux2014_aarch64 \
    --platform linux_aarch64 --platform any \
    "${wheel[0]}" pytest hypothesis onnx
  rm -rf "$root/wheel" && cp -r "$folder/wheel" "$root/wheel"
  [ -x "$root/opt/edge_app/bin/pip" ] || inside python3 -m venv /opt/edge_app
  inside sh -c 'pip uninstall --quiet --yes edge_app; exec pip install --quiet --no-compile --no-index --find-links /wheel /wheel/edge_app-*.whl pytest hypothesis onnx'
  inside pip list
}

# What must hold: each line of output is a check that held; the first that does not ends the script.
step_check() {
  rm -rf "$root/repository" && mkdir "$root/repository"
  (cd "$repository" && git ls-files -z tests models pipelines pyproject.toml | xargs -0 cp --parents -t "$root/repository")
  inside sh -c 'cd /repository && exec python3 -P -m edge_app doctor --json' >"$folder/doctor.json" || true
  python3 - "$folder/doctor.json" <<'PYTHON'
import json, sys
report = json.load(open(sys.argv[1]))
assert report["npu"] is False and report["simulator"] is False and report["devices"] == [], report
for finding in report["findings"]:
    print("doctor:", finding["grade"], finding["check"], finding["text"])
assert any(f["check"] == "machine" and "aarch64" in f["text"] for f in report["findings"]), "not an aarch64 machine"
PYTHON
  # A run of the model takes half a minute of emulation, so it gets an hour before it counts as hung: nothing else is
  # made easier. One thread: two would wait for each other at every node.
  inside sh -c 'cd /repository && python3 -P -m edge_app --pipeline pipelines/defect.yaml --frames 3 --json \
    --set monitor.http=null --set results.publish=null --set results.commands=null \
    --set runtime.timeout_ms=3600000 --set runtime.warmup_runs=0 --set runtime.threads=1' \
    >"$folder/auto.json" 2>"$folder/auto.log" || { cat "$folder/auto.log"; exit 1; }
  grep -F "plan cpu: no DSP: there is no /dev/fastrpc-cdsp*" "$folder/auto.log"
  python3 - "$folder/auto.json" <<'PYTHON'
import json, sys
run = json.load(open(sys.argv[1]))
assert (run["frames"], run["lost"], run["plan"], run["degraded"]) == (3, 0, "cpu", []), run
assert (run["pass"], run["fail"], run["unknown"], run["escapes"], run["false_rejects"]) == (2, 1, 0, 0, 0), run
print("provider auto:", {key: run[key] for key in ("frames", "pass", "fail", "unknown", "escapes", "false_rejects", "plan", "p50_ms")})
PYTHON
  inside sh -c 'cd /repository && python3 -P -m pytest -q -p no:cacheprovider tests/unit/preprocess tests/unit/decode \
    tests/unit/camera tests/unit/test_judge.py tests/unit/test_guard.py tests/unit/test_scheduler.py \
    tests/plant/test_cli.py::test_a_run_ends_with_its_summary \
    --deselect tests/unit/preprocess/test_preprocess_build.py::test_every_source_is_in_the_source_distribution'
}

for step in "${steps[@]}"; do
  printf '\n== %s (%s)\n' "$step" "$(date +%H:%M:%S)"
  "step_$step"
done
