#!/bin/sh
# The benchmarks run, in their smallest sizes, and print what they should. $1: the program.
. "$(dirname "$0")/expected/check.sh"

small="--max 1e4 --seconds 0 --optimizers"
run 0 bench memory $small sgd,recover,pg-smd2,pes-sgda
silent err
shape
same bench_memory.txt
run 0 bench memory $small recover,pg-smd2 --json
json
has '"peak_mib": '
has '"us_per_step": '
has '"start_s": '
has '"stage_end_evaluations": 10000'
[ "$(grep -c '"optimizer"' "$work/out")" -eq 2 ] || fail "bench memory: not two rows"

run 0 bench vector --length 10000 --rounds 2 --threads 1 --backend ref
shape
same bench_vector.txt
run 0 bench vector --length 10000 --rounds 2 --json
json
has '"triad_gb_per_s": '
[ "$(grep -c '"share_of_triad"' "$work/out")" -eq 8 ] || fail "bench vector: not eight rows"

run 0 bench linear --rows 8192 --features 20 --repeats 2 --threads 1 --backend ref \
    --python /nonexistent/python
shape
same bench_linear.txt
run 0 bench linear --rows 10000 --features 3 --repeats 1 --python /nonexistent/python --json
json
has '"sklearn_samples_per_s": null'
has '"recover_over_sklearn": null'
has '"limit_samples_per_s": '
[ "$(grep -c '"share_of_limit"' "$work/out")" -eq 4 ] || fail "bench linear: not four rows"

rates="bench rates --problems pl,nonconvex --objectives kl:2,chi2:0.1 --settings 2 --seeds 3 --samples 32768"
run 0 $rates --methods recover,adamw,ascpg
silent err
has "Samples that recover, the default method, needs over those of the best method"
[ "$(grep -c '^recover ' "$work/out")" -eq 4 ] || fail "bench rates: recover is not in four tables"
[ "$(grep -c '^ascpg ' "$work/out")" -eq 2 ] || fail "bench rates: ascpg has kl only"
run 0 $rates --methods recover,adamw --json
json
[ "$(grep -c '"evaluations_per_sample"' "$work/out")" -eq 8 ] || fail "bench rates: not eight rows"
if grep -q '"samples": null' "$work/out"; then fail "bench rates: a method does not reach the target"; fi
run 2 bench rates --problems none
has "expected pl, nonconvex or data" err

# the lists are checked before anything runs
run 2 bench rates --problems pl,none
run 2 bench rates --problems pl,data
has "data (with --data)" err
run 2 bench rates --objectives kl:1,foo:1
has "objective 'foo:1': expected kl:LAMBDA" err
run 2 bench rates --objectives ""
has "expected 1 to " err
run 2 bench rates --methods sgd,foo
has "no method 'foo': expected some of recover, recover:eta2, " err

# a method that was not run, or that does not reach the target, has no ratio
rates="bench rates --problems pl --samples 10000 --settings 1 --seeds 2"
run 0 $rates --objectives kl:1 --methods sgd
has "pl       kl:1       none reaches it          -  none reaches it          -"
has "recover was not run: --methods leaves it out"
run 0 $rates --objectives chi2:0.1 --methods ascpg
has "none of these methods has this objective"

# labels at random: lbfgs, which minimises a smoothed cvar, ends above the F of w = 0
awk 'BEGIN { srand(3); print "x,y"; for (i = 0; i < 300; i++) print rand() "," (rand() < 0.5) }' \
    >"$work/noise.csv"
rates="bench rates --problems data --data $work/noise.csv,label=y --samples 10000 --settings 1"
run 0 $rates --seeds 2 --objectives cvar:0.1 --methods sgd
has "data, cvar:0.1: left out, as no F below that of w = 0 was found"
if grep -q 'samples until' "$work/out"; then fail "bench rates: a target that is not reachable"; fi

finish
