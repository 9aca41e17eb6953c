/* The bfloat16 convolutions of the cuda backend on the CPU (block.h), against sums written out: forward, both
 * gradients, and what they do on the way. */
#include "conv3.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

typedef std::vector<double> numbers;
typedef std::vector<unsigned short> halves;

extern "C" void dro__gpu_conv3_tf32_forward(cudaStream_t, const dro__conv3 *)
{
}

extern "C" size_t dro__gpu_conv3_tf32_partial(int, int)
{
    return 0;
}

static int failures;

static double uniform(double low, double high)
{
    return low + (high - low) * rand() / RAND_MAX;
}

static unsigned short narrow(double x)
{
    float f = (float)x;
    unsigned u;
    memcpy(&u, &f, sizeof u);
    return (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static double wide(unsigned short h)
{
    unsigned u = (unsigned)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static halves draw(size_t n)
{
    halves x(n);
    for (unsigned short &h : x)
        h = narrow(uniform(-1, 1));
    return x;
}

static numbers widened(const halves &x)
{
    numbers y(x.size());
    for (size_t i = 0; i < x.size(); i++)
        y[i] = wide(x[i]);
    return y;
}

static void check(const char *what, const numbers &is, const numbers &should)
{
    double off = 0, norm = 0;
    for (size_t i = 0; i < should.size(); i++)
        off += pow(is[i] - should[i], 2), norm += pow(should[i], 2);
    if (sqrt(off) < 6e-3 * sqrt(norm))
        return;
    printf("  %s is off by %.1e\n", what, sqrt(off / norm));
    failures++;
}

/* A batch norm's numbers. */
struct tail {
    std::vector<float> all;
    numbers gathered;
    dro__numbers n;

    explicit tail(int channels) : all(14 * (size_t)channels), gathered(16 * (size_t)channels), n()
    {
        static const double low[] = {-.3, .8, .5, -.3, .5, -.2, -.2}, high[] = {.3, 1.2, 1.5, .3, 1.5, .2, .2};
        float **to[] = {&n.mean, &n.inverse, &n.scale, &n.shift, &n.p, &n.q, &n.r};
        size_t each = 2 * (size_t)channels;
        for (size_t k = 0; k < 7; k++) {
            *to[k] = all.data() + k * each;
            for (size_t i = 0; i < each; i++)
                (*to[k])[i] = (float)uniform(low[k], high[k]);
        }
        n.channels = channels;
        n.sums = gathered.data();
        n.back = n.sums + 8 * channels;
    }
    /* what was added up, both of its numbers */
    numbers total(const double *from) const
    {
        size_t count = 4 * (size_t)n.channels;
        numbers t(from, from + count);
        for (size_t i = 0; i < count; i++)
            t[i] += from[count + i];
        return t;
    }
};

struct layer {
    int in, out, stride, height, width, first, second; /* examples of both parts */
    bool lazy, residual, wants, close, add, relu, norm, trained;
    bool bands; /* by warp groups */
    int share;  /* 0: 1 */
};

struct run {
    layer l;
    int oh, ow, n;
    size_t xs, zs, ws;
    halves x, add, residual, packed, z, kept, g, before, dx;
    std::vector<float> w, partial, grads[2];
    tail tx, tz;
    numbers input; /* what is multiplied */
    dro__conv3 k;

    explicit run(const layer &l);
    size_t x_at(int e, int y, int x_, int c) const
    {
        return (((size_t)e * l.height + y) * l.width + x_) * l.in + c;
    }
    size_t z_at(int e, int y, int x_, int c) const
    {
        return (((size_t)e * oh + y) * ow + x_) * l.out + c;
    }
    size_t w_at(int o, int c, int tap) const
    {
        return ((size_t)o * l.in + c) * 9 + tap;
    }
    int part(int e) const
    {
        return e >= l.first;
    }
    /* f(example, row and column of z, tap, row and column of x) for all that meet */
    template <class F>
    void each(F f) const
    {
        for (int i = 0; i < n * oh * ow * 9; i++) {
            int tap = i % 9, x_ = i / 9 % ow, y = i / 9 / ow % oh, e = i / 9 / ow / oh;
            int r = y * l.stride + tap / 3 - 1, c = x_ * l.stride + tap % 3 - 1;
            if (r >= 0 && c >= 0 && r < l.height && c < l.width)
                f(e, y, x_, tap, r, c);
        }
    }
    void forward();
    void backward();
    void check_data(numbers &should);
};

run::run(const layer &l_)
    : l(l_), oh((l.height - 1) / l.stride + 1), ow((l.width - 1) / l.stride + 1), n(l.first + l.second),
      xs((size_t)n * l.height * l.width * l.in), zs((size_t)n * oh * ow * l.out),
      ws((size_t)l.in * l.out * 9), x(draw(xs)), add(draw(xs)), residual(draw(xs)), packed(2 * ws), z(zs),
      kept(xs), g(draw(zs)), before(l.lazy ? x : draw(xs)), dx(xs), w(ws), tx(l.in), tz(l.out), input(xs), k()
{
    k.bands = l.bands;
    if (l.bands && !dro__gpu_conv3_bands_fit(l.in, l.out, l.stride, l.height, l.width))
        printf("  this is no shape for warp groups\n"), failures++;
    for (int i = 0; i < (int)ws; i++) {
        unsigned tap = i % 9, c = i / 9 % l.in, o = i / 9 / l.in;
        unsigned short h = narrow(uniform(-.2, .2));
        w[i] = (float)wide(h);
        packed[k.bands ? dro__conv3_band_at(o, c, tap, l.in) : dro__conv3_weight_at(o, c, tap, l.in)] = h;
        packed[ws + (k.bands ? dro__conv3_band_at(c, o, 8 - tap, l.out)
                             : dro__conv3_weight_at(c, o, 8 - tap, l.out))] = h;
    }
    for (size_t i = 0; i < xs; i++) {
        int c = (int)(i % l.in), at = part((int)(i / (xs / n))) * l.in + c;
        double v = wide(x[i]);
        if (l.lazy) {
            v = (v - tx.n.mean[at]) * tx.n.scale[at] + tx.n.shift[at] + (l.residual ? wide(residual[i]) : 0);
            v = wide(narrow(l.relu && v < 0 ? 0 : v));
        }
        input[i] = v;
    }
    k.parts = {l.second ? 2 : 1, {0, l.first, n}};
    k.bf16 = 1, k.share = l.share ? l.share : 1;
    k.in = l.in, k.out = l.out, k.stride = l.stride;
    k.height = l.height, k.width = l.width, k.out_height = oh, k.out_width = ow;
    k.weights = packed.data(), k.x = x.data(), k.z = z.data(), k.x_z = before.data();
    k.lazy = l.lazy, k.x_relu = l.relu, k.norm = l.norm;
    k.x_numbers = tx.n, k.numbers = tz.n, k.sums = tz.n.sums;
}

void run::forward()
{
    numbers should(zs), sums(4 * (size_t)l.out);
    k.x_residual = l.residual ? residual.data() : NULL;
    k.x_fill = l.residual ? kept.data() : NULL;
    dro__gpu_conv3_forward(NULL, &k);
    each([&](int e, int y, int x_, int tap, int r, int c) {
        for (int o = 0; o < l.out; o++)
            for (int i = 0; i < l.in; i++)
                should[z_at(e, y, x_, o)] += input[x_at(e, r, c, i)] * w[w_at(o, i, tap)];
    });
    for (size_t i = 0; i < zs; i++) {
        size_t at = (size_t)part((int)(i / (zs / n))) * 2 * l.out + i % l.out;
        sums[at] += should[i], sums[at + l.out] += should[i] * should[i];
    }
    check("z", widened(z), should);
    check("its sums", tz.total(tz.n.sums), sums);
    if (l.residual)
        check("what is kept", widened(kept), input);
    if (l.residual) /* from now on it is read as it was kept */
        k.x = kept.data(), k.lazy = 0, k.x_residual = k.x_fill = NULL;
}

/* dx and the sums of the tail before. */
void run::check_data(numbers &should)
{
    numbers sums(4 * (size_t)l.in);
    for (size_t i = 0; i < xs; i++) {
        int p = part((int)(i / (xs / n))), c = (int)(i % l.in);
        should[i] += l.add ? wide(add[i]) : 0;
        if (l.close && l.relu && !(input[i] > 0))
            should[i] = 0;
        sums[(size_t)2 * p * l.in + c] += should[i];
        sums[(size_t)(2 * p + 1) * l.in + c] += should[i] * (wide(before[i]) - tx.n.mean[p * l.in + c]);
    }
    check("dx", widened(dx), should);
    if (l.close)
        check("its sums", tx.total(tx.n.back), sums);
}

void run::backward()
{
    numbers slope(zs), to_x(xs), to_w[2] = {numbers(ws), numbers(ws)};
    for (size_t i = 0; i < zs; i++) {
        int at = part((int)(i / (zs / n))) * l.out + (int)(i % l.out);
        double v = wide(g[i]);
        if (l.norm)
            v = tz.n.p[at] * v + tz.n.q[at] * (wide(z[i]) - tz.n.mean[at]) + tz.n.r[at];
        slope[i] = wide(narrow(v));
    }
    partial.resize(dro__gpu_conv3_partial(l.in, l.out));
    k.g = g.data(), k.real_in = l.in == 16 ? 3 : l.in, k.turn = DRO__CONV3_TURNS - 1;
    k.add = l.add ? add.data() : NULL, k.dx = l.wants ? dx.data() : NULL, k.close = l.close;
    k.partial = l.trained ? partial.data() : NULL;
    for (int p = 0; p < 2; p++)
        grads[p].resize(ws), k.grads[p] = grads[p].data();
    dro__gpu_conv3_back(NULL, &k);
    if (l.trained)
        dro__gpu_conv3_sum(NULL, &k);
    each([&](int e, int y, int x_, int tap, int r, int c) {
        for (int o = 0; o < l.out; o++)
            for (int i = 0; i < l.in; i++) {
                double d = slope[z_at(e, y, x_, o)];
                to_x[x_at(e, r, c, i)] += d * w[w_at(o, i, tap)];
                if (i < k.real_in)
                    to_w[part(e)][((size_t)o * k.real_in + i) * 9 + tap] += d * input[x_at(e, r, c, i)];
            }
    });
    if (l.wants)
        check_data(to_x);
    for (int p = 0; l.trained && p < k.parts.count; p++)
        check("dw", numbers(grads[p].begin(), grads[p].end()), to_w[p]);
}

int main()
{
    /* in, out, stride, height, width, examples | lazy, residual, wants, close, add, relu, norm, trained, bands, share */
    static const layer layers[] = {
        {16, 16, 1, 32, 32, 2, 1, true, false, true, true, true, true, true, true},
        {32, 32, 1, 16, 16, 2, 3, true, false, true, true, false, true, true, true},
        {64, 64, 1, 8, 8, 2, 3, true, false, true, true, true, true, true, true},
        {16, 32, 2, 32, 32, 2, 1, false, false, true, true, true, true, true, true},
        {32, 64, 2, 16, 16, 2, 1, false, false, true, true, false, true, true, true},
        {32, 32, 1, 16, 16, 5, 3, true, true, true, true, true, true, true, true, false, 2},
        {16, 16, 1, 32, 32, 2, 1, true, false, true, true, true, true, true, true, true},
        {32, 32, 1, 16, 16, 2, 3, true, false, true, true, false, true, true, true, true},
        {64, 64, 1, 8, 8, 2, 3, true, false, true, true, true, true, true, true, true},
        {16, 16, 1, 32, 32, 9, 0, false, false, false, false, false, false, false, true, true, 4},
        {32, 32, 1, 16, 16, 1, 1, true, true, true, true, true, true, false, false, true, 4},
        {64, 64, 1, 8, 8, 41, 0, true, true, true, false, false, true, true, true, true, 4},
        {32, 32, 1, 16, 16, 7, 6, true, false, true, true, false, true, true, true, true, 4},
        {16, 16, 1, 28, 40, 1, 0, false, false, true, false, false, true, false, true},
        {16, 16, 1, 20, 20, 1, 1, true, true, true, false, false, true, false, true},
        {32, 32, 1, 11, 21, 1, 0, true, false, true, true, false, false, true, false},
        {64, 64, 1, 5, 13, 1, 1, false, false, false, false, false, true, true, true},
        {64, 64, 1, 7, 7, 3, 1, true, true, false, false, false, true, true, true},
        {16, 32, 2, 11, 13, 2, 1, true, false, true, true, true, true, true, true},
        {16, 32, 2, 40, 40, 1, 0, true, false, true, true, true, true, true, true},
        {32, 64, 2, 9, 20, 2, 1, true, false, true, true, true, true, true, true},
        {32, 64, 2, 20, 20, 2, 1, true, true, true, true, true, true, true, true},
    };
    for (const layer &l : layers) {
        printf("%d to %d channels, stride %d, %d x %d%s\n", l.in, l.out, l.stride, l.height, l.width,
               l.bands ? ", by warp groups" : "");
        run r(l);
        r.forward();
        r.backward();
    }
    return failures != 0;
}
