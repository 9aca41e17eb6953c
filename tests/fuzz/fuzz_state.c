/* The saved state of an optimiser. The first byte says which; with its highest bit the rest is
 * loaded as it is, otherwise it is a list of changes (a place, two bytes, and up to eight bytes to
 * put there) of a good state, whose checksum is then made again. What is loaded can be stepped on
 * with, and saved again. */
#include "fuzz.h"

#include <dro/dro.h>

enum { DIM = 3, N = 8, HEADER = 72, CHANGE = 10 };

static const char *const names[] = {"sgd",  "adamw", "cover",     "recover", "scent",    "ascpg",
                                    "civr", "rcivr", "stoc-agda", "pg-smd2", "pes-sgda", "absgd"};

static dro_status forward(void *user, const float *w, const dro_batch *parts, int part_count,
                          float *losses)
{
    (void)user;
    size_t at = 0;
    for (int p = 0; p < part_count; p++)
        for (size_t i = 0; i < parts[p].count; i++) {
            FUZZ_CHECK(parts[p].ids[i] >= 0 && parts[p].ids[i] < N);
            float e = w[0] + w[1] * (float)parts[p].ids[i] - w[2];
            losses[at++] = 0.01f * e * e;
        }
    return DRO_OK;
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int part_count,
                           const float *coef, float *const *grads)
{
    (void)user;
    size_t at = 0;
    for (int p = 0; p < part_count; p++) {
        memset(grads[p], 0, DIM * sizeof(float));
        for (size_t i = 0; i < parts[p].count; i++, at++) {
            float id = (float)parts[p].ids[i], e = w[0] + w[1] * id - w[2];
            float g = 0.02f * e * coef[at];
            grads[p][0] += g, grads[p][1] += g * id, grads[p][2] -= g;
        }
    }
    return DRO_OK;
}

static dro_optimizer *start(int kind)
{
    static const float zero[DIM];
    dro_context *ctx = fuzz_context();
    dro_problem problem = {
        .size = sizeof problem, .dim = DIM, .n = N, .forward = forward, .backward = backward};
    dro_optimizer *o;
    FUZZ_CHECK(dro_optimizer_create(ctx, names[kind], &problem, &o) == DRO_OK);
    FUZZ_CHECK(dro_optimizer_set(o, "batch", "2") == DRO_OK);
    if (strcmp(names[kind], "rcivr") == 0) /* a state with many restarts has a long step */
        FUZZ_CHECK(dro_optimizer_set(o, "big_most", "64") == DRO_OK);
    FUZZ_CHECK(dro_optimizer_start(o, zero) == DRO_OK);
    return o;
}

static void change(uint8_t *state, size_t size, const uint8_t *bytes, size_t count)
{
    uint64_t sum;
    size_t place = size - HEADER - sizeof sum;
    for (size_t at = 0; at + 2 < count; at += CHANGE) {
        size_t to = (bytes[at] + 256u * bytes[at + 1]) % place;
        for (size_t k = 2; k < CHANGE && at + k < count && to + k - 2 < place; k++)
            state[HEADER + to + k - 2] = bytes[at + k];
    }
    sum = dro__checksum(0, state, size - sizeof sum);
    memcpy(state + size - sizeof sum, &sum, sizeof sum);
}

static void go_on(dro_optimizer *o, uint8_t *state, size_t size)
{
    dro_context *ctx = fuzz_context();
    dro_info info;
    float w[DIM];
    for (int k = 0; k < 3; k++)
        if (!fuzz_ok(ctx, dro_optimizer_step(o)))
            break;
    FUZZ_CHECK(dro_optimizer_info(o, &info) == DRO_OK);
    fuzz_ok(ctx, dro_optimizer_weights(o, w));
    if (fuzz_ok(ctx, dro_optimizer_save(o, state, size)))
        fuzz_ok(ctx, dro_optimizer_load(o, state, size));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 2)
        return 0;
    dro_context *ctx = fuzz_context();
    dro_optimizer *o = start((bytes[0] & 127) % (int)(sizeof names / sizeof names[0]));
    size_t needed = dro_optimizer_state_size(o), body = size - 1;
    uint8_t *state = malloc(needed + body);
    bool raw = bytes[0] & 128;
    for (int k = 0; k < 3; k++)
        FUZZ_CHECK(dro_optimizer_step(o) == DRO_OK);
    FUZZ_CHECK(state && dro_optimizer_save(o, state, needed) == DRO_OK);
    if (raw)
        memcpy(state, bytes + 1, body);
    else
        change(state, needed, bytes + 1, body);
    if (fuzz_ok(ctx, dro_optimizer_load(o, state, raw ? body : needed)))
        go_on(o, state, needed);
    free(state);
    dro_optimizer_destroy(o);
    return 0;
}
