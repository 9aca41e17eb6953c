#!/bin/sh
# dro export: a model of images and one of a table as ONNX and for PyTorch, and what it refuses. What other programs make
# of the files is compared in tests/peers/export_check.py. $1: the program.
. "$(dirname "$0")/expected/check.sh"
dro=$(cd "$(dirname "$dro")" && pwd)/$(basename "$dro")
expected=$(cd "$expected" && pwd)
cd "$work" || exit 1

run 0 export --help
same help_export.txt
run 2 export --onnx model.onnx
has "export: --weights is missing" err
run 2 export --weights model.safetensors
has "export: --onnx or --torch is missing" err
run 1 export --weights nowhere.safetensors --onnx model.onnx
has "nowhere.safetensors: cannot open" err
[ ! -e model.onnx ] || fail "a file without a model"

run 0 train --data synth:glyphs,n=60,test=10,size=12,classes=3 --steps 2 --batch 10 --out run --json
w=run/weights.safetensors
run 0 export --weights $w --onnx model.onnx
has "wrote model.onnx"
# IR version 8, then the producer; opset 17; the parts that the help names.
[ "$(od -An -tx1 -N4 model.onnx | tr -d ' ')" = 08081206 ] || fail "not the beginning of an ONNX file"
strings_of() { tr -c '[:print:]' '\n' <"$1"; }
for name in pixels probabilities label class_names Softmax Conv conv1.weight libdro; do
    strings_of model.onnx | grep -q "$name" || fail "model.onnx has no $name"
done
# How a file of an image becomes an input.
strings_of model.onnx | grep -q 'the largest square in the middle to 12 x 12; bilinear' || fail "model.onnx does not say how to resize"
for k in 1 2 3 4 5 6; do
    mkdir -p pictures/$((k % 2))
    awk -v k=$k 'BEGIN { print "P2 112 100 255"; for (i = 0; i < 11200; i++) print (i * k) % 251 }' >pictures/$((k % 2))/$k.pgm
done
run 0 train --data images:pictures --model linear --size 98 --steps 1 --batch 2 --out large --json
run 0 export --weights large/weights.safetensors --onnx large.onnx
strings_of large.onnx | grep -q 'shorter side to 112, the middle 98 x 98; bilinear' || fail "large.onnx does not say how to resize"
# The weights are in it as they are in the other file: as many bytes, and a little more.
size=$(wc -c <$w) made=$(wc -c <model.onnx)
[ "$made" -gt $((size - 20000)) ] && [ "$made" -lt $((size + 40000)) ] || fail "model.onnx has $made bytes of $size"
run 0 export --weights $w --onnx again.onnx --json
json
cmp model.onnx again.onnx || fail "the same model gives other bytes"
run 1 export --weights $w --onnx nowhere/model.onnx
has "nowhere/model.onnx" err

# The weights are not replaced, whatever they are called, and nothing is written where one of the files cannot be.
cp $w kept && ln -s "$w" link && ln $w hard || exit 1
for out in $w ./$w link hard; do
    run 1 export --weights $w --onnx $out
    has "$out is the input: write the model to another file" err
    run 1 export --weights $w --onnx new.onnx --torch $out
    has "$out is the input" err
    run 1 export --weights link --torch $out
    has "$out is the input" err
done
cmp kept $w || fail "the weights were replaced"
for out in new ./new run/../new; do
    run 1 export --weights $w --onnx new --torch $out
    has "$out is the file of --onnx: write the module to another file" err
done
for out in nowhere/new.py run; do
    run 1 export --weights $w --onnx new --torch $out
    has "$out: cannot write it" err
done
run 2 export --weights $w --onnx ''
has "export: --onnx needs a file" err
run 2 export --weights $w --onnx new --torch ''
has "export: --torch needs a file" err
[ ! -e new ] && [ ! -e new.onnx ] || fail "a file without the other"
run 0 export --weights $w --onnx /dev/null --torch /dev/null

# For PyTorch: every tensor of the weights file is that of a layer, and nothing in a name is code.
run 0 export --weights $w --torch model.py
has "wrote model.py"
for name in 'pixels 0 to 255' 'CLASSES = \["0", "1", "2"\]' 'nn.Conv2d(3, 16, 3, 2, 1, bias=False)' 'nn.Linear(256, 3, bias=True)' \
    'layer("bn1")(layer("conv1")(x0))' 'torch.softmax'; do
    grep -q "$name" model.py || fail "model.py has no $name"
done
for name in $(strings_of $w | head -n 1 | grep -o '"[a-z0-9]*\.weight"' | sed 's/\.weight//'); do
    grep -q "self.put($name," model.py || fail "model.py has no layer $name"
done
printf 'a,b,y\n1,2,"a""b\\"\n2,1,it'"'"'s\n3,5,"a""b\\"\n4,4,it'"'"'s\n' >odd.csv
run 0 train --data csv:odd.csv,label=y --model linear --epochs 1 --out odd --json
run 0 export --weights odd/weights.safetensors --torch odd.py --onnx odd.onnx
has "wrote odd.onnx and odd.py"
grep -qF 'CLASSES = ["a\"b\\", "it'"'"'s"]' odd.py || fail "odd.py: names are not quoted: $(grep CLASSES odd.py)"
grep -q 'features as the model sees them' odd.py || fail "odd.py: what it takes"

awk 'BEGIN { print "age,job,y"; for (i = 0; i < 60; i++) print i % 7 "," (i % 3 ? "clerk" : "smith") "," (i % 2 ? "yes" : "no") }' >t.csv
run 0 train --data csv:t.csv,label=y --model linear --epochs 1 --out table --json
run 0 export --weights table/weights.safetensors --onnx table.onnx
! strings_of table.onnx | grep -q dro.resize || fail "table.onnx resizes"
for name in age job clerk smith yes LabelEncoder ai.onnx.ml OneHot; do
    strings_of table.onnx | grep -q "$name" || fail "table.onnx has no $name"
done

# A threshold that is reached is enough.
cp -r table rare
run 0 eval --weights rare/weights.safetensors --data csv:t.csv,label=y --threshold 0.5 --class yes
run 0 export --weights rare/weights.safetensors --onnx rare.onnx --torch rare.py
grep -qF 'rare = self.probabilities(logits)[:, 1] >= 0.5' rare.py || fail "rare.py has no threshold: $(cat rare.py)"
run 0 export --weights table/weights.safetensors --torch table.py
grep -qF 'return logits.argmax(1)' table.py || fail "table.py has no classes"
strings_of rare.onnx | grep -q GreaterOrEqual || fail "rare.onnx does not compare with the threshold"
! strings_of table.onnx | grep -q GreaterOrEqual || fail "table.onnx has a threshold"

# A column with outliers has a second feature.
awk 'BEGIN { print "age,pay,y"; for (i = 0; i < 400; i++) print i % 7 "," (i % 30 ? i % 9 : 900 + i) "," (i % 2 ? "yes" : "no") }' >far.csv
run 0 train --data csv:far.csv,label=y --model linear --epochs 1 --out far --json
run 0 export --weights far/weights.safetensors --onnx far.onnx
strings_of far.onnx | grep -q '^dro/tail\.1' || fail "far.onnx has no tail of pay"
! strings_of far.onnx | grep -q '^dro/tail\.0' || fail "far.onnx has a tail of age"

# A real-valued target: its unit is in the file too.
awk 'BEGIN { print "age,job,y"; for (i = 0; i < 60; i++) print i % 7 "," (i % 3 ? "clerk" : "smith") "," 100 + i / 7 }' >real.csv
run 0 train --data csv:real.csv,label=y,target=real --model linear --epochs 1 --out real --json
run 0 export --weights real/weights.safetensors --onnx real.onnx --torch real.py
for name in age clerk value target_scale target_centre; do
    strings_of real.onnx | grep -q "$name" || fail "real.onnx has no $name"
done
grep -q 'def value(self, outputs)' real.py || fail "real.py has no value"

# The linear model on sparse rows: that of a table can be exported, libsvm has no columns to name.
awk 'BEGIN { print "a,word,y"; for (i = 0; i < 60; i++) print i % 7 "," (i % 3 ? "clerk" : "smith") "," (i % 2 ? "yes" : "no") }' >s.csv
"$dro" train --data csv:-,label=y --progressive --out stream --json <s.csv >out 2>err || fail "$(cat err)"
run 0 export --weights stream/weights.safetensors --onnx stream.onnx
for name in a word clerk smith yes dro/fc.weight; do
    strings_of stream.onnx | grep -q "$name" || fail "stream.onnx has no $name"
done
run 1 export --weights stream/weights.safetensors --torch stream.py
has "stream/weights.safetensors: a linear model of sparse rows (a csv stream, or a csv of more than 4096 features) has no PyTorch module: use --onnx" err
awk 'BEGIN { for (i = 0; i < 40; i++) print (i % 2 ? "+1" : "-1"), (i % 5) + 1 ":1", 9000 + i ":1" }' >rows.svm
run 0 train --data libsvm:rows.svm --epochs 1 --out rows --json
run 1 export --weights rows/weights.safetensors --onnx rows.onnx
has "rows/weights.safetensors: a linear model of the sparse rows of libsvm cannot be exported: only networks and models of csv" err
# Up to 4096 features a network takes them.
awk 'BEGIN { for (i = 0; i < 40; i++) print (i % 2 ? "+1" : "-1"), (i % 5) + 1 ":1", 20 + i ":1" }' >few.svm
run 0 train --data libsvm:few.svm --model mlp:4 --epochs 1 --out few --json
run 0 export --weights few/weights.safetensors --onnx few.onnx
finish
