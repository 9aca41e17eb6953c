/* Vector operations of the cpu backend: every one is a single pass over memory.
 *
 * A fused operation works on blocks that stay in the first-level cache: each input is fetched from
 * memory once, however many outputs and norms use it. Partial sums belong to blocks, not threads, and
 * are added in order, so results do not depend on the number of threads. */
#include "cpu.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 512, CHUNK = 64 * BLOCK }; /* floats: in cache; per unit of parallel work */

/* acc = sum_k coef[k] * in[k][0..n) */
DRO__KERNEL void combine(size_t n, int inputs, const float *const *in, const double *coef,
                         float *restrict acc)
{
    bool first = true;
    for (int k = 0; k < inputs; k++) {
        if (coef[k] == 0)
            continue;
        const float *x = in[k];
        float c = (float)coef[k];
        if (first)
            for (size_t i = 0; i < n; i++)
                acc[i] = c * x[i];
        else
            for (size_t i = 0; i < n; i++)
                acc[i] += c * x[i];
        first = false;
    }
    if (first)
        memset(acc, 0, n * sizeof *acc);
}

DRO__KERNEL double square_sum(size_t n, const float *x)
{
    float part[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t j = 0; j < 16; j++)
            part[j] += x[i + j] * x[i + j];
    double sum = 0;
    for (size_t j = 0; j < 16; j++)
        sum += (double)part[j];
    for (; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

DRO__KERNEL void prox_block(size_t n, const dro__prox *p, float *x)
{
    float threshold = (float)p->threshold, scale = (float)p->scale;
    float low = (float)p->low, high = (float)p->high;
    for (size_t i = 0; i < n; i++) {
        float size = fabsf(x[i]) - threshold;
        float y = (size > 0 ? copysignf(size, x[i]) : 0) * scale;
        y = y < low ? low : y;
        x[i] = y > high ? high : y;
    }
}

/* One chunk: its outputs written, its share of the norms added to norm[]. */
static void fused_chunk(const dro__fused *f, size_t from, size_t to, double *norm)
{
    float acc[DRO__FUSED_OUT][BLOCK] __attribute__((aligned(64)));
    float probe[BLOCK] __attribute__((aligned(64)));
    for (size_t at = from; at < to; at += BLOCK) {
        size_t n = to - at < BLOCK ? to - at : BLOCK;
        const float *in[DRO__FUSED_IN];
        for (int k = 0; k < f->inputs; k++)
            in[k] = f->in[k] + at;
        for (int m = 0; m < f->norms; m++) {
            combine(n, f->inputs, in, f->norm_coef[m], probe);
            norm[m] += square_sum(n, probe);
        }
        for (int j = 0; j < f->outputs; j++) {
            combine(n, f->inputs, in, f->coef[j], acc[j]);
            if (j == f->prox_out)
                prox_block(n, &f->prox, acc[j]);
        }
        for (int j = 0; j < f->outputs; j++)
            memcpy(f->out[j] + at, acc[j], n * sizeof(float));
    }
}

void dro__cpu_fused(int threads, dro__fused *f)
{
    enum { SLOTS = 256 }; /* partial sums kept: chunks are folded onto them in order */
    double partial[SLOTS][DRO__FUSED_NORM] = {{0}};
    size_t chunks = (f->n + CHUNK - 1) / CHUNK;
    size_t per_slot = (chunks + SLOTS - 1) / SLOTS;
    size_t slots = chunks ? (chunks + per_slot - 1) / per_slot : 0;
#pragma omp parallel for schedule(static) num_threads(threads) if (f->n >= DRO__PARALLEL_MIN)
    for (size_t s = 0; s < slots; s++)
        for (size_t c = s * per_slot; c < chunks && c < (s + 1) * per_slot; c++) {
            size_t from = c * CHUNK, to = from + CHUNK < f->n ? from + CHUNK : f->n;
            fused_chunk(f, from, to, partial[s]);
        }
    for (int m = 0; m < DRO__FUSED_NORM; m++) {
        f->norm[m] = 0;
        for (size_t s = 0; s < slots; s++)
            f->norm[m] += partial[s][m];
    }
}

/* An exponent of all ones marks NaN and infinity; integer compares vectorise. */
DRO__KERNEL bool any_bad(size_t n, const float *x)
{
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bad |= (bits & 0x7f800000) == 0x7f800000;
    }
    return bad;
}

int64_t dro__cpu_first_bad(int threads, size_t n, const float *x)
{
    size_t chunks = (n + CHUNK - 1) / CHUNK;
    int64_t found = INT64_MAX;
#pragma omp parallel for schedule(static) num_threads(threads) if (n >= DRO__PARALLEL_MIN)         \
    reduction(min                                                                                  \
              : found)
    for (size_t c = 0; c < chunks; c++) {
        size_t from = c * CHUNK, size = n - from < CHUNK ? n - from : CHUNK;
        if (any_bad(size, x + from)) {
            size_t i = from;
            while (isfinite(x[i]))
                i++;
            found = (int64_t)i < found ? (int64_t)i : found;
        }
    }
    return found == INT64_MAX ? -1 : found;
}

void dro__cpu_block_shrink(int threads, float *x, const int64_t *offsets, size_t blocks,
                           double threshold)
{
    size_t n = blocks ? (size_t)(offsets[blocks] - offsets[0]) : 0;
#pragma omp parallel for schedule(static) num_threads(threads) if (n >= DRO__PARALLEL_MIN)
    for (size_t k = 0; k < blocks; k++) {
        float *block = x + offsets[k];
        size_t size = (size_t)(offsets[k + 1] - offsets[k]);
        double norm = sqrt(square_sum(size, block));
        double scale = norm > threshold ? 1 - threshold / norm : 0;
        const float *in[1] = {block};
        float out[BLOCK];
        for (size_t at = 0; at < size; at += BLOCK) {
            size_t part = size - at < BLOCK ? size - at : BLOCK;
            in[0] = block + at;
            combine(part, 1, in, &scale, out);
            memcpy(block + at, out, part * sizeof *out);
        }
    }
}
