#!/bin/sh
# has-gpu.sh WHAT: fails, with a line, where there is no NVIDIA GPU for WHAT.
for device in /dev/nvidia[0-9]* /dev/dxg; do # dxg: a GPU under WSL
    [ ! -e "$device" ] || exit 0
done
echo "$1: skipped: no NVIDIA GPU on this machine (/dev/nvidia*): run it where there is one" >&2
exit 77
