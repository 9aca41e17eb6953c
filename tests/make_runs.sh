#!/bin/sh
# make_runs.sh FOLDER OPTIMIZER SEED [EVALUATIONS [CLASSES]]: a run folder as `dro train` leaves it, with made-up
# figures of a long-tailed problem that depend on the arguments only.
set -eu
folder=$1
mkdir -p "$folder"
awk -v folder="$folder" -v optimizer="$2" -v seed="$3" -v evaluations="${4:-24}" -v classes="${5:-10}" '
# Park and Miller: the same numbers everywhere.
function random() { state = (state * 16807) % 2147483647; return state / 2147483647 }
function noise(size) { return size * (random() + random() + random() - 1.5) }
function clip(v, low, high) { return v < low ? low : v > high ? high : v }
function array(a, n, format,    k, text) {
    for (k = 0; k < n; k++) text = text (k ? "," : "") sprintf(format, a[k])
    return "[" text "]"
}
# Accuracy of class c after the share t of the run.
function class_accuracy(c, t,    tail) {
    tail = c / (classes - 1)
    return clip((final + 0.04 - drop * tail * tail) * (1 - exp(-t * (7 - 4 * tail))) + wobble[c], 0, 1)
}
function evaluate(t, i,    c, j, sum, rest, share, confusion, f1) {
    accuracy = balanced = 0; worst = 1
    for (c = 0; c < classes; c++) {
        wobble[c] = noise(0.02)
        per[c] = class_accuracy(c, t)
        accuracy += per[c] * 100; balanced += per[c]
        worst = per[c] < worst ? per[c] : worst
    }
    accuracy /= 100 * classes; balanced /= classes
    objective = 2.3 * floor_f + (2.3 - 2.3 * floor_f) * exp(-t * 6) + noise(0.02)
    sum = 0
    for (c = 0; c < classes; c++) { weight[c] = counts[c] ^ (1 - tilt * (0.3 + 0.7 * t)); sum += weight[c] }
    for (c = 0; c < classes; c++) weight[c] /= sum
    confusion = ""
    for (c = 0; c < classes; c++) {
        rest = 100 - int(per[c] * 100 + 0.5)
        for (j = 0; j < classes; j++) row[j] = 0
        row[c] = 100 - rest
        for (j = 0; rest > 0; j = (j + 1) % classes) if (j != c) {
            share = int(rest * (0.2 + 0.5 * random()) + 1); row[j] += share > rest ? rest : share; rest -= share
        }
        confusion = confusion (c ? "," : "") array(row, classes, "%d")
    }
    test = sprintf("{\"loss\":%.4f,\"accuracy\":%.4f,\"balanced_accuracy\":%.4f,\"worst_class_accuracy\":%.4f,\"macro_f1\":%.4f,\"auroc\":null,\"calibration_error\":%.4f", \
        2.3 * (1 - accuracy), accuracy, balanced, worst, balanced - 0.01, 0.02 + 0.05 * t)
    test = test ",\"per_class\":" array(per, classes, "%.4f") ",\"confusion\":[" confusion "]}"
}
BEGIN {
    state = 12345 + 977 * seed + 7919 * length(optimizer)
    for (k = 0; k < 20; k++) random()
    final = 0.93; drop = 0.55; tilt = 0; floor_f = 0.42; speed = 1
    if (optimizer == "recover") { final = 0.92; drop = 0.28; tilt = 0.75; floor_f = 0.22; speed = 1.35 }
    if (optimizer == "absgd") { final = 0.91; drop = 0.38; tilt = 0.5; floor_f = 0.3; speed = 1.1 }
    if (optimizer == "pes-sgda") { final = 0.86; drop = 0.42; tilt = 0.4; floor_f = 0.36; speed = 2 }
    for (c = 0; c < classes; c++) { counts[c] = int(1000 * exp(-3.5 * c / classes)); total += counts[c] }
    for (c = 0; c < classes; c++) names = names (c ? "," : "") "\"glyph " sprintf("%c", 65 + c % 26) "\""
    file = folder "/config.json"
    printf "{\"data\":\"synth:glyphs,longtail=exp:0.02\",\"model\":\"mlp\",\"optimizer\":\"%s\",\"seed\":%d,\"epochs\":12,\"batch\":64,\"lr\":%s,\"lambda\":%s,\"weight_decay\":0.0005,\"loss\":\"softmax\",\"backend\":\"cpu\",\"out\":\"%s\",\"schedule\":{\"kind\":\"stages\",\"at\":[0.5,0.75]}}\n", \
        optimizer, seed, (optimizer == "sgd" ? "0.1" : "0.05"), (tilt ? "5" : "null"), folder > file
    file = folder "/metrics.jsonl"
    printf "" > file
    for (i = 0; i < evaluations; i++) {
        t = evaluations > 1 ? i / (evaluations - 1) : 1
        evaluate(t, i)
        seconds = speed * 40 * t * (1 + 0.06 * (seed % 3)) + 0.2
        printf "{\"step\":%d,\"epoch\":%.3f,\"examples\":%d,\"evaluations\":%d,\"seconds\":%.3f,\"eta\":%g,\"lambda\":5,\"a\":0.1,\"log_u\":0.3,\"loss\":%.4f,\"objective\":%.4f,\"largest_weight\":%.4f,\"effective\":%.4f,\"caps\":0,\"floors\":0,\"fresh_starts\":1,\"class_weights\":%s,\"train\":{\"objective\":%.5f,\"loss\":%.4f,\"accuracy\":%.4f},\"test\":%s}\n", \
            i * 50, 12 * t, 36000 * t, 36000 * t, seconds, t < 0.5 ? 0.1 : 0.01, 2.3 - accuracy, objective, \
            1 + tilt * (3 + 9 * t + noise(1)), clip(1 - tilt * (0.3 + 0.4 * t) + noise(0.02), 0.02, 1), \
            array(weight, classes, "%.5f"), objective, objective * 0.7, clip(accuracy + 0.03, 0, 1), test > file
    }
    file = folder "/result.json"
    printf "{\"optimizer\":\"%s\",\"model\":\"mlp\",\"backend\":\"cpu\",\"seed\":%d,\"epochs\":12,\"examples\":36000,\"seconds\":%.3f,\"classes\":[%s],\"train\":{\"objective\":%.5f,\"counts\":%s},\"test\":%s}\n", \
        optimizer, seed, seconds, names, objective, array(counts, classes, "%d"), test > file
}'
