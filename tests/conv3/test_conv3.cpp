/* The convolutions of the cuda backend, bfloat16 and tf32, on the CPU (block.h), against sums written out: forward,
 * both gradients, and what they do on the way. */
#include "conv3.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

typedef std::vector<double> numbers;

static int failures;
int check_depthwise(); /* depthwise.cpp */

static double uniform(double low, double high)
{
    return low + (high - low) * rand() / RAND_MAX;
}

/* ---- what differs between the precisions: a value in memory, what is multiplied of it, how far off a result may be
 * ---- */

static unsigned bits(double x)
{
    float f = (float)x;
    unsigned u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static double number(unsigned u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

struct bf16 {
    typedef unsigned short value;
    enum { BF16 = 1 };
    static constexpr double OFF = 6e-3;
    static constexpr const char *NAME = "bf16";

    static value narrow(double x)
    {
        unsigned u = bits(x);
        return (value)((u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
    static double wide(value h)
    {
        return number((unsigned)h << 16);
    }
    static double multiplied(double x)
    {
        return wide(narrow(x));
    }
};

struct tf32 {
    typedef float value;
    enum { BF16 = 0 };
    static constexpr double OFF = 5e-5;
    static constexpr const char *NAME = "tf32";

    static value narrow(double x)
    {
        return (value)x;
    }
    static double wide(value x)
    {
        return x;
    }
    static double multiplied(double x)
    {
        return number((bits(x) + 0x1000) & ~0x1fffu);
    }
};

template <class P>
static std::vector<typename P::value> draw(size_t n)
{
    std::vector<typename P::value> x(n);
    for (typename P::value &v : x)
        v = P::narrow(uniform(-1, 1));
    return x;
}

template <class P>
static numbers widened(const std::vector<typename P::value> &x)
{
    numbers y(x.size());
    for (size_t i = 0; i < x.size(); i++)
        y[i] = P::wide(x[i]);
    return y;
}

template <class P>
static void check(const char *what, const numbers &is, const numbers &should)
{
    double off = 0, norm = 0;
    for (size_t i = 0; i < should.size(); i++)
        off += pow(is[i] - should[i], 2), norm += pow(should[i], 2);
    if (sqrt(off) < P::OFF * sqrt(norm))
        return;
    printf("  %s is off by %.1e\n", what, sqrt(off / norm));
    failures++;
}

static const double EPS = 1e-5, MOMENTUM = 0.1;

/* A batch norm's numbers, and what they are made of. */
struct tail {
    std::vector<float> all, gamma, beta, running, taken, slopes[2]; /* slopes: of gamma and beta, by part */
    numbers gathered;
    dro__numbers n;

    explicit tail(int channels)
        : all(14 * (size_t)channels), gamma((size_t)channels), beta(gamma), running(2 * gamma.size()), taken(running),
          slopes{running, running}, gathered(16 * (size_t)channels), n()
    {
        static const double low[] = {-.3, .8, .5, -.3, .5, -.2, -.2}, high[] = {.3, 1.2, 1.5, .3, 1.5, .2, .2};
        float **to[] = {&n.mean, &n.inverse, &n.scale, &n.shift, &n.p, &n.q, &n.r};
        size_t each = 2 * (size_t)channels;
        for (size_t k = 0; k < 7; k++) {
            *to[k] = all.data() + k * each;
            for (size_t i = 0; i < each; i++)
                (*to[k])[i] = (float)uniform(low[k], high[k]);
        }
        for (int i = 0; i < channels; i++)
            gamma[i] = (float)uniform(.5, 1.5), beta[i] = (float)uniform(-.3, .3), running[i] = (float)uniform(-1, 1);
        for (int i = 0; i < 2 * channels; i++) { /* both parts have the same parameters */
            n.scale[i] = gamma[i % channels] * n.inverse[i];
            n.shift[i] = beta[i % channels];
        }
        n.channels = channels;
        n.sums = gathered.data();
        n.all = n.back = n.sums + 8 * channels;
    }
    /* Only their sums are left of a part's numbers, of so many pixels: the kernel is to make them. */
    void forget_forward(int part, double count)
    {
        for (int c = 0; c < n.channels; c++) {
            int at = part * n.channels + c;
            double *to = n.sums + 2 * part * n.channels + c, mean = n.mean[at];
            to[0] = mean * count;
            to[n.channels] = (pow(n.inverse[at], -2.0) - EPS + mean * mean) * count;
            n.mean[at] = n.inverse[at] = n.scale[at] = n.shift[at] = NAN;
        }
    }
    void forget_backward(int part, double count)
    {
        for (int c = 0; c < n.channels; c++) {
            int at = part * n.channels + c;
            double *to = n.back + 2 * part * n.channels + c, p = n.p[at];
            to[0] = -n.r[at] * count / p;
            to[n.channels] = -n.q[at] * count / (p * pow(n.inverse[at], 2.0));
            n.q[at] = n.r[at] = NAN;
        }
    }
    dro__norm_source source()
    {
        return {gamma.data(), beta.data(), NULL, running.data(), taken.data(), (float)EPS, MOMENTUM};
    }
    dro__norm_grads grads()
    {
        dro__norm_grads g = {};
        for (int part = 0; part < 2; part++)
            g.gamma[part] = slopes[part].data(), g.beta[part] = slopes[part].data() + n.channels;
        return g;
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

template <class P>
struct run {
    typedef std::vector<typename P::value> values;
    layer l;
    int oh, ow, n;
    size_t xs, zs, ws;
    values x, add, residual, packed, z, kept, g, before, dx;
    std::vector<float> w, grads[2];
    tail tx, tz;
    numbers made, input; /* what the tail before makes, and what is multiplied */
    numbers to_w[2];     /* what the weight gradients should be */
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
    size_t weight_at(unsigned n, unsigned k, unsigned tap, unsigned k_count) const
    {
        return l.bands ? dro__conv3_band_at(n, k, tap, k_count)
                       : dro__conv3_weight_at(P::BF16, n, k, tap, k_count);
    }
    int part(int e) const
    {
        return e >= l.first;
    }
    /* f(example, row and column of z, tap, row and column of x) for all that meet */
    template <class F> void each(F f) const
    {
        for (int i = 0; i < n * oh * ow * 9; i++) {
            int tap = i % 9, x_ = i / 9 % ow, y = i / 9 / ow % oh, e = i / 9 / ow / oh;
            int r = y * l.stride + tap / 3 - 1, c = x_ * l.stride + tap % 3 - 1;
            if (r >= 0 && c >= 0 && r < l.height && c < l.width)
                f(e, y, x_, tap, r, c);
        }
    }
    void make_weights();
    void make_input();
    void forward();
    void forward_once();
    void backward(std::vector<float> &partial);
    void backward_once();
    void check_data(numbers &should);
    void check_weights();
};

template <class P>
run<P>::run(const layer &l_)
    : l(l_), oh((l.height - 1) / l.stride + 1), ow((l.width - 1) / l.stride + 1), n(l.first + l.second),
      xs((size_t)n * l.height * l.width * l.in), zs((size_t)n * oh * ow * l.out),
      ws((size_t)l.in * l.out * 9), x(draw<P>(xs)), add(draw<P>(xs)), residual(draw<P>(xs)), packed(2 * ws), z(zs),
      kept(xs), g(draw<P>(zs)), dx(xs), w(ws), tx(l.in), tz(l.out), made(xs), input(xs), k()
{
    make_weights();
    make_input();
    before = l.lazy ? x : draw<P>(xs);
    k.parts = {l.second ? 2 : 1, {0, l.first, n}};
    k.bf16 = P::BF16, k.bands = l.bands, k.share = l.share ? l.share : 1;
    k.in = l.in, k.out = l.out, k.stride = l.stride;
    k.height = l.height, k.width = l.width, k.out_height = oh, k.out_width = ow;
    k.weights = packed.data(), k.x = x.data(), k.z = z.data(), k.x_z = before.data();
    k.lazy = l.lazy, k.x_relu = l.relu, k.norm = l.norm;
    k.x_numbers = tx.n, k.numbers = tz.n, k.sums = tz.n.sums;
}

template <class P>
void run<P>::make_weights()
{
    for (int i = 0; i < (int)ws; i++) {
        unsigned tap = i % 9, c = i / 9 % l.in, o = i / 9 / l.in;
        w[i] = (float)P::multiplied(uniform(-.2, .2));
        packed[weight_at(o, c, tap, l.in)] = P::narrow(w[i]);
        packed[ws + weight_at(c, o, 8 - tap, l.out)] = P::narrow(w[i]);
    }
}

/* Nothing is so close to 0 that rounding decides what a ReLU does. */
template <class P>
void run<P>::make_input()
{
    for (size_t i = 0; i < xs; i++) {
        int at = part((int)(i / (xs / n))) * l.in + (int)(i % l.in);
        double v = P::wide(x[i]), more = l.residual ? P::wide(residual[i]) : 0;
        while (l.lazy) {
            v = (P::wide(x[i]) - tx.n.mean[at]) * tx.n.scale[at] + tx.n.shift[at] + more;
            if (fabs(v) > 1e-5)
                break;
            x[i] = P::narrow(uniform(-1, 1));
        }
        made[i] = P::wide(P::narrow(l.lazy && l.relu && v < 0 ? 0 : v));
        input[i] = P::multiplied(made[i]);
    }
}

/* As the first that reads a value: its tail's numbers are still to be made, and to be kept. */
template <class P>
void run<P>::forward_once()
{
    std::vector<float> all = tx.all;
    numbers taken(2 * (size_t)l.in);
    double count = (double)l.first * l.height * l.width;
    for (int c = 0; c < l.in; c++) {
        double variance = pow(tx.n.inverse[c], -2.0) - EPS;
        taken[c] = (1 - MOMENTUM) * tx.running[c] + MOMENTUM * tx.n.mean[c];
        taken[l.in + c] = (1 - MOMENTUM) * tx.running[l.in + c] + MOMENTUM * variance * count / (count - 1);
    }
    k.x_finish = l.lazy, k.x_source = tx.source();
    for (int p = 0; l.lazy && p < k.parts.count; p++)
        tx.forget_forward(p, (double)(k.parts.first[p + 1] - k.parts.first[p]) * l.height * l.width);
    dro__gpu_conv3_forward(NULL, &k);
    k.x_finish = 0;
    if (!l.lazy)
        return;
    for (int i = 0; i < 2 * l.in; i++) /* which the kernel has made of the scale */
        all[tx.n.p - tx.n.mean + i] = tx.n.p[i];
    check<P>("what is kept of the numbers", numbers(tx.all.begin(), tx.all.end()), numbers(all.begin(), all.end()));
    check<P>("the running statistics", numbers(tx.taken.begin(), tx.taken.end()), taken);
}

template <class P>
void run<P>::forward()
{
    numbers should(zs), sums(4 * (size_t)l.out);
    k.x_residual = l.residual ? residual.data() : NULL;
    k.x_fill = l.residual ? kept.data() : NULL;
    forward_once();
    each([&](int e, int y, int x_, int tap, int r, int c) {
        for (int o = 0; o < l.out; o++)
            for (int i = 0; i < l.in; i++)
                should[z_at(e, y, x_, o)] += input[x_at(e, r, c, i)] * w[w_at(o, i, tap)];
    });
    for (size_t i = 0; i < zs; i++) {
        size_t at = (size_t)part((int)(i / (zs / n))) * 2 * l.out + i % l.out;
        sums[at] += should[i], sums[at + l.out] += should[i] * should[i];
    }
    check<P>("z", widened<P>(z), should);
    check<P>("its sums", tz.total(tz.n.sums), sums);
    if (l.residual)
        check<P>("what is kept", widened<P>(kept), made);
    if (l.residual) /* from now on it is read as it was kept */
        k.x = kept.data(), k.lazy = 0, k.x_residual = k.x_fill = NULL;
}

/* dx and the sums of the tail before. */
template <class P>
void run<P>::check_data(numbers &should)
{
    numbers sums(4 * (size_t)l.in);
    for (size_t i = 0; i < xs; i++) {
        int p = part((int)(i / (xs / n))), c = (int)(i % l.in);
        should[i] += l.add ? P::wide(add[i]) : 0;
        if (l.close && l.relu && !(made[i] > 0))
            should[i] = 0;
        sums[(size_t)2 * p * l.in + c] += should[i];
        sums[(size_t)(2 * p + 1) * l.in + c] += should[i] * (P::wide(before[i]) - tx.n.mean[p * l.in + c]);
    }
    check<P>("dx", widened<P>(dx), should);
    if (l.close)
        check<P>("its sums", tx.total(tx.n.back), sums);
}

template <class P>
void run<P>::check_weights()
{
    char what[80];
    snprintf(what, sizeof what, "dw of %d to %d channels, %d x %d", l.in, l.out, l.height, l.width);
    for (int p = 0; l.trained && p < k.parts.count; p++)
        check<P>(what, numbers(grads[p].begin(), grads[p].end()), to_w[p]);
}

/* The numbers of the slope are still to be made where the weights are trained. */
template <class P>
void run<P>::backward_once()
{
    std::vector<float> all = tz.all;
    k.finish = l.norm && l.trained, k.norm_grads = tz.grads();
    for (int p = 0; k.finish && p < k.parts.count; p++)
        tz.forget_backward(p, (double)(k.parts.first[p + 1] - k.parts.first[p]) * oh * ow);
    dro__gpu_conv3_back(NULL, &k);
    if (k.partial)
        dro__gpu_conv3_sum(NULL, &k);
    if (!k.finish)
        return;
    check<P>("what is kept of the slope's", numbers(tz.all.begin(), tz.all.end()), numbers(all.begin(), all.end()));
    for (int p = 0; p < k.parts.count; p++) {
        numbers should(2 * (size_t)l.out);
        for (int c = 0; c < l.out; c++) {
            const double *from = tz.n.back + 2 * p * l.out + c;
            should[c] = from[l.out] * tz.n.inverse[p * l.out + c];
            should[l.out + c] = from[0];
        }
        check<P>("the slopes of gamma and beta", numbers(tz.slopes[p].begin(), tz.slopes[p].end()), should);
    }
}

template <class P>
void run<P>::backward(std::vector<float> &partial)
{
    numbers slope(zs), to_x(xs);
    for (size_t i = 0; i < zs; i++) {
        int at = part((int)(i / (zs / n))) * l.out + (int)(i % l.out);
        double v = P::wide(g[i]);
        if (l.norm)
            v = tz.n.p[at] * v + tz.n.q[at] * (P::wide(z[i]) - tz.n.mean[at]) + tz.n.r[at];
        slope[i] = P::multiplied(v);
    }
    k.g = g.data(), k.real_in = l.in == 16 && !l.lazy ? 3 : l.in, k.turn = DRO__CONV3_TURNS - 1;
    k.add = l.add ? add.data() : NULL, k.dx = l.wants ? dx.data() : NULL, k.close = l.close;
    k.partial = l.trained ? partial.data() : NULL;
    for (int p = 0; p < 2; p++)
        to_w[p].resize(ws), grads[p].resize(ws), k.grads[p] = grads[p].data();
    backward_once();
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
}

template <class P, size_t COUNT>
static void run_all(const layer (&layers)[COUNT])
{
    std::vector<float> partial(dro__gpu_conv3_partial());
    for (const layer &l : layers) {
        if (l.bands && !P::BF16)
            continue;
        printf("%d to %d channels, stride %d, %d x %d, %s%s\n", l.in, l.out, l.stride, l.height, l.width, P::NAME,
               l.bands ? " by warp groups" : "");
        if (l.bands && !dro__gpu_conv3_bands_fit(l.in, l.out, l.stride, l.height, l.width))
            printf("  this is no shape for warp groups\n"), failures++;
        std::fill(partial.begin(), partial.end(), NAN);
        run<P> r(l);
        r.forward();
        r.backward(partial);
        r.check_weights();
    }
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
        {16, 16, 1, 32, 32, 1, 2, true, true, true, true, false, true, false, true},
        {64, 64, 1, 8, 8, 3, 0, false, false, true, false, true, false, false, true},
        {16, 16, 1, 28, 40, 1, 0, false, false, true, false, false, true, false, true},
        {16, 16, 1, 20, 20, 1, 1, true, true, true, false, false, true, false, true},
        {32, 32, 1, 11, 21, 1, 0, true, false, true, true, false, false, true, false},
        {64, 64, 1, 5, 13, 1, 1, false, false, false, false, false, true, true, true},
        {64, 64, 1, 7, 7, 3, 1, true, true, false, false, false, true, true, true},
        {16, 32, 2, 11, 13, 2, 1, true, false, true, true, true, true, true, true},
        {16, 32, 2, 40, 40, 1, 0, true, false, true, true, true, true, true, true},
        {32, 64, 2, 9, 20, 2, 1, true, false, true, true, true, true, true, true},
        {32, 64, 2, 20, 20, 2, 1, true, true, true, true, true, true, true, true},
        {16, 32, 2, 31, 32, 1, 1, true, false, true, true, false, true, true, true},
        {32, 64, 2, 16, 15, 1, 1, false, false, true, true, true, true, true, true},
    };
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    run_all<bf16>(layers);
    run_all<tf32>(layers);
    return failures + check_depthwise() != 0;
}
