#!/bin/sh
# ranks-cuda.sh PROGRAM: ranks on one NVIDIA GPU. Prints a line for each of these and fails where one is wrong:
#   1 rank without and with NCCL in the step's graph: the same weights, and the ratio of the times of a step (median of
#     ROUNDS (7) interleaved pairs; at most LIMIT (1.02)), for SGD and RECOVER
#   the same for batch norm over all ranks: how far its weights are from those without
#   2 ranks on the GPU, through MPI and host memory, with sync_norm=yes against 1 rank, in fp32 and without momentum, after
#     100 steps with eta 2e-5 and after 3 with eta 0.01: |difference| of the trained weights over their norm, at most 1e-5
#   two runs of 1 rank with NCCL and two of 2 ranks, deterministic=yes: the same bytes
#   a rank of 2 that is killed, and one that is stopped: the other ends within 10 s
# NCCL: the file of the library, where the system does not find libnccl.so.2. EPOCHS (30) is the length of a timed run.
dro=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
cd "$(dirname "$0")/../tests" && . ./ranks.sh
nccl=${NCCL:-1}
if [ "$nccl" = 1 ] && ! ldconfig -p 2>/dev/null | grep -q 'libnccl\.so\.2'; then
    found=$(python3 -c 'import nvidia.nccl; print(list(nvidia.nccl.__path__)[0] + "/lib/libnccl.so.2")' 2>/dev/null)
    [ ! -e "$found" ] || nccl=$found
fi
failed=0
wrong() {
    echo "  WRONG: $*" >&2
    failed=1
}

glyphs="--backend cuda --data synth:glyphs,n=12800,test=100,size=32 --model resnet20 --batch 128 --set eval_train=no"

# field FOLDER NAME: a number of its result.json
field() { sed -n "s/^ *\"$2\": *\([0-9.e+-]*\).*/\1/p" "$1/result.json" | head -1; }
median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
# apart A B: |a - b| / |b| over the trained weights. Runs that only round differently drift apart: a ReLU whose input is
# zero up to rounding changes a gradient by 1e-3. So the steps here are small; with the default eta 100 steps are too many.
apart() {
    python3 - "$1" "$2" <<'END'
import array, json, math, struct, sys
def weights(folder):
    data = open(folder + "/weights.safetensors", "rb").read()
    start = 8 + struct.unpack("<Q", data[:8])[0]
    for name, t in sorted(json.loads(data[8:start]).items()):
        if name != "__metadata__" and t["dtype"] == "F32" and "running" not in name:
            yield from array.array("f", data[start + t["data_offsets"][0]:start + t["data_offsets"][1]])
pairs = list(zip(*map(weights, sys.argv[1:])))
print("%.3g" % math.sqrt(sum((a - b) ** 2 for a, b in pairs) / sum(b * b for a, b in pairs)))
END
}
same() { cmp -s "$1/weights.safetensors" "$2/weights.safetensors"; }

# once FOLDER NCCL SETTINGS...: one rank; prints milliseconds of a step
once() {
    out=$1 with=$2
    shift 2
    rm -rf "$out"
    DRO_NCCL=$with "$dro" train "$@" --out "$out" >log 2>&1 || fail "$out"
    if [ "$with" != 0 ] && grep -q 'through host memory' log; then fail "NCCL was not used"; fi
    awk -v t="$(field "$out" seconds)" -v s="$(field "$out" step)" 'BEGIN { print 1000 * t / s }'
}

# ---- one rank, NCCL in the graph ----
for optimizer in sgd recover; do
    set -- $glyphs --optimizer $optimizer --epochs "${EPOCHS:-30}" --set eval_every=1000
    once plain 0 "$@" --set deterministic=yes >/dev/null
    once nccl "$nccl" "$@" --set deterministic=yes >/dev/null
    same plain nccl || wrong "$optimizer: weights differ by $(apart nccl plain)"
    rm -f without with
    k=0
    while [ $k -lt "${ROUNDS:-7}" ]; do
        if [ $((k % 2)) -eq 0 ]; then
            once plain 0 "$@" >>without
            once nccl "$nccl" "$@" >>with
        else
            once nccl "$nccl" "$@" >>with
            once plain 0 "$@" >>without
        fi
        k=$((k + 1))
    done
    ratio=$(paste with without | awk '{ print $1 / $2 }' | median)
    printf '%s, 1 rank: %.4f ms a step without NCCL, %.4f with; ratio %.4f\n' $optimizer "$(median <without)" \
        "$(median <with)" "$ratio"
    awk -v r="$ratio" -v l="${LIMIT:-1.02}" 'BEGIN { exit !(r > 0 && r <= l) }' || wrong "above ${LIMIT:-1.02}"
done

# ---- fp32, 100 steps: batch norm over all ranks ----
exact="$glyphs --optimizer recover --eta 2e-5 --set momentum=0 --steps 100 --precision fp32 --set deterministic=yes \
    --threads 1"
once one 0 $exact >/dev/null
once sync "$nccl" $exact --set sync_norm=yes >/dev/null
d=$(apart sync one)
echo "1 rank, sync_norm=yes with NCCL against none: weights differ by $d"
awk -v d="$d" 'BEGIN { exit !(d != "" && d <= 1e-5) }' || wrong "above 1e-5"

for k in 1 2; do
    rm -rf two-$k
    ranks 2 "$dro" train $exact --set sync_norm=yes --out two-$k >log 2>&1 || fail "2 ranks on one GPU"
    grep -q 'gradients go through host memory: ranks 0 and 1 share a GPU' log || wrong "2 ranks do not say how they sum"
done
d=$(apart two-1 one)
echo "2 ranks on one GPU, sync_norm=yes, against 1 rank after 100 steps: weights differ by $d"
awk -v d="$d" 'BEGIN { exit !(d != "" && d <= 1e-5) }' || wrong "above 1e-5"

short="$exact --eta 0.01 --steps 3"
once three 0 $short >/dev/null
rm -rf both
ranks 2 "$dro" train $short --set sync_norm=yes --out both >log 2>&1 || fail "2 ranks on one GPU, 3 steps"
d=$(apart both three)
echo "the same after 3 steps with eta 0.01: weights differ by $d"
awk -v d="$d" 'BEGIN { exit !(d != "" && d <= 1e-5) }' || wrong "above 1e-5"

# ---- the same bytes again ----
once again "$nccl" $exact --set sync_norm=yes >/dev/null
if same sync again; then echo "1 rank with NCCL, twice: the same bytes"; else wrong "1 rank with NCCL, twice: other bytes"; fi
if same two-1 two-2; then echo "2 ranks, twice: the same bytes"; else wrong "2 ranks, twice: other bytes"; fi

# ---- faults ----
for signal in KILL STOP; do
    rm -rf fault
    mpirun --oversubscribe -n 2 "$dro" train $glyphs --optimizer recover --epochs 100000 --threads 1 --out fault \
        >log 2>&1 &
    starter=$!
    until_file fault/config.json || fail "2 ranks do not start"
    sleep 5
    victim=$(children $starter | tail -1)
    kill -$signal "$victim"
    began=$(date +%s%N)
    wait $starter
    took=$((($(date +%s%N) - began) / 1000000))
    [ $signal = KILL ] || kill -KILL "$victim" 2>/dev/null
    echo "2 ranks, SIG$signal of one: all ended after $took ms"
    [ $took -le 10000 ] || wrong "after more than 10 s"
done
exit $failed
