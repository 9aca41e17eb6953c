/* Inception v3 (Szegedy et al. 2015), layer by layer as torchvision has it, with its names:
 * Conv2d_1a_3x3.conv, Mixed_5b.branch1x1.bn, AuxLogits.fc, ... Norms have eps 0.001.
 *
 * Its own normalisation: pixels come as for the other models, (x - mean) / std with ImageNet's mean
 * and standard deviation; the network was trained on (x - 0.5) / 0.5. The first layer changes one
 * into the other (torchvision's transform_input). Inputs without three channels are taken as they
 * are.
 *
 * The auxiliary head, whose loss counts 0.4 times, pools by 5 with stride 3 and has a 5x5
 * convolution: it needs 17 x 17 pixels there, that is images of 299 x 299. For smaller images it
 * does not fit and is left out; the main path works from 75 x 75. */
#include "nn.h"

#include <stdio.h>

enum { SIDE_LEAST = 75, AUXILIARY_SIDE = 17 };

/* One convolution with norm and ReLU: torchvision's BasicConv2d. */
static dro_node basic(dro_net *net, const char *block, const char *branch, dro_node x,
                      int32_t channels, const dro_window *window)
{
    char name[64];
    const char *dot = block[0] ? "." : "";
    snprintf(name, sizeof name, "%s%s%s.conv", block, dot, branch);
    x = dro_net_conv_window(net, name, x, channels, window, false);
    snprintf(name, sizeof name, "%s%s%s.bn", block, dot, branch);
    return dro_net_relu(net, dro_net_norm_eps(net, name, x, 0.001f));
}

/* height, width; the padding keeps the size, or there is none */
#define SAME(height, width)  (&(dro_window){{height, width}, {1, 1}, {(height) / 2, (width) / 2}})
#define SHRINK(side, stride) (&(dro_window){{side, side}, {stride, stride}, {0, 0}})
/* Inside a block: `net` and `block` are its parameters. */
#define CONV(branch, x, channels, window) basic(net, block, branch, x, channels, window)
#define CONCAT(net, ...)                                                                           \
    dro_net_concat(net, (const dro_node[]){__VA_ARGS__},                                           \
                   (int)(sizeof((const dro_node[]){__VA_ARGS__}) / sizeof(dro_node)))

/* The 3x3 average of a block's input, then a 1x1. */
static dro_node pooled(dro_net *net, const char *block, dro_node x, int32_t channels)
{
    return CONV("branch_pool", dro_net_avg_pool(net, x, SAME(3, 3)), channels, SAME(1, 1));
}

/* 35 x 35 */
static dro_node block_a(dro_net *net, const char *block, dro_node x, int32_t pool_channels)
{
    dro_node one = CONV("branch1x1", x, 64, SAME(1, 1));
    dro_node five = CONV("branch5x5_1", x, 48, SAME(1, 1));
    five = CONV("branch5x5_2", five, 64, SAME(5, 5));
    dro_node three = CONV("branch3x3dbl_1", x, 64, SAME(1, 1));
    three = CONV("branch3x3dbl_2", three, 96, SAME(3, 3));
    three = CONV("branch3x3dbl_3", three, 96, SAME(3, 3));
    dro_node pool = pooled(net, block, x, pool_channels);
    return CONCAT(net, one, five, three, pool);
}

/* 35 x 35 to 17 x 17 */
static dro_node block_b(dro_net *net, const char *block, dro_node x)
{
    dro_node three = CONV("branch3x3", x, 384, SHRINK(3, 2));
    dro_node twice = CONV("branch3x3dbl_1", x, 64, SAME(1, 1));
    twice = CONV("branch3x3dbl_2", twice, 96, SAME(3, 3));
    twice = CONV("branch3x3dbl_3", twice, 96, SHRINK(3, 2));
    return CONCAT(net, three, twice, dro_net_max_pool(net, x, SHRINK(3, 2)));
}

/* 17 x 17, the 7x7 as 1x7 and 7x1 */
static dro_node block_c(dro_net *net, const char *block, dro_node x, int32_t width)
{
    dro_node one = CONV("branch1x1", x, 192, SAME(1, 1));
    dro_node seven = CONV("branch7x7_1", x, width, SAME(1, 1));
    seven = CONV("branch7x7_2", seven, width, SAME(1, 7));
    seven = CONV("branch7x7_3", seven, 192, SAME(7, 1));
    dro_node twice = CONV("branch7x7dbl_1", x, width, SAME(1, 1));
    twice = CONV("branch7x7dbl_2", twice, width, SAME(7, 1));
    twice = CONV("branch7x7dbl_3", twice, width, SAME(1, 7));
    twice = CONV("branch7x7dbl_4", twice, width, SAME(7, 1));
    twice = CONV("branch7x7dbl_5", twice, 192, SAME(1, 7));
    return CONCAT(net, one, seven, twice, pooled(net, block, x, 192));
}

/* 17 x 17 to 8 x 8 */
static dro_node block_d(dro_net *net, const char *block, dro_node x)
{
    dro_node three = CONV("branch3x3_1", x, 192, SAME(1, 1));
    three = CONV("branch3x3_2", three, 320, SHRINK(3, 2));
    dro_node seven = CONV("branch7x7x3_1", x, 192, SAME(1, 1));
    seven = CONV("branch7x7x3_2", seven, 192, SAME(1, 7));
    seven = CONV("branch7x7x3_3", seven, 192, SAME(7, 1));
    seven = CONV("branch7x7x3_4", seven, 192, SHRINK(3, 2));
    return CONCAT(net, three, seven, dro_net_max_pool(net, x, SHRINK(3, 2)));
}

/* 8 x 8, the 3x3 as 1x3 beside 3x1 */
static dro_node block_e(dro_net *net, const char *block, dro_node x)
{
    dro_node one = CONV("branch1x1", x, 320, SAME(1, 1));
    dro_node three = CONV("branch3x3_1", x, 384, SAME(1, 1));
    dro_node flat = CONV("branch3x3_2a", three, 384, SAME(1, 3));
    dro_node tall = CONV("branch3x3_2b", three, 384, SAME(3, 1));
    dro_node twice = CONV("branch3x3dbl_1", x, 448, SAME(1, 1));
    twice = CONV("branch3x3dbl_2", twice, 384, SAME(3, 3));
    dro_node twice_flat = CONV("branch3x3dbl_3a", twice, 384, SAME(1, 3));
    dro_node twice_tall = CONV("branch3x3dbl_3b", twice, 384, SAME(3, 1));
    dro_node pool = pooled(net, block, x, 192);
    return CONCAT(net, one, flat, tall, twice_flat, twice_tall, pool);
}

/* On the 768 channels of 17 x 17. */
static void auxiliary(dro_net *net, dro_node x, int32_t outputs)
{
    const char *block = "AuxLogits";
    x = dro_net_avg_pool(net, x, SHRINK(5, 3));
    x = CONV("conv0", x, 128, SAME(1, 1));
    x = CONV("conv1", x, 768, SHRINK(5, 1));
    x = dro_net_linear(net, "AuxLogits.fc", dro_net_global_pool(net, x), outputs);
    dro_net_auxiliary(net, x, 0.4f);
}

/* (x * std + mean - 0.5) / 0.5 */
static dro_node normalised(dro_net *net, dro_node x)
{
    static const float scale[] = {0.229f / 0.5f, 0.224f / 0.5f, 0.225f / 0.5f};
    static const float shift[] = {(0.485f - 0.5f) / 0.5f, (0.456f - 0.5f) / 0.5f,
                                  (0.406f - 0.5f) / 0.5f};
    return dro_net_shape(net).channels == 3 ? dro_net_affine(net, x, scale, shift) : x;
}

static dro_node stem(dro_net *net, dro_node x)
{
    const char *block = "";
    x = CONV("Conv2d_1a_3x3", x, 32, SHRINK(3, 2));
    x = CONV("Conv2d_2a_3x3", x, 32, SHRINK(3, 1));
    x = CONV("Conv2d_2b_3x3", x, 64, SAME(3, 3));
    x = dro_net_max_pool(net, x, SHRINK(3, 2));
    x = CONV("Conv2d_3b_1x1", x, 80, SAME(1, 1));
    x = CONV("Conv2d_4a_3x3", x, 192, SHRINK(3, 1));
    return dro_net_max_pool(net, x, SHRINK(3, 2));
}

static void build(dro_net *net, const char *arguments, int32_t outputs)
{
    dro_model_shape shape = dro_net_shape(net);
    if (arguments[0]) {
        dro__net_wrong(net, DRO_ERR_RANGE, "it takes no numbers after its name");
        return;
    }
    if (shape.height < SIDE_LEAST || shape.width < SIDE_LEAST) {
        dro__net_wrong(net, DRO_ERR_RANGE, "it needs images of at least %d x %d, not %d x %d",
                       SIDE_LEAST, SIDE_LEAST, shape.height, shape.width);
        return;
    }
    dro_node x = stem(net, normalised(net, dro_net_input(net)));
    x = block_a(net, "Mixed_5b", x, 32);
    x = block_a(net, "Mixed_5c", x, 64);
    x = block_a(net, "Mixed_5d", x, 64);
    x = block_b(net, "Mixed_6a", x);
    x = block_c(net, "Mixed_6b", x, 128);
    x = block_c(net, "Mixed_6c", x, 160);
    x = block_c(net, "Mixed_6d", x, 160);
    x = block_c(net, "Mixed_6e", x, 192);
    const dro__graph_node *middle = x < 0 ? NULL : &net->graph.nodes[x];
    if (middle && middle->height >= AUXILIARY_SIDE && middle->width >= AUXILIARY_SIDE)
        auxiliary(net, x, outputs);
    x = block_d(net, "Mixed_7a", x);
    x = block_e(net, "Mixed_7b", x);
    x = block_e(net, "Mixed_7c", x);
    x = dro_net_dropout(net, dro_net_global_pool(net, x), 0.5f);
    dro_net_output(net, dro_net_linear(net, "fc", x, outputs));
}

const dro__model dro__model_inception_v3 = {
    .name = "inception_v3",
    .summary = "torchvision's Inception v3, auxiliary head from 299 x 299",
    .usual = {3, 299, 299, 1000},
    .build = build,
};
