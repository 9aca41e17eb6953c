/* The cpu backend's convolutions and products of our own against plain double-precision ones, for
 * every instruction set that this machine has: Winograd's method, the direct one, the matrix
 * product. */
#include "check.h"

#include "backend/cpu/net/simd_kernels.h"
#include "isa.h"

static int sets(const dro__simd *found[3])
{
    int count = 0;
    found[count++] = &dro__base_simd;
#if defined(__x86_64__)
    if (dro__cpu_isa() >= DRO__ISA_AVX2)
        found[count++] = &dro__avx2_simd;
    if (dro__cpu_isa() >= DRO__ISA_AVX512)
        found[count++] = &dro__avx512_simd;
#endif
    return count;
}

static float *alloc(size_t n)
{
    float *p = dro__alloc(n, sizeof *p);
    assert_non_null(p);
    return p;
}

static float *normal(size_t n, uint64_t stream, double scale)
{
    float *p = alloc(n);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)(scale * dro__random_normal(1, stream, i));
    return p;
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

/* ---- convolutions ---- */

/* One convolution, all tensors plain: (n, channels, height, width), weights (out, in, kh, kw). */
typedef struct problem {
    dro__conv_shape s;
    size_t n, nx, ny, ng;
    float *x, *dy, *g;
    double *y, *dx, *dg; /* what is right */
} problem;

static void solve(problem *p)
{
    const dro__conv_shape *s = &p->s;
    const dro_window *k = &s->window;
    int taps = k->kernel[0] * k->kernel[1], pixels = s->height * s->width;
    for (size_t b = 0; b < p->n; b++)
        for (int oi = 0; oi < s->out * s->in / s->groups; oi++)
            for (int t = 0; t < taps; t++)
                for (int at = 0; at < pixels; at++) {
                    int each = s->in / s->groups, o = oi / each;
                    int i = o / (s->out / s->groups) * each + oi % each;
                    int row = at / s->width * k->stride[0] + t / k->kernel[1] - k->pad[0];
                    int column = at % s->width * k->stride[1] + t % k->kernel[1] - k->pad[1];
                    if (row < 0 || row >= s->in_height || column < 0 || column >= s->in_width)
                        continue;
                    size_t xi =
                        ((b * (size_t)s->in + (size_t)i) * (size_t)s->in_height + (size_t)row) *
                            (size_t)s->in_width +
                        (size_t)column;
                    size_t yi = (b * (size_t)s->out + (size_t)o) * (size_t)pixels + (size_t)at;
                    size_t gi = (size_t)(oi * taps + t);
                    p->y[yi] += (double)p->x[xi] * (double)p->g[gi];
                    p->dx[xi] += (double)p->dy[yi] * (double)p->g[gi];
                    p->dg[gi] += (double)p->dy[yi] * (double)p->x[xi];
                }
}

static problem pose(dro__conv_shape s, size_t n)
{
    const dro_window *k = &s.window;
    s.height = (s.in_height + 2 * k->pad[0] - k->kernel[0]) / k->stride[0] + 1;
    s.width = (s.in_width + 2 * k->pad[1] - k->kernel[1]) / k->stride[1] + 1;
    problem p = {.s = s,
                 .n = n,
                 .nx = n * (size_t)(s.in * s.in_height * s.in_width),
                 .ny = n * (size_t)(s.out * s.height * s.width),
                 .ng = (size_t)(s.in / s.groups * s.out * k->kernel[0] * k->kernel[1])};
    p.x = normal(p.nx, 1, 1);
    p.dy = normal(p.ny, 2, 1);
    p.g = normal(p.ng, 3, sqrt(2.0 / (s.in * k->kernel[0] * k->kernel[1])));
    p.y = dro__alloc(p.ny, sizeof *p.y);
    p.dx = dro__alloc(p.nx, sizeof *p.dx);
    p.dg = dro__alloc(p.ng, sizeof *p.dg);
    assert_true(p.y && p.dx && p.dg);
    solve(&p);
    return p;
}

static void forget(problem *p)
{
    dro__free(p->x), dro__free(p->dy), dro__free(p->g);
    dro__free(p->y), dro__free(p->dx), dro__free(p->dg);
}

static size_t blocked_size(size_t n, int channels, size_t area, int block)
{
    return n * (size_t)((channels + block - 1) / block * block) * area;
}

/* Between plain and blocked; the channels that fill the last block are 0. */
static void convert(size_t n, int channels, size_t area, int block, float *plain, float *blocked,
                    bool back)
{
    int blocks = (channels + block - 1) / block;
    for (size_t b = 0; b < n; b++)
        for (int c = 0; c < channels; c++)
            for (size_t a = 0; a < area; a++) {
                size_t from = (b * (size_t)channels + (size_t)c) * area + a;
                size_t to =
                    ((b * (size_t)blocks + (size_t)(c / block)) * area + a) * (size_t)block +
                    (size_t)(c % block);
                if (back)
                    plain[from] = blocked[to];
                else
                    blocked[to] = plain[from];
            }
}

/* The three results of one set of kernels, in blocked tensors. NaNs where nothing may be read
 * before it is written; the gradient by the weights in two chunks, so that the sum must add. */
typedef struct tensors {
    float *x, *dy, *y, *dx, *dg;
} tensors;

static void run_winograd(const problem *p, const dro__winograd *k, const tensors *t, size_t half_x,
                         size_t half_y)
{
    const dro__conv_shape *s = &p->s;
    dro__winograd_shape form = {s->window.stride[0], s->in, s->out, s->in_height, s->in_width};
    size_t prepared = dro__winograd_prepared(&form), floats = k->scratch(&form);
    float *fwd = alloc(prepared), *bwd = alloc(prepared), *sum = alloc(prepared),
          *scratch = alloc(floats);
    memset(scratch, 0xff, floats * sizeof *scratch);
    int half = (int)p->n / 2, rest = (int)p->n - half;
    k->prepare(&form, p->g, fwd, bwd);
    k->forward(&form, (int)p->n, t->x, fwd, t->y, scratch);
    k->backward(&form, (int)p->n, t->dy, bwd, t->dx, scratch);
    k->weights(&form, half, t->x, t->dy, sum, scratch);
    k->weights(&form, rest, t->x + half_x, t->dy + half_y, sum, scratch);
    k->finish(&form, sum, t->dg);
    dro__free(fwd), dro__free(bwd), dro__free(sum), dro__free(scratch);
}

static void run_direct(const problem *p, const dro__direct *k, const tensors *t, size_t half_x,
                       size_t half_y)
{
    size_t weights = k->weights(&p->s), floats = k->scratch(&p->s);
    float *fwd = alloc(weights), *bwd = alloc(weights), *sum = alloc(weights),
          *scratch = alloc(floats);
    memset(scratch, 0xff, floats * sizeof *scratch);
    k->prepare(&p->s, p->g, false, fwd);
    k->prepare(&p->s, p->g, true, bwd);
    k->forward(&p->s, p->n, t->x, fwd, t->y, scratch);
    k->backward(&p->s, p->n, t->dy, bwd, t->dx, scratch);
    k->slope(&p->s, p->n / 2, t->x, t->dy, sum, scratch);
    k->slope(&p->s, p->n - p->n / 2, t->x + half_x, t->dy + half_y, sum, scratch);
    k->finish(&p->s, sum, t->dg);
    dro__free(fwd), dro__free(bwd), dro__free(sum), dro__free(scratch);
}

static void compare(const problem *p, const dro__simd *simd, bool direct)
{
    const dro__conv_shape *s = &p->s;
    int in_block = s->plain ? 1 : simd->block, block = simd->block;
    size_t in_area = (size_t)(s->in_height * s->in_width), area = (size_t)(s->height * s->width);
    size_t nx = blocked_size(p->n, s->in, in_area, in_block),
           ny = blocked_size(p->n, s->out, area, block);
    tensors t = {alloc(nx), alloc(ny), alloc(ny), alloc(nx), alloc(p->ng)};
    float *y = alloc(p->ny), *dx = alloc(p->nx);
    convert(p->n, s->in, in_area, in_block, p->x, t.x, false);
    convert(p->n, s->out, area, block, p->dy, t.dy, false);
    memset(t.y, 0xff, ny * sizeof *t.y);
    memset(t.dx, 0xff, nx * sizeof *t.dx);
    size_t half_x = nx / p->n * (p->n / 2), half_y = ny / p->n * (p->n / 2);
    if (direct)
        run_direct(p, simd->direct, &t, half_x, half_y);
    else
        run_winograd(p, simd->winograd, &t, half_x, half_y);
    convert(p->n, s->out, area, block, y, t.y, true);
    convert(p->n, s->in, in_area, in_block, dx, t.dx, true);
    double e[3] = {distance(y, p->y, p->ny), distance(dx, p->dx, p->nx),
                   distance(t.dg, p->dg, p->ng)};
    double most = direct ? 1e-6 : 5e-6;
    if (!(e[0] < most && e[1] < most && e[2] < most))
        fail_msg("%s, window %d x %d by %d, %d to %d, %d x %d: %.1e %.1e %.1e", simd->name,
                 s->window.kernel[0], s->window.kernel[1], s->window.stride[0], s->in, s->out,
                 s->in_height, s->in_width, e[0], e[1], e[2]);
    size_t blocks = (size_t)((s->out + block - 1) / block), size = (size_t)block;
    for (size_t k = 0; k < ny; k++) /* channels that fill a block stay 0 */
        if (k / size / area % blocks * size + k % size >= (size_t)s->out)
            assert_true(t.y[k] == 0);
    dro__free(t.x), dro__free(t.dy), dro__free(t.y), dro__free(t.dx), dro__free(t.dg);
    dro__free(y), dro__free(dx);
}

static void check(dro__conv_shape s, size_t n, bool direct)
{
    const dro__simd *simd[3];
    problem p = pose(s, n);
    for (int k = 0, count = sets(simd); k < count; k++)
        if (direct || (s.in % simd[k]->block == 0 && s.out % simd[k]->block == 0))
            compare(&p, simd[k], direct);
    forget(&p);
}

static void winograd(int stride, size_t n, int in, int out, int h, int w)
{
    dro_window window = {.kernel = {3, 3}, .stride = {stride, stride}, .pad = {1, 1}};
    dro__conv_shape s = {
        .in = in, .out = out, .groups = 1, .in_height = h, .in_width = w, .window = window};
    check(s, n, false);
}

static void test_winograd_every_size(void **state)
{
    (void)state;
    for (int stride = 1; stride <= 2; stride++)
        for (int h = 1; h <= 11; h++)
            for (int w = 1; w <= 11; w++)
                winograd(stride, 1 + (size_t)(h + w) % 3, 16 << h % 3, 16 << w % 3, h, w);
}

static void test_winograd_models_sizes(void **state)
{
    (void)state;
    for (int stride = 1; stride <= 2; stride++) {
        winograd(stride, 8, 16, 16, 32, 32);
        winograd(stride, 8, 32, 64, 16, 16);
        winograd(stride, 8, 64, 64, 8, 8);
        winograd(stride, 3, 128, 128, 8, 8);
        winograd(stride, 2, 48, 80, 9, 5);
        winograd(stride, 2, 24, 40, 9, 7); /* for blocks of 8 */
        winograd(stride, 1, 32, 48, 28, 28);
        winograd(stride, 1, 16, 16, 56, 56);
    }
}

static void test_direct(void **state)
{
    static const dro_window windows[] = {
        {.kernel = {1, 1}, .stride = {1, 1}, .pad = {0, 0}},
        {.kernel = {1, 1}, .stride = {2, 2}, .pad = {0, 0}},
        {.kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}},
        {.kernel = {3, 3}, .stride = {2, 2}, .pad = {0, 0}},
        {.kernel = {7, 7}, .stride = {2, 2}, .pad = {3, 3}},
        {.kernel = {1, 7}, .stride = {1, 1}, .pad = {0, 3}},
        {.kernel = {5, 2}, .stride = {3, 1}, .pad = {2, 0}},
    };
    (void)state;
    for (size_t k = 0; k < sizeof windows / sizeof windows[0]; k++)
        for (int size = 7; size <= 18; size += 11)
            for (int plain = 0; plain < 2; plain++) {
                dro__conv_shape s = {.in = plain ? 3 : 24,
                                     .out = plain ? 16 : 20,
                                     .groups = 1,
                                     .in_height = size,
                                     .in_width = size + 3,
                                     .window = windows[k],
                                     .plain = plain};
                check(s, 3, true);
            }
}

static void test_direct_groups(void **state)
{
    static const int sizes[][3] = {{24, 24, 24}, {40, 40, 2},  {12, 36, 6},
                                   {48, 16, 4},  {36, 36, 36}, {20, 60, 5}}; /* in, out, groups */
    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (int stride = 1; stride <= 2; stride++) {
            dro__conv_shape s = {
                .in = sizes[k][0],
                .out = sizes[k][1],
                .groups = sizes[k][2],
                .in_height = 7,
                .in_width = 9,
                .window = {.kernel = {3, 3}, .stride = {stride, stride}, .pad = {1, 1}}};
            check(s, 2, true);
        }
}

/* ---- products ---- */

static void product(const dro__simd *simd, size_t m, size_t n, size_t k)
{
    float *a = normal(m * k, 1, 1), *b = normal(k * n, 2, 1), *c = alloc(m * (n + 3));
    double *right = dro__alloc(m * n, sizeof *right);
    for (int flip = 0; flip < 4; flip++) {
        bool fa = flip & 1, fb = flip & 2;
        dro__matrix left = {a, fa ? m : k, fa}, other = {b, fb ? k : n, fb};
        memset(c, 0xff, m * (n + 3) * sizeof *c);
        simd->product((size_t[]){m, n, k}, &left, &other, c, n + 3);
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++) {
                right[i * n + j] = 0;
                for (size_t l = 0; l < k; l++)
                    right[i * n + j] += (double)a[fa ? l * m + i : i * k + l] *
                                        (double)b[fb ? j * k + l : l * n + j];
            }
        for (size_t i = 0; i < m; i++) {
            assert_true(distance(c + i * (n + 3), right + i * n, n) < 1e-5);
            assert_true(isnan(c[i * (n + 3) + n])); /* nothing is written beside it */
        }
    }
    dro__free(a), dro__free(b), dro__free(c), dro__free(right);
}

static void test_product(void **state)
{
    const dro__simd *simd[3];
    (void)state;
    for (int k = 0, count = sets(simd); k < count; k++) {
        product(simd[k], 1, 1, 1);
        product(simd[k], 8, 10, 64);
        product(simd[k], 13, 33, 300);
        product(simd[k], 3, 70, 129);
        product(simd[k], 19, 2, 123);
        product(simd[k], 2, 400, 50);
    }
}

static void test_which(void **state)
{
    const dro__simd *simd[3];
    (void)state;
    for (int k = 0, count = sets(simd); k < count; k++)
        print_message("kernels: %s, blocks of %d\n", simd[k]->name, simd[k]->block);
    assert_null(dro__cpu_isa_wrong());
    assert_ptr_equal(dro__simd_best(), dro__simd_for(dro__simd_best()->block));
    assert_non_null(dro__simd_for(8));
    assert_null(dro__simd_for(4));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_which),
    cmocka_unit_test(test_winograd_every_size),
    cmocka_unit_test(test_winograd_models_sizes),
    cmocka_unit_test(test_direct),
    cmocka_unit_test(test_direct_groups),
    cmocka_unit_test(test_product),
};

CHECK_MAIN(tests)
