#!/bin/sh
# The comparisons with Python libraries: remakes every reference and compares it with the checked-in
# one, reruns some of it with PyTorch, exchanges weights files with safetensors, has event files read by
# TensorBoard, compares the networks with torchvision's, reads images, arrays and tables with Pillow, NumPy
# and scikit-learn and with libdro, computes a run's figures with scikit-learn, solves KL-DRO on a9a with
# SciPy and with the package `dro`, and runs the benchmark against scikit-learn. Run by `make test-peers` with
# $PYTHON, $EXACT_PYTHON and $DRO. Writes only under a temporary folder.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1

echo "trajectories: NumPy against the checked-in reference"
mkdir "$work/refs"
cp "$here/refs/make_trajectories.py" "$work/refs/"
"$PYTHON" "$work/refs/make_trajectories.py"
"$PYTHON" "$here/peers/compare.py" "$here/refs/trajectories.txt" "$work/refs/trajectories.txt"
echo "worst-case weights: SciPy against the checked-in reference"
"$PYTHON" "$here/refs/make_objectives.py" > "$work/objectives.txt"
"$PYTHON" "$here/peers/compare.py" "$here/refs/objectives.txt" "$work/objectives.txt" 1e-8
echo "exact minima: SciPy against the checked-in reference"
"$PYTHON" "$here/refs/make_exact.py" > "$work/exact.txt"
"$PYTHON" "$here/peers/compare.py" "$here/refs/exact.txt" "$work/exact.txt" 1e-8
echo "trajectories: PyTorch against the checked-in reference"
"$PYTHON" "$here/peers/torch_check.py"

echo "augmentation: torchvision against the checked-in reference"
cp "$here/refs/make_policy.py" "$work/refs/"
"$PYTHON" "$work/refs/make_policy.py"
cmp "$here/refs/policy.txt" "$work/refs/policy.txt"

echo "weights files: Python's safetensors in both directions"
"$PYTHON" "$here/peers/safetensors_check.py" "$(dirname "$DRO")/tests/peer_safetensors_copy"

echo "networks: PyTorch against the checked-in reference"
cp "$here/refs/make_nets.py" "$work/refs/"
"$PYTHON" "$work/refs/make_nets.py"
"$PYTHON" "$here/peers/compare.py" "$here/refs/nets.txt" "$work/refs/nets.txt" 1e-6
echo "networks: PyTorch and torchvision at full size"
net_dump=$(dirname "$DRO")/tests/peer_net_dump
"$PYTHON" "$here/peers/nets_check.py" "$net_dump" ref resnet20 resnet50 sgd recover
"$PYTHON" "$here/peers/nets_check.py" "$net_dump" cpu

echo "exported models: onnx's checker, onnxruntime and PyTorch"
"$PYTHON" "$here/peers/export_check.py" "$DRO"

echo "data: NumPy and scikit-learn against the checked-in references"
for name in binary text; do
  cp "$here/refs/make_$name.py" "$work/refs/"
  if [ $name = text ] && ! command -v zstd >/dev/null; then
    echo "$name: skipped, there is no zstd to pack with"
    continue
  fi
  "$PYTHON" "$work/refs/make_$name.py"
  # Packed files depend on the version of the packer.
  diff -rq -x '*.gz' -x '*.zst' -x '*.npz' "$here/refs/$name" "$work/refs/$name"
done
echo "data: Pillow, NumPy and scikit-learn against libdro"
"$PYTHON" "$here/peers/data_check.py" "$here/../../shared/data"

echo "event files: TensorBoard's own reader"
"$PYTHON" "$here/peers/events_check.py" "$DRO"

echo "metrics: scikit-learn on the same predictions"
"$PYTHON" "$here/peers/metrics_check.py" "$DRO"

a9a="$here/../../shared/data/tabular/a9a"
if [ -f "$a9a" ]; then
  echo "a9a: SciPy's L-BFGS against the checked-in optimum"
  "$PYTHON" "$here/refs/make_a9a.py" "$a9a" > "$work/a9a.txt"
  "$PYTHON" "$here/peers/compare.py" "$here/refs/a9a.txt" "$work/a9a.txt" 1e-6 2
  echo "a9a: the exact minimum, with SciPy and with the package dro in the same run"
  "$EXACT_PYTHON" "$here/peers/exact_check.py" "$DRO" "$a9a"
else
  echo "a9a: skipped, the data is not beside this checkout"
fi

echo "linear models: scikit-learn in the same run"
"$DRO" bench linear --python "$PYTHON"
