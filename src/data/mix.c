/* Mixed examples: mixup (Zhang et al. 2018) blends two images, CutMix (Yun et al. 2019) puts a box
 * of one into the other; their losses count in the same shares. As in the papers' programs, a batch
 * has one share and one box.
 *
 * The partner of an example is its neighbour: the order is random, so neighbours are a random
 * pair, and a rank that reads a slice of a batch has both of nearly every pair. */
#include "mix.h"

#include <math.h>

size_t dro__mix_partner(size_t i, size_t batch)
{
    size_t partner = i ^ 1;
    return partner < batch ? partner : 0;
}

static double draw(dro__mix_random *random)
{
    return dro__random_unit(random->seed, random->stream, random->counter++);
}

/* Marsaglia and Tsang 2000; below 1 from the distribution of shape + 1. Normal numbers have a
 * stream of their own, as each takes two of it. */
static double gamma_of(dro__mix_random *random, double shape)
{
    double raised = shape < 1 ? shape + 1 : shape, d = raised - 1.0 / 3, c = 1 / sqrt(9 * d);
    double scale = shape < 1 ? pow(draw(random), 1 / shape) : 1;
    for (;;) {
        double x = dro__random_normal(random->seed, ~random->stream, random->counter++);
        double v = 1 + c * x, u = draw(random);
        v = v * v * v;
        if (v > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v))
            return scale * d * v;
    }
}

/* Beta(shape, shape). */
static double beta_of(dro__mix_random *random, double shape)
{
    double x = gamma_of(random, shape), y = gamma_of(random, shape);
    return x + y > 0 ? x / (x + y) : (double)(draw(random) < 0.5);
}

/* A box of the image's aspect with 1 - share of its area, the centre anywhere; what lies outside
 * counts for the first image. */
static void make_box(dro__mix_random *random, double share, int32_t height, int32_t width,
                     dro_mix *mix)
{
    double side = sqrt(1 - share);
    int32_t h = (int32_t)(side * height), w = (int32_t)(side * width);
    int32_t top = (int32_t)(draw(random) * height) - h / 2, bottom = top + h;
    int32_t left = (int32_t)(draw(random) * width) - w / 2, right = left + w;
    top = top < 0 ? 0 : top, bottom = bottom > height ? height : bottom;
    left = left < 0 ? 0 : left, right = right > width ? width : right;
    double area = (double)(bottom - top) * (right - left);
    mix->box = (dro_box){(int16_t)left, (int16_t)top, (int16_t)right, (int16_t)bottom};
    mix->share = (float)(1 - area / ((double)height * width));
    if (!(area > 0))
        mix->box = (dro_box){0};
}

dro_mix dro__mix_draw(dro__mix_random *random, double mixup, double cutmix, int32_t height,
                      int32_t width)
{
    dro_mix mix = {0};
    bool boxed = draw(random) < 0.5 ? cutmix > 0 : !(mixup > 0);
    double share = beta_of(random, boxed ? cutmix : mixup);
    if (boxed)
        make_box(random, share, height, width, &mix);
    else
        mix.share = (float)share;
    return mix;
}

static bool in_box(const dro_box *box, size_t y, size_t x)
{
    return (int)y >= box->top && (int)y < box->bottom && (int)x >= box->left && (int)x < box->right;
}

void dro__mix_pixels(const dro_mix *mix, dro__mix_shape shape, float *a, float *b, bool both)
{
    bool boxed = mix->box.right > mix->box.left;
    float share = mix->share;
    for (size_t k = 0; k < shape.channels * shape.height * shape.width; k++) {
        float x = a[k], y = b[k];
        float own = share;
        if (boxed)
            own = in_box(&mix->box, k / shape.width % shape.height, k % shape.width) ? 0 : 1;
        a[k] = own * x + (1 - own) * y;
        if (both)
            b[k] = own * y + (1 - own) * x;
    }
}
