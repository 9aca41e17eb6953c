#!/bin/sh
# has-gpu.sh WHAT: fails, with a line, where there is no NVIDIA GPU for WHAT.
ls /dev/nvidia[0-9]* >/dev/null 2>&1 && exit 0
echo "$1: skipped: no NVIDIA GPU on this machine (/dev/nvidia*): run it where there is one" >&2
exit 77
