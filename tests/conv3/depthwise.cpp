/* Depthwise convolutions on the CPU (block.h) against sums written out: forward and both gradients, in floats and
 * bfloat16, for the kernel of 3 x 3 and any other, for channels that fill a thread's word and for others. */
#include "block.h"

#include "depthwise.cu"

typedef std::vector<double> numbers;

struct shape {
    int channels, height, width, kernel[2], stride[2], pad[2], first, second; /* examples by part */
    bool bf16, add;
};

/* A value in memory and as numbers. */
struct value {
    std::vector<float> floats;
    std::vector<__nv_bfloat16> halves;
    numbers is;
    bool bf16;

    value(size_t count, bool half, double low) : floats(count), halves(count), is(count), bf16(half)
    {
        for (size_t i = 0; i < count; i++) {
            floats[i] = (float)(low + 2 * -low * rand() / RAND_MAX);
            halves[i] = __float2bfloat16(floats[i]);
        }
        read();
    }
    void read()
    {
        for (size_t i = 0; i < is.size(); i++)
            is[i] = (double)(bf16 ? __bfloat162float(halves[i]) : floats[i]);
    }
    dro__typed typed(int channels)
    {
        return {bf16 ? (void *)halves.data() : (void *)floats.data(), bf16, channels};
    }
};

static int wrongs;

static void check_near(const char *what, const numbers &is, const numbers &should, double share)
{
    double off = 0, norm = 0;
    for (size_t i = 0; i < should.size(); i++)
        off += pow(is[i] - should[i], 2), norm += pow(should[i], 2);
    if (sqrt(off) <= share * sqrt(norm))
        return;
    printf("  %s is off by %.1e\n", what, sqrt(off / norm));
    wrongs++;
}

static void check_shape(const shape &l)
{
    const int total = l.first + l.second, taps = l.kernel[0] * l.kernel[1], C = l.channels;
    dro__depthwise d = {};
    d.parts = {l.second ? 2 : 1, {0, l.first, total}};
    d.in = {C, l.height, l.width};
    d.out = {C, (l.height + 2 * l.pad[0] - l.kernel[0]) / l.stride[0] + 1,
             (l.width + 2 * l.pad[1] - l.kernel[1]) / l.stride[1] + 1};
    for (int k = 0; k < 2; k++)
        d.k.kernel[k] = l.kernel[k], d.k.stride[k] = l.stride[k], d.k.pad[k] = l.pad[k];
    size_t xs = (size_t)total * l.height * l.width * C,
           zs = (size_t)total * d.out.height * d.out.width * C;
    value x(xs, l.bf16, -1), z(zs, l.bf16, -1), dz(zs, l.bf16, -1), add(xs, l.bf16, -1),
        dx(xs, l.bf16, -1);
    value w((size_t)C * taps, false, -1);
    numbers to_z(zs), to_x(xs), to_w[2] = {numbers(w.is.size()), numbers(w.is.size())};
    for (size_t i = 0; i < zs; i++) {
        int c = (int)(i % C), col = (int)(i / C % d.out.width),
            row = (int)(i / C / d.out.width % d.out.height);
        int n = (int)(i / C / d.out.width / d.out.height);
        for (int k = 0; k < taps; k++) {
            int r = row * l.stride[0] - l.pad[0] + k / l.kernel[1],
                q = col * l.stride[1] - l.pad[1] + k % l.kernel[1];
            if (r < 0 || r >= l.height || q < 0 || q >= l.width)
                continue;
            size_t at = (((size_t)n * l.height + r) * l.width + q) * C + c,
                   tap = (size_t)c * taps + k;
            to_z[i] += w.is[tap] * x.is[at];
            to_x[at] += w.is[tap] * dz.is[i];
            to_w[n >= l.first][tap] += dz.is[i] * x.is[at];
        }
    }
    for (size_t i = 0; l.add && i < xs; i++)
        to_x[i] += add.is[i];
    const dro__typed none = {NULL, 0, 0};
    std::vector<float> partial(dro__gpu_depthwise_partial(&d), NAN),
        grads[2] = {w.floats, w.floats};
    float *to[2] = {grads[0].data(), grads[1].data()};
    d.w = w.floats.data();
    printf("depthwise %d x %d of %d channels, stride %d, %d x %d, %s\n", l.kernel[0], l.kernel[1],
           C, l.stride[0], l.height, l.width, l.bf16 ? "bf16" : "floats");
    dro__gpu_depthwise(NULL, &d, x.typed(C), z.typed(C));
    dro__gpu_depthwise_data(NULL, &d, dz.typed(C), l.add ? add.typed(C) : none, dx.typed(C));
    dro__gpu_depthwise_weight(NULL, &d, x.typed(C), dz.typed(C), partial.data(), to);
    z.read(), dx.read();
    check_near("its value", z.is, to_z, l.bf16 ? 4e-3 : 1e-6);
    check_near("its data gradient", dx.is, to_x, l.bf16 ? 4e-3 : 1e-6);
    for (int part = 0; part < d.parts.count; part++)
        check_near("its weight gradient", numbers(grads[part].begin(), grads[part].end()),
                   to_w[part], 1e-5);
}

int check_depthwise()
{
    /* channels, height, width | kernel, stride, padding | examples | bf16, add */
    static const shape shapes[] = {
        {32, 9, 7, {3, 3}, {1, 1}, {1, 1}, 2, 1, true, true},
        {32, 9, 8, {3, 3}, {2, 2}, {1, 1}, 2, 0, true, false},
        {264, 5, 5, {3, 3}, {1, 1}, {1, 1}, 3, 2, true, true},
        {20, 9, 7, {3, 3}, {1, 1}, {1, 1}, 2, 3, false, true},
        {148, 6, 8, {3, 3}, {2, 2}, {1, 1}, 1, 2, false, false},
        {6, 9, 7, {3, 3}, {2, 1}, {1, 0}, 2, 1, true, true},
        {5, 7, 9, {2, 5}, {1, 2}, {1, 0}, 2, 1, false, true},
        {130, 4, 6, {4, 1}, {3, 1}, {2, 0}, 1, 1, false, false},
    };
    for (const shape &l : shapes)
        check_shape(l);
    return wrongs;
}
