#!/bin/sh
# What does not fit into memory is an error of one line, with the file and the limit, before the memory is
# taken: models of absurd size, files that unpack to more than there is. The program runs under `ulimit -v`. $1: the program.
. "$(dirname "$0")/expected/check.sh"

# within KIB PART ARGUMENTS...: status 1 in so much memory, one line that has PART.
within() {
    most=$1
    part=$2
    shift 2
    what="dro $* in $most KiB"
    (ulimit -v "$most" && exec "$dro" "$@" >"$work/out" 2>"$work/err")
    code=$?
    [ $code -eq 1 ] || fail "$what: exit status $code instead of 1"
    [ "$(wc -l <"$work/err")" -eq 1 ] || fail "$what: not one line"
    has "$part" err
}
if ! (ulimit -v 400000 && "$dro" --version >/dev/null 2>&1); then
    echo "skipped: this build does not run in 400 MB"
    exit 77
fi

# A model of 10^9 features. Of the two files, the one with the highest index is named.
cd "$work" || exit 1
printf '1 1:1\n-1 1000000000:1\n' >wide.svm
printf '1 1:1\n-1 2:1\n' >narrow.svm
within 400000 "wide.svm: the model linear has 1000000001 weights for 1000000000 features, and 8 vectors \
of them take 32000 MB: expected at most 204 MB, half of the available memory (line 2 of the training file \
has the highest index)" train --data libsvm:wide.svm --epochs 1 --out run
within 400000 "and 4 vectors of them take 16000 MB" train --data libsvm:wide.svm --optimizer sgd --out run
within 400000 "and 6 vectors of them take 24000 MB" \
    train --data libsvm:wide.svm --optimizer sgd --set ema=0.99 --set sam=0.05 --out run
within 400000 "(line 2 of the test file has the highest index)" \
    train --data libsvm:narrow.svm,test=wide.svm --out run
within 400000 "expected at most 204 MB, half of the available memory" \
    train --progressive --data libsvm:wide.svm,features=1000000000 --steps 1 --out run

# Files that unpack to far more than they are: 300 MB of zeros in 1 MB. By the header before they are read,
# where there is one.
header() { # SHAPE TYPE [BYTES]: a header of numpy.save, 128 bytes in all
    printf '\223NUMPY\001\000\166\000%-117s\n' "{'descr': '$2', 'fortran_order': False, 'shape': ($1), }"
}
{ header "4000, 65536" "<f4"; head -c 1000 /dev/zero; } | gzip -1 >x.npy.gz
{ header "4000," "|u1"; head -c 4000 /dev/zero; } >y.npy
{ header "3000," "|u1"; head -c 3000 /dev/zero; } >few.npy
within 400000 "x.npy.gz: takes more than 204 MB, half of the available memory" data npy:x.npy.gz,labels=y.npy
within 400000 "few.npy: is uint8 (3000): expected (4000), a number for each example" \
    data npy:x.npy.gz,labels=few.npy
{ header "4000, 262144" "|u1"; head -c 1000 /dev/zero; } >short.npy
within 400000 "short.npy: ends after 1000 values: expected 1048576000" data npy:short.npy,labels=y.npy
{ printf 'PK'; head -c 300000000 /dev/zero; } | gzip -1 >x.npz
within 400000 "x.npz: takes more than 204 MB, half of the available memory" data npy:x.npz
mkdir cifar idx stl
head -c 307280000 /dev/zero | gzip -1 >cifar/data_batch_1.bin.gz # 100,000 records
within 400000 "data_batch_1.bin.gz: takes more than 204 MB, half of the available memory" data cifar10:cifar
{ printf '\000\000\010\003\000\000\003\350\000\000\004\000\000\000\004\000'; head -c 99 /dev/zero; } |
    gzip >idx/train-images-idx3-ubyte.gz # 1000 x 1024 x 1024 promised, and not there
{ printf '\000\000\010\001\000\000\003\350'; head -c 1000 /dev/zero; } >idx/train-labels-idx1-ubyte
within 400000 "train-images-idx3-ubyte.gz: takes more than 204 MB, half of the available memory" data idx:idx
head -c 40000 /dev/zero | tr '\000' '\001' >stl/train_y.bin
head -c 99 /dev/zero | gzip >stl/train_X.bin.gz
within 400000 "train_X.bin.gz: takes more than 204 MB, half of the available memory" data stl10:stl

# Images in memory, made up or read from files.
within 400000 "10000000 images of 64 x 64: expected at most 16666, which take half of the available memory" \
    data synth:glyphs,n=10000000,size=64
mkdir -p pictures/a pictures/b
for k in 1 2 3; do
    for class in a b; do printf 'P5 2 2 255\n1234' >pictures/$class/$k.pgm; done
done
within 400000 "pictures: 6 images of 4096 x 4096 take more than half of the available memory: leave out size=" \
    data images:pictures,size=4096

# oneDNN ends the process where it has no memory for its code: networks are refused before that.
awk 'BEGIN { srand(3); print "a,b,y"; for (i = 0; i < 300; i++) { x = rand(); print x "," rand() "," (x > 0.5 ? "p" : "q") } }' >t.csv
least=40000
while [ $least -lt 400000 ] && ! (ulimit -v $least && "$dro" --version >/dev/null 2>&1); do least=$((least + 1000)); done
for more in $(seq 0 600 36000); do
    rm -rf mlp
    (ulimit -v $((least + more)) && exec "$dro" train --data csv:t.csv,label=y --model mlp:64 --lr 0.1 \
        --steps 2 --out mlp >out 2>err)
    code=$?
    [ $code -le 1 ] || fail "an mlp in $((least + more)) KiB: exit status $code: $(head -n 1 err)"
    [ $code -eq 0 ] || grep -q '^dro: ' err || fail "an mlp in $((least + more)) KiB: no message"
done
# Above that a convolution may have none: the message says so.
for more in $(seq 0 3000 75000); do
    (ulimit -v $((least + more)) && exec "$dro" train --data synth:glyphs,n=60,test=10,size=12 --model glyphnet \
        --batch 10 --threads 1 --steps 1 --out glyphs >out 2>err)
    ! grep 'its code 1)' err || fail "glyphnet in $((least + more)) KiB: no word of memory"
    rm -rf glyphs
done

finish
