#!/bin/sh
# kills.sh DRO [COUNT]: kills runs at random moments (SIGKILL) and resumes them, COUNT times in all (1000), over a
# table, images without and with every ingredient, a stream, a comparison and a sweep. At the end weights, metrics and
# results are those of runs that were left alone, but for the times. One line per kind; exit status 1 if anything
# differs. Writes one temporary folder. JOBS: so many share the work (1). SEED: of the moments (1). SECONDS_EACH: of a
# kind of run, at most (no limit).
set -u
dro=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
count=${2:-1000} jobs=${JOBS:-1} seed=${SEED:-1} seconds=${SECONDS_EACH:-0}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
if [ "$jobs" -gt 1 ]; then
    for job in $(seq "$jobs"); do
        (JOBS=1 SEED=$((seed * 1000 + job)) sh "$0" "$dro" $(((count + jobs - 1) / jobs)) 2>&1 || echo FAILED) >"$work/$job" &
    done
    wait
    awk '/^kills/ { if (!($2 in sum)) order[++n] = $2; sum[$2] += $3; next } { print; bad = bad || /^FAILED/ }
        END { for (k = 1; k <= n; k++) { print "kills", order[k], sum[order[k]]; all += sum[order[k]] }
              print "kills:", all, (bad ? "with failures" : "without failure"); exit bad }' "$work"/*
    exit
fi
each=$(((count + 5) / 6))
cd "$work" || exit 1
awk 'BEGIN { srand(3); print "a,b,y"; for (i = 0; i < 2000; i++) { x = rand(); print x "," rand() "," (x > 0.5 ? "p" : "q") } }' >t.csv
awk 'BEGIN { srand(4); for (i = 0; i < 60000; i++) { x = rand(); print (x > 0.5 ? "+1" : "-1") " 1:" x " 2:" rand() } }' >s.svm
failed=0

# plain FOLDER: every file of its runs that must be the same, without times.
plain() {
    find "$1" -name weights.safetensors -o -name last.safetensors -o -name metrics.jsonl -o -name result.json |
        sort | while read -r file; do
            echo "$file" | sed "s|^$1||"
            sed -E 's/"(seconds|wall)": ?[^,}]*//g' "$file" | cksum
        done
}

# kind NAME RESUME ARGUMENTS...: RESUME is the option that resumes the command ("" for compare and sweep).
kind() {
    name=$1 resume=$2 kills=0
    shift 2
    "$dro" "$@" --out whole >/dev/null 2>&1 || { echo "FAILED: $name does not run"; failed=1; return; }
    plain whole >whole.sums
    start=$(date +%s%N)
    "$dro" "$@" --out timed >/dev/null 2>&1
    length=$((($(date +%s%N) - start) / 1000000)) # ms
    rm -rf timed
    end=$(($(date +%s) + seconds))
    while [ $kills -lt $each ] && { [ "$seconds" -eq 0 ] || [ "$(date +%s)" -lt $end ]; }; do
        rm -rf cut
        more=
        for try in 1 2 3 4 5 6 7 8; do
            "$dro" "$@" $more --out cut >/dev/null 2>err &
            pid=$!
            sleep "$(awk -v m=$length -v s="$seed$kills$try" 'BEGIN { srand(s); printf "%.3f", rand() * m / 1000 }')"
            if kill -9 $pid 2>/dev/null; then kills=$((kills + 1)); fi
            wait $pid 2>/dev/null
            [ -z "$resume" ] || [ ! -e cut/config.json ] || more=$resume
            [ $kills -lt $each ] || break
        done
        if ! "$dro" "$@" $more --out cut >/dev/null 2>err; then
            echo "FAILED: $name after $kills kills: $(cat err)"
            failed=1
        fi
        plain cut >cut.sums
        cmp -s whole.sums cut.sums || { echo "FAILED: $name after $kills kills: $(diff whole.sums cut.sums | head -2)"; failed=1; }
    done
    echo "kills $name: $kills"
    rm -rf whole cut
}
kind table --resume train --data csv:t.csv,label=y,holdout=0.2 --best accuracy --epochs 3 --threads 1
kind images --resume train --data synth:glyphs,n=300,test=60,size=12,classes=3 --model glyphnet --epochs 2 --threads 1
kind ingredients --resume train --data synth:glyphs,n=300,test=60,size=12,classes=3 --model glyphnet --epochs 2 --stage2 1 \
    --loss logit-adjusted --smoothing-head 0.3 --classifier cosine --ema 0.9 --sam 0.05 --sam-over class --mixup 0.5 \
    --cutmix 1 --augment crop,flip,autoaugment,cutout --threads 1
kind stream --resume train --data libsvm:s.svm,features=2 --progressive --report-every 5000 --checkpoint-every 0.05 --threads 1
kind compare '' compare --data csv:t.csv,label=y --epochs 2 --threads 1 --seeds 1
kind sweep '' sweep --data csv:t.csv,label=y,holdout=0.2 --optimizer sgd --grid eta=0.1,0.2 --epochs 2 --threads 1
exit $failed
