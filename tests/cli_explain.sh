#!/bin/sh
# dro explain: weights of the worst case at trained weights, their shares, files of all three kinds, and labels that were
# flipped. $1: the program.
. "$(dirname "$0")/expected/check.sh"
dro=$(cd "$(dirname "$dro")" && pwd)/$(basename "$dro")
cd "$work" || exit 1

# Two features that tell the class; every 25th label is wrong; a group that has nothing to do with it.
awk 'BEGIN { srand(4); print "a,b,g,y"
    for (i = 0; i < 500; i++) { a = rand() * 2 - 1; b = rand() * 2 - 1; yes = a + 2 * b > 0
        if (i % 25 == 7) yes = !yes
        print a "," b "," (i % 3 ? "big" : "small") "," (yes ? "yes" : "no") } }' >table.csv
data=csv:table.csv,label=y,group=g
run 0 train --data $data --model linear --optimizer lbfgs --lambda 5 --out run --json
w=run/weights.safetensors

# The weights of kl:2 are those of exp(loss / 2), the heaviest first.
run 0 explain --weights $w --data $data --objective kl:2 --out all.csv
has "kl:2 over examples of train" out
[ "$(head -n 1 all.csv)" = "example,label,prediction,loss,weight,times,group" ] || fail "header: $(head -n 1 all.csv)"
awk -F, 'NR > 1 { loss[NR] = $4; w[NR] = $5; sum += exp($4 / 2); total += $5; n++
        if (NR > 2 && $5 > last) bad = 1; last = $5
        if (($5 * 500 - $6) ^ 2 > 1e-6) bad = 2 }
    END { for (k in loss) if ((w[k] - exp(loss[k] / 2) / sum) ^ 2 > 1e-14) bad = 3
        if (n != 500 || (total - 1) ^ 2 > 1e-10) bad = 4
        exit bad }' all.csv || fail "weights of kl:2: $?"

# Most of the 20 examples with wrong labels are at the top, and are predicted otherwise.
awk -F, 'NR > 1 && NR <= 21 && $1 % 25 == 7 && $2 != $3 { found++ } END { exit found < 15 }' all.csv ||
    fail "flipped labels are not at the top"

# cvar:0.1: 50 examples with ten times the weight. tsv has the same rows.
run 0 explain --weights $w --data $data --objective cvar:0.1 --out cvar.csv
awk -F, 'NR > 1 && $6 > 0 { n++; if (($6 - 10) ^ 2 > 1e-6) bad = 1 } END { exit bad || n != 50 }' cvar.csv ||
    fail "weights of cvar:0.1"
has ", threshold " out
if command -v script >/dev/null; then # a terminal of 80 columns: the line breaks between words
    script -qec "stty cols 80 && '$dro' explain --weights $w --data $data --objective cvar:0.1 --top 0" /dev/null </dev/null >terminal
    tr -d '\r' <terminal | grep -q '^    .*effective 0.100$' || fail "first line: $(head -n 2 terminal)"
fi
run 0 explain --weights $w --data $data --objective cvar:0.1 --out cvar.tsv
tr '\t' ',' <cvar.tsv | cmp - cvar.csv || fail "tsv is not csv"

# Over groups all the weight of a small cvar is on one of them; --json has --top examples, a .json file all.
run 0 explain --weights $w --data $data --objective cvar:0.5 --over group --top 3 --json --out all.json
for part in '"over": "group"' '"threshold": ' '"count": 500' '"weight": 1.0' '"effective": 0.5'; do
    has "$part" out
done
[ "$(grep -c '"times"' out)" -eq 3 ] || fail "--top 3: $(grep -c '"times"' out)"
[ "$(grep -c '"times"' all.json)" -eq 500 ] || fail "all.json has not all examples"
run 0 explain --weights $w --data $data --objective chi2:0.5 --over class
has "chi2:0.5 over classes" out
run 0 explain --weights $w --data $data --objective kl-radius:0.2 --top 0
has "divergence 0.2," out

# The F that a run reports for an objective is the value that explain works out at its weights.
for objective in kl:0.7 kl-radius:0.1 cvar:0.2 chi2:0.5; do
    for over in example class; do
        run 0 train --data $data --model linear --optimizer lbfgs --set reg=none --set objective=$objective --tilt $over --out f --json
        f=$(grep -A1 '"train": {' out | sed -n 's/.*"objective": \([0-9.e-]*\).*/\1/p')
        run 0 explain --weights f/weights.safetensors --data $data --objective $objective --over $over --json
        value=$(sed -n 's/.*"value": \([0-9.e-]*\).*/\1/p' out)
        awk "BEGIN { exit !(\"$f\" > 0 && ($f - $value) ^ 2 < 1e-12) }" || fail "$objective over ${over}s: F $f, explained $value"
        rm -r f
    done
done

# The scalars that a run reports with F are those of the worst case at its weights: in result.json and in the last line
# of metrics.jsonl, of online methods too, whose own are averages over batches.
for objective in kl-radius:1 chi2:1 cvar:0.5 kl:0.5; do
    for method in adamw lbfgs; do
        run 0 train --data $data --model linear --optimizer $method --set reg=none --set objective=$objective --epochs 4 --out f --json
        run 0 explain --weights f/weights.safetensors --data $data --objective $objective --json
        for pair in lambda:lambda threshold:threshold divergence:radius effective:effective; do
            [ "$objective" != kl:0.5 ] || [ ${pair%:*} = effective ] || continue
            value=$(sed -n 's/^ *"'${pair%:*}'": \(null\|[-0-9.e]*\),*$/\1/p' out)
            reported=$(sed -n 's/^ *"'${pair#*:}'": \(null\|[-0-9.e]*\),*$/\1/p' f/result.json | head -n 1)
            logged=$(tail -n 1 f/metrics.jsonl | sed -n 's/.*"'${pair#*:}'": *\(null\|[-0-9.e]*\).*/\1/p')
            awk "BEGIN { exit !(\"$value\" == \"$reported\" || (\"$reported\" != \"null\" &&
                (\"$value\" - \"$reported\") ^ 2 <= 1e-8 * (1e-6 + \"$value\" ^ 2))) }" ||
                fail "$method $objective: ${pair#*:} $reported, explained $value"
            [ "$logged" = "$reported" ] || fail "$method $objective: ${pair#*:} $reported, in metrics.jsonl $logged"
        done
        rm -r f
    done
done

# A page: rows of a table; images as bitmaps, as many as --top says, with label and prediction.
run 0 explain --weights $w --data $data --objective kl:2 --top 7 --out page.html
[ "$(grep -c '<td class="wrong">' page.html)" -eq 7 ] || fail "page.html has not the seven heaviest rows"
run 0 train --data synth:glyphs,n=120,test=20,size=12,classes=3 --model mlp:4 --steps 5 --out glyphs --json
run 0 explain --weights glyphs/weights.safetensors --data synth:glyphs,n=120,test=20,size=12,classes=3 \
    --objective cvar:0.2 --top 9 --out glyphs.html
[ "$(grep -c '<img alt="" src="data:image/bmp;base64,Qk' glyphs.html)" -eq 9 ] || fail "glyphs.html has not nine images"
! command -v python3 >/dev/null 2>&1 || python3 -c '
import base64, re
bmp = base64.b64decode(re.search(r"base64,([^\"]*)", open("glyphs.html").read()).group(1))
assert len(bmp) == int.from_bytes(bmp[2:6], "little") == 54 + 12 * 36, len(bmp)
assert bmp[18] == bmp[22] == 12 and any(bmp[54:])' || fail "not a bitmap"

# Each row of the page has the cells of the file, below the names of its header. Cells are escaped and cut; a line that
# a quote continues does not shift them; of fourteen columns twelve are there.
awk 'BEGIN { print "key,n1,n2,n3,n4,n5,n6,n7,n8,n9,n10,n11,n12,y"
    for (i = 0; i < 60; i++) { label = i % 2 ? "a" : "b"
        text = i == 9 ? "\"<b>&\nnine, of sixty words that are longer than a cell\"" : "k" i
        print text ",1,2,3," i * 7 % 13 ",5,6,7,8,9,10,11," i % 9 "," label } }' >wide.csv
wide=csv:wide.csv,label=y
run 0 train --data $wide --model linear --optimizer lbfgs --lambda 5 --out wide --json
run 0 explain --weights wide/weights.safetensors --data $wide --objective kl:2 --top 60 --out wide.html
grep -q '<th class="c">key</th><th>n1</th>.*<th>n11</th></tr>' wide.html || fail "no header of the file: $(grep '<th>' wide.html)"
has "2 more columns are not shown" wide.html
[ "$(grep -c '<tr><td>[0-9]*</td>' wide.html)" -eq 60 ] || fail "not 60 rows"
has '<td class="c">&lt;b&gt;&amp;' wide.html
! grep -q '<b>&' wide.html || fail "a cell is not escaped"
for i in 4 6 20 59; do
    grep -q "<tr><td>$i</td>.*<td class=\"c\">k$i</td>" wide.html || fail "row $i is not k$i"
done
gzip -kf wide.csv
run 0 explain --weights wide/weights.safetensors --data csv:wide.csv.gz,label=y --objective kl:2 --top 60 --out gz.html
grep '<td class="c">' wide.html >one
grep '<td class="c">' gz.html | cmp - one || fail "the page of a packed file differs"

# Of a pipe, and of libsvm, it has the features; a split of a file of its own is read from that.
run 0 explain --weights wide/weights.safetensors --data csv:-,label=y --objective kl:2 --top 3 --out pipe.html <wide.csv
has "the features, as the model gets them" pipe.html
awk 'BEGIN { for (i = 0; i < 40; i++) print (i % 2 ? 1 : -1) " 1:" i / 40 " 7:" i % 3 }' >rows.svm
run 0 train --data libsvm:rows.svm --model linear --optimizer lbfgs --out svm --json
run 0 explain --weights svm/weights.safetensors --data libsvm:rows.svm --objective kl:2 --top 3 --out svm.html
[ "$(grep -c '<td class="c">1:[-0-9.e]* 7:' svm.html)" -gt 0 ] || fail "svm.html has no features"
{ echo "y,key,n12,n1,n2,n3,n4,n5,n6,n7,n8,n9,n10,n11"; echo "a,other,3,1,2,3,4,5,6,7,8,9,10,11"; } >own.csv
run 0 explain --weights wide/weights.safetensors --data $wide,test=own.csv --split test --objective kl:2 --out own.html
grep -q '<td class="c">a</td><td>other</td>' own.html || fail "own.html has not the row of test="

# A real-valued target has no classes.
awk -F, 'NR == 1 { print "a,b,z" } NR > 1 { print $1 "," $2 "," 3 * $1 - $2 + (NR == 99) }' table.csv >real.csv
run 0 train --data csv:real.csv,label=z,target=real --model linear --optimizer newton --lambda 5 --out real --json
run 0 explain --weights real/weights.safetensors --data csv:real.csv,label=z,target=real --objective kl:1 --top 1
[ "$(tail -n 1 out | awk '{ print $1 }')" -eq 97 ] || fail "the outlier is not at the top"
tail -n 1 out | awk -v z="$(awk -F, 'NR == 99 { print $3 }' real.csv)" '{ exit !($2 - z < 1e-5 && z - $2 < 1e-5) }' ||
    fail "the label is not in its own unit"
run 1 explain --weights real/weights.safetensors --data csv:real.csv,label=z,target=real --objective kl:1 --over class
has "the data has no classes" err

# What is wrong.
run 2 explain --weights $w --data $data
has "objective is missing" err
run 2 explain --weights $w --data $data --objective kl
has "expected kl:LAMBDA, kl-radius:RHO" err
run 2 explain --weights $w --data $data --objective cvar:2
has "objective" err
run 1 explain --weights $w --data $data --objective kl:1 --over rows
has "expected example, class or group" err
run 2 explain --weights $w --data $data --objective kl:1 --out all.txt
has "csv, .tsv, .json or .html" err
run 1 explain --weights $w --data $data --objective kl:1 --out table.csv
has "table.csv is the input" err
finish
