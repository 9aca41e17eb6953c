/* The metadata of a weights file: lines NAME=VALUE, where \1 stands for a newline, in a file of a
 * linear model with two features and two classes, whose checksum fits. It is opened for prediction
 * on a table, and asked for what it knows. */
#define _GNU_SOURCE /* strsep */
#include "fuzz.h"

#include "safetensors.h"

#include <dro/train.h>
#include <unistd.h>

enum { PAIRS = 24, ROWS = 4 };

static const char table[] = "a,b,y\n1,2,p\n3,1,q\n2,5,p\n4,4,q\n";

static void ask(dro_predictor *p)
{
    float logits[ROWS * 64];
    double shares[ROWS * 64];
    const dro_metrics *m;
    const dro_data_info *info = dro_predictor_data(p);
    int64_t count = info->examples[DRO_TRAIN];
    FUZZ_CHECK(count <= ROWS && dro_predictor_classes(p) <= 64);
    if (dro_predictor_logits(p, DRO_TRAIN, 0, (size_t)count, logits, NULL) == DRO_OK)
        dro_predictor_probabilities(p, (size_t)count, logits, shares);
    dro_predictor_evaluate(p, DRO_TRAIN, &m);
    for (int k = 0; dro_predictor_remark(p, k); k++)
        FUZZ_CHECK(k < 100);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static char path[200];
    static const float weight[4] = {1, -2, 0.5f, 3}, bias[2] = {0.25f, -1};
    const dro__file_tensor tensors[] = {
        {.name = "fc.weight", .rank = 2, .shape = {2, 2}, .data = weight},
        {.name = "fc.bias", .rank = 1, .shape = {2}, .data = bias},
    };
    const char *pairs[2 * PAIRS + 1] = {NULL};
    dro_context *ctx = fuzz_context();
    dro_predictor *p;
    char *text = malloc(size + 1), *rest = text, *line;
    int used = 0;
    FUZZ_CHECK(text);
    memcpy(text, bytes, size);
    text[size] = '\0';
    for (char *c = text; *c; c++)
        if (*c == '\1')
            *c = '\n';
        else if (*c == '\n')
            *c = '\1';
    while (used < 2 * PAIRS && (line = strsep(&rest, "\1"))) {
        char *value = strchr(line, '=');
        if (!value)
            continue;
        *value++ = '\0';
        pairs[used++] = line;
        pairs[used++] = value;
    }
    if (!*path)
        fuzz_path(path, "weights.safetensors");
    fuzz_file(0, (const uint8_t *)table, sizeof table - 1);
    if (fuzz_ok(ctx, dro__safetensors_write(ctx, path, tensors, 2, pairs)) &&
        fuzz_ok(ctx, dro_predictor_open(ctx, path, "csv:/fuzz/0,label=y", &p))) {
        ask(p);
        dro_predictor_close(p);
    }
    unlink(path);
    free(text);
    return 0;
}
