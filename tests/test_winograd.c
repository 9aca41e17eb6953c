/* The Winograd kernels against a plain double-precision convolution, for many shapes, both strides. Skips where
 * there is no AVX-512. */
#include "check.h"

#include "backend/cpu/net/winograd.h"

#define TOLERANCE 5e-6

static float *alloc(size_t n)
{
    float *p = dro__alloc(n, sizeof *p);
    assert_non_null(p);
    return p;
}

static void normal(float *p, size_t n, uint64_t stream, double scale)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(scale * dro__random_normal(1, stream, i));
}

/* Element (n, c, y, x) of a blocked tensor. */
static size_t at(int c, int h, int w, int n, int k, int y, int x)
{
    return ((((size_t)n * (size_t)(c / 16) + (size_t)(k / 16)) * (size_t)h + (size_t)y) *
                (size_t)w +
            (size_t)x) *
               16 +
           (size_t)(k % 16);
}

static double distance(const float *a, const double *b, size_t n)
{
    double d = 0, s = 0;
    for (size_t i = 0; i < n; i++) {
        d += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        s += b[i] * b[i];
    }
    return sqrt(d / (s > 0 ? s : 1));
}

typedef struct shape {
    int stride, n, ci, co, h, w, oh, ow;
} shape;

/* Forward, gradient by the input, gradient by the weights, in one pass of the loops. */
static void plain(const shape *s, const float *x, const float *g, const float *dy, double *y,
                  double *dx, double *dg)
{
    for (int b = 0; b < s->n; b++)
        for (int o = 0; o < s->co; o++)
            for (int ik = 0; ik < 9 * s->ci; ik++)
                for (int rc = 0; rc < s->oh * s->ow; rc++) {
                    int i = ik / 9, k = ik % 9, r = rc / s->ow, c = rc % s->ow;
                    int p = s->stride * r + k / 3 - 1, q = s->stride * c + k % 3 - 1;
                    if (p < 0 || p >= s->h || q < 0 || q >= s->w)
                        continue;
                    size_t xi = at(s->ci, s->h, s->w, b, i, p, q),
                           yi = at(s->co, s->oh, s->ow, b, o, r, c);
                    size_t gi = ((size_t)o * (size_t)s->ci + (size_t)i) * 9 + (size_t)k;
                    y[yi] += (double)x[xi] * (double)g[gi];
                    dx[xi] += (double)dy[yi] * (double)g[gi];
                    dg[gi] += (double)dy[yi] * (double)x[xi];
                }
}

/* The kernels' three results; the weights' gradient in two chunks, so that the sum must add. */
static void ours(const shape *s, const float *x, const float *g, const float *dy, float *y,
                 float *dx, float *dg)
{
    bool one = s->stride == 1;
    size_t prepared = dro__winograd_prepared(s->ci, s->co);
    size_t room = one ? dro__winograd_scratch(s->ci, s->co, s->h, s->w)
                      : dro__winograd2_scratch(s->ci, s->co, s->h, s->w);
    float *fwd = alloc(prepared), *bwd = alloc(prepared), *sum = alloc(prepared),
          *scratch = alloc(room);
    memset(scratch, 0xff,
           room * sizeof *scratch); /* NaNs: nothing may read what it did not write */
    int half = s->n / 2, rest = s->n - half;
    const float *x2 = x + (size_t)half * (size_t)(s->ci * s->h * s->w);
    const float *dy2 = dy + (size_t)half * (size_t)(s->co * s->oh * s->ow);
    if (one) {
        dro__winograd_prepare(s->ci, s->co, g, fwd, bwd);
        dro__winograd_forward(s->n, s->ci, s->co, s->h, s->w, x, fwd, y, scratch);
        dro__winograd_forward(s->n, s->co, s->ci, s->h, s->w, dy, bwd, dx, scratch);
        dro__winograd_weights(half, s->ci, s->co, s->h, s->w, x, dy, sum, scratch);
        dro__winograd_weights(rest, s->ci, s->co, s->h, s->w, x2, dy2, sum, scratch);
        dro__winograd_weights_finish(s->ci, s->co, sum, dg);
    } else {
        dro__winograd2_prepare(s->ci, s->co, g, fwd, bwd);
        dro__winograd2_forward(s->n, s->ci, s->co, s->h, s->w, x, fwd, y, scratch);
        dro__winograd2_backward(s->n, s->ci, s->co, s->h, s->w, dy, bwd, dx, scratch);
        dro__winograd2_weights(half, s->ci, s->co, s->h, s->w, x, dy, sum, scratch);
        dro__winograd2_weights(rest, s->ci, s->co, s->h, s->w, x2, dy2, sum, scratch);
        dro__winograd2_weights_finish(s->ci, s->co, sum, dg);
    }
    dro__free(fwd), dro__free(bwd), dro__free(sum), dro__free(scratch);
}

static void check(int stride, int n, int ci, int co, int h, int w)
{
    shape s = {stride, n, ci, co, h, w, (h + stride - 1) / stride, (w + stride - 1) / stride};
    size_t nx = (size_t)(n * ci * h * w), ny = (size_t)(n * co * s.oh * s.ow),
           ng = (size_t)(ci * co * 9);
    float *x = alloc(nx), *y = alloc(ny), *g = alloc(ng), *dy = alloc(ny), *dx = alloc(nx),
          *dg = alloc(ng);
    double *ry = dro__alloc(ny, sizeof *ry), *rx = dro__alloc(nx, sizeof *rx),
           *rg = dro__alloc(ng, sizeof *rg);
    normal(x, nx, 1, 1);
    normal(dy, ny, 2, 1);
    normal(g, ng, 3, sqrt(2.0 / (9 * ci)));
    plain(&s, x, g, dy, ry, rx, rg);
    ours(&s, x, g, dy, y, dx, dg);
    double e[3] = {distance(y, ry, ny), distance(dx, rx, nx), distance(dg, rg, ng)};
    if (!(e[0] < TOLERANCE && e[1] < TOLERANCE && e[2] < TOLERANCE))
        fail_msg("stride %d, %d x %d to %d, %d x %d: %.1e %.1e %.1e", stride, n, ci, co, h, w, e[0],
                 e[1], e[2]);
    dro__free(x), dro__free(y), dro__free(g), dro__free(dy), dro__free(dx), dro__free(dg);
    dro__free(ry), dro__free(rx), dro__free(rg);
}

static bool can_run(void)
{
    if (!dro__winograd_works())
        print_message("skipped: this machine has no AVX-512, where these kernels run\n");
    return dro__winograd_works();
}

static void test_every_size(void **state)
{
    (void)state;
    if (!can_run())
        skip();
    for (int stride = 1; stride <= 2; stride++)
        for (int h = 1; h <= 11; h++)
            for (int w = 1; w <= 11; w++)
                check(stride, 1 + (h + w) % 3, 16 << h % 3, 16 << w % 3, h, w);
}

static void test_models_sizes(void **state)
{
    (void)state;
    if (!can_run())
        skip();
    for (int stride = 1; stride <= 2; stride++) {
        check(stride, 8, 16, 16, 32, 32);
        check(stride, 8, 32, 64, 16, 16);
        check(stride, 8, 64, 64, 8, 8);
        check(stride, 3, 128, 128, 8, 8);
        check(stride, 2, 48, 80, 9, 5);
        check(stride, 1, 32, 48, 28, 28);
        check(stride, 1, 16, 16, 56, 56);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_every_size),
    cmocka_unit_test(test_models_sizes),
};

CHECK_MAIN(tests)
