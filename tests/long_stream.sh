#!/bin/sh
# long_stream.sh DRO [ROWS]: a stream of ROWS rows (100 million) from standard input. From a tenth of the way on, the
# memory of the process (without its code) is at most 1 MB larger in the second half than in the first. The loss of the
# last window is that of the one half-way, to 5 % (the rows do not change). metrics.jsonl has 20 lines for every doubling
# of the reports, not one for each (--report-most). Prints all three; exit status 1 if not so. Writes one temporary folder.
set -u
dro=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
rows=${2:-100000000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
every=$((rows / 200))
# 65536 rows, again and again: a fast source.
awk 'BEGIN { srand(5); for (i = 0; i < 65536; i++) { x = rand(); y = rand(); print (x + 0.2 * y + 0.3 * rand() > 0.7 ? "+1" : "-1") " 1:" x " 2:" y " 3:1" } }' >block
feed() {
    left=$rows
    while [ "$left" -ge 65536 ]; do
        cat block
        left=$((left - 65536))
    done
    head -n "$left" block
}
feed | "$dro" train --progressive --data libsvm:-,features=3 --batch 512 --report-every "$every" --report-most 20 --threads 1 --out run \
    >out 2>err &
pid=$! # of the last of the pipe
first=0 last=0 # the most of the first and of the second half, from a tenth of the way on
while kill -0 "$pid" 2>/dev/null; do
    now=$(sed -n 's/^RssAnon:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$pid/status" 2>/dev/null)
    lines=$(grep -c . run/metrics.jsonl 2>/dev/null)
    if [ "${lines:-0}" -ge 56 ]; then
        [ "${now:-0}" -gt "$last" ] && last=$now
    elif [ "${lines:-0}" -ge 20 ]; then
        [ "${now:-0}" -gt "$first" ] && first=$now
    fi
    sleep 0.2
done
wait
[ -s run/result.json ] || { echo "FAILED: $(cat err)"; exit 1; }
sed -n 's/.*"window":{[^}]*"loss":\([0-9.e-]*\).*/\1/p' run/metrics.jsonl >losses
early=$(sed -n 25p losses) late=$(tail -n 1 losses)
echo "long stream: $rows rows, $(wc -l <run/metrics.jsonl) lines of $(wc -c <run/metrics.jsonl) bytes, memory $first kB then $last kB, loss $early then $late"
[ "$first" -gt 0 ] && [ $((last - first)) -le 1024 ] || { echo "FAILED: memory grows"; exit 1; }
awk -v a="$early" -v b="$late" 'BEGIN { exit !(b <= 1.05 * a && b >= 0.8 * a) }' || { echo "FAILED: the loss drifts"; exit 1; }
