#!/bin/sh
# `dro report`: help, table, JSON and errors to the letter, and what must be in the page. $1: the program.
. "$(dirname "$0")/expected/check.sh"
tests=$(cd "$(dirname "$0")" && pwd)
cd "$work" || exit 1
case $expected in /*) ;; *) expected=$tests/expected ;; esac

make_run() { sh "$tests/make_runs.sh" "$@"; }
page_has() { grep -qF -- "$1" "$page" || fail "$what: no '$1' in the page"; }
page_lacks() { if grep -qF -- "$1" "$page"; then fail "$what: '$1' in the page"; fi; }
# Where there is a Python.
xml() {
    if command -v python3 >/dev/null 2>&1; then
        python3 -c 'import sys, xml.dom.minidom as m
for path in sys.argv[1:]: m.parse(path)' "$@" || fail "$what: a plot is not XML"
    fi
}

run 0 report --help
same help_report.txt
silent err

# ---- a comparison ----
for optimizer in sgd recover; do
    for seed in 0 1 10; do make_run compare/$optimizer-seed$seed $optimizer $seed 8; done
done
run 0 report compare/ --svg svg
same report.txt
silent err
page=compare/report.html
for id in accuracy-seconds accuracy-examples objective-seconds objective-examples balanced-examples \
    worst-examples per-class confusion-1-recover confusion-2-sgd largest-weight effective \
    class-weights-1-recover class-weights-2-sgd; do
    page_has "<figure id=\"$id\">"
    [ -s "svg/$id.svg" ] || fail "no svg/$id.svg"
done
[ "$(ls svg | grep -c .)" -eq 13 ] || fail "not 13 plots in the folder"
for text in "<title>recover, sgd" "prefers-color-scheme:dark" "@media (max-width" 'aria-pressed="true"' \
    "synth:glyphs,longtail=exp:0.02" "schedule.kind" "glyph J" "<caption>" 'data-l="Runs"'; do
    page_has "$text"
done
for text in "http:" "https:" "src=" "@import" "url("; do page_lacks "$text"; done
xml svg/*.svg

# The page lets its own script run and no other.
if command -v sha256sum >/dev/null 2>&1 && command -v base64 >/dev/null 2>&1; then
    awk '/<script>/ { p = 1; sub(/.*<script>/, "") } p { if (sub(/<\/script>.*/, "")) { printf "%s", $0; exit } print }' \
        "$page" >script.js
    hash=$(printf "$(sha256sum script.js | cut -c1-64 | sed 's/../\\x&/g')" 2>/dev/null | base64)
    if [ "$(printf '\x41' 2>/dev/null)" != A ]; then
        hash=$(printf "$(sha256sum script.js | cut -c1-64 | sed 's/../& /g' |
            awk '{ for (i = 1; i <= NF; i++) printf "\\%03o", (index("0123456789abcdef", substr($i, 1, 1)) - 1) * 16 + index("0123456789abcdef", substr($i, 2, 1)) - 1 }')" | base64)
    fi
    page_has "script-src 'sha256-$hash'"
fi

run 0 report compare --json --out other.html
json
same report.json
cmp -s other.html compare/report.html || fail "the same runs do not give the same page"

# ---- settings that differ make methods of their own ----
make_run sweep/a recover 0 3
make_run sweep/b recover 1 3
sed -i.bak 's/"lambda":5/"lambda":20/' sweep/b/config.json
run 0 report sweep
has "recover lambda=5 "
has "recover lambda=20 "

# ---- losses that are not the same function: none of them, nor F, is the best ----
for seed in 0 1; do make_run losses/a-seed$seed sgd $seed 3; done
for seed in 0 1; do make_run losses/b-seed$seed recover $seed 3; done
run 0 report losses
page=losses/report.html
page_has "The best of each column is bold."
bold=$(grep -o 'class="best"' $page | grep -c .)
sed -i.bak 's/"loss":"softmax"/"network_settings":{"loss":"focal"}/' losses/b-seed?/config.json
run 0 report losses
page_has "but for the loss and F: the methods' losses are not the same function"
[ "$(grep -o 'class="best"' $page | grep -c .)" -eq $((bold - 2)) ] || fail "other losses are compared"

# ---- what a killed run leaves ----
make_run killed sgd 3 4
rm killed/result.json
printf '{"step":200,"examples":5' >>killed/metrics.jsonl
run 0 report killed
same report_killed.txt
page=killed/report.html
page_has "the last line is cut short (line 5)"
mkdir empty one
: >empty/metrics.jsonl
echo '{"optimizer":"sgd","seed":1}' >empty/config.json
run 0 report empty
page=empty/report.html
page_has "There is no evaluation yet."
make_run one recover 1 1
run 0 report one compare/sgd-seed0 --out one.html
page=one.html
page_has '<figure id="accuracy-seconds">'

# ---- hostile ----
mkdir -p hostile/run
cat >hostile/run/result.json <<'END'
{"optimizer":"<script>alert(1)</script>\u001b[2J\"'&","seed":"\"><img src=x onerror=alert(2)>","seconds":1e308,"examples":-5,
"classes":["<script>alert(3)</script>","\"'><svg onload=alert(4)>","\u202eevil\u0007","日本語",7],"train":{"objective":null,"counts":[1,"x",null,1e300,-1]},
"test":{"accuracy":1e300,"balanced_accuracy":-3,"worst_class_accuracy":"NaN","loss":[],"per_class":[0.5,null,1e300,-1,{}],"confusion":[[1,2],null,[1e308,1e308,1e308,1e308,1e308],"",[0,0,0,0,-1]]}}
END
cat >hostile/run/metrics.jsonl <<'END'
{"step":0,"examples":0,"seconds":0,"largest_weight":NaN,"effective":-Infinity,"class_weights":[NaN,1e300,0,null,-1],"test":{"accuracy":NaN}}
not JSON
{"step":1,"examples":1e300,"seconds":-4,"train":{"objective":1e-300},"test":{"accuracy":0.5}}
[1,2]
{"step":2,"examples":1e301,"seconds":2,"train":{"objective":1e300},"test":null,"class_weights":[]}
{}
END
printf '{"data":"</style><script>alert(5)</script>","<b>":{"a":{"b":{"c":{"d":{"e":1}}}}}}' >hostile/run/config.json
run 0 report hostile --svg hsvg
page=hostile/report.html
page_has "&lt;script&gt;alert(3)&lt;/script&gt;"
page_has "2 lines are not JSON (line 2 first)"
for text in "<script>alert" "<img" "<svg onload" "<b>" "nan" "inf\""; do page_lacks "$text"; done
if grep -q "$(printf '\033')" out; then fail "an escape sequence reaches the terminal"; fi
xml hsvg/*.svg
run 0 report hostile --json
json

# More methods than bars in a row: the figure says so and names those that it shows, its table has all.
for method in 1 2 3 4 5 6 7 8 9; do
    mkdir -p many/m$method-seed1
    cat >many/m$method-seed1/result.json <<J
{"optimizer": "sgd", "seed": 1, "test": {"accuracy": 0.5, "per_class": [0.$method, 0.5]}, "class_counts": [1, 2],
 "settings": {"optimizer": "sgd", "label": "m$method", "seed": 1}}
J
done
run 0 report many --svg msvg
has "Test accuracy of each class, 8 of 9 methods" msvg/per-class.svg
has ">m8<" msvg/per-class.svg
if grep -q ">m9<" msvg/per-class.svg; then fail "a method without a bar is named"; fi
grep -q "<td>m9</td>" many/report.html || fail "the table of the bars lacks a method"

# ---- errors ----
mkdir nothing damaged
echo text >file
echo '{"optimizer":' >damaged/result.json
: >errors
wrong() {
    wanted_status=$1
    shift
    run "$wanted_status" report "$@"
    silent out
    [ "$(wc -l <err)" -eq 1 ] || fail "$what: not one line"
    echo "\$ dro report $*" >>errors
    cat err >>errors
}
wrong 2
wrong 2 compare --outt x
wrong 2 compare --out
wrong 1 missing
wrong 1 file
wrong 1 nothing
wrong 1 damaged
wrong 1 compare nothing
wrong 1 compare --out missing/report.html
wrong 1 compare --svg file
cp -r hostile/run own
wrong 1 own --out own/metrics.jsonl
cmp -s own/metrics.jsonl hostile/run/metrics.jsonl || fail "$what: the metrics are written over"
cp errors out
same report_errors.txt

run 0 train --data synth:glyphs,n=60,test=12,size=8,classes=3,holdout=0.2 --model mlp:4 --batch 20 --steps 4 --best accuracy \
    --out "$work/chosen"
run 0 report "$work/chosen"
grep -q 'With the best weights of the run' "$work/chosen/report.html" || fail "report: with --best, figures of the last weights"

finish
