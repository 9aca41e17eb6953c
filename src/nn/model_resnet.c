/* The ResNets for large images (He et al. 2015), layer by layer as torchvision has them: a 7x7 stem
 * and a 3x3 max pool, four stages, and in the bottleneck the stride on the 3x3 ("ResNet v1.5"; the
 * paper has it on the first 1x1). Tensor names are torchvision's: conv1, bn1, layer1.0.conv1, ...,
 * layer2.0.downsample.0 (its convolution) and .1 (its norm), fc. Any input size works. */
#include "nn.h"

#include <stdio.h>

enum { STAGES = 4, BOTTLENECK = 4 /* times the channels of its 3x3 */ };

/* The block being built: the prefix of its names, and its kind of convolutions. */
typedef struct block {
    dro_net *net;
    char prefix[32]; /* "layer3.0." */
} block;

/* Convolution k of a block and its norm. */
static dro_node conv_norm(const block *b, int k, dro_node x, int32_t channels, int32_t kernel,
                          int32_t stride)
{
    char name[64];
    snprintf(name, sizeof name, "%sconv%d", b->prefix, k);
    x = dro_net_conv(b->net, name, x, channels, kernel, stride, kernel / 2);
    snprintf(name, sizeof name, "%sbn%d", b->prefix, k);
    return dro_net_norm(b->net, name, x);
}

/* The shortcut of a block whose output has another shape than its input. */
static dro_node downsample(const block *b, dro_node x, int32_t channels, int32_t stride)
{
    char name[64];
    snprintf(name, sizeof name, "%sdownsample.0", b->prefix);
    x = dro_net_conv(b->net, name, x, channels, 1, stride, 0);
    snprintf(name, sizeof name, "%sdownsample.1", b->prefix);
    return dro_net_norm(b->net, name, x);
}

static dro_node basic(const block *b, dro_node x, int32_t width, int32_t stride)
{
    dro_node y = dro_net_relu(b->net, conv_norm(b, 1, x, width, 3, stride));
    return conv_norm(b, 2, y, width, 3, 1);
}

static dro_node bottleneck(const block *b, dro_node x, int32_t width, int32_t stride)
{
    dro_node y = dro_net_relu(b->net, conv_norm(b, 1, x, width, 1, 1));
    y = dro_net_relu(b->net, conv_norm(b, 2, y, width, 3, stride));
    return conv_norm(b, 3, y, BOTTLENECK * width, 1, 1);
}

static dro_node stem(dro_net *net, dro_node x)
{
    const dro_window pool = {{3, 3}, {2, 2}, {1, 1}};
    x = dro_net_conv(net, "conv1", x, 64, 7, 2, 3);
    x = dro_net_relu(net, dro_net_norm(net, "bn1", x));
    return dro_net_max_pool(net, x, &pool);
}

static void build(dro_net *net, const char *arguments, int32_t outputs, const int *blocks,
                  bool deep)
{
    if (arguments[0]) {
        dro__net_wrong(net, DRO_ERR_RANGE, "it takes no numbers after its name");
        return;
    }
    dro_node x = stem(net, dro_net_input(net));
    for (int stage = 0; stage < STAGES; stage++)
        for (int k = 0; k < blocks[stage]; k++) {
            int32_t width = 64 << stage, stride = stage > 0 && k == 0 ? 2 : 1;
            block b = {.net = net};
            snprintf(b.prefix, sizeof b.prefix, "layer%d.%d.", stage + 1, k);
            dro_node y = deep ? bottleneck(&b, x, width, stride) : basic(&b, x, width, stride);
            if (k == 0 && (stage > 0 || deep))
                x = downsample(&b, x, deep ? BOTTLENECK * width : width, stride);
            x = dro_net_relu(net, dro_net_add(net, y, x));
        }
    dro_net_output(net, dro_net_linear(net, "fc", dro_net_global_pool(net, x), outputs));
}

#define RESNET(depth, deep, what, ...)                                                             \
    static void build##depth(dro_net *net, const char *arguments, int32_t outputs)                 \
    {                                                                                              \
        static const int blocks[STAGES] = {__VA_ARGS__};                                           \
        build(net, arguments, outputs, blocks, deep);                                              \
    }                                                                                              \
    const dro__model dro__model_resnet##depth = {                                                  \
        .name = "resnet" #depth,                                                                   \
        .summary = "torchvision's ResNet of " #depth " layers, " what " blocks",                   \
        .usual = {3, 224, 224, 1000},                                                              \
        .build = build##depth,                                                                     \
    };

RESNET(18, false, "basic", 2, 2, 2, 2)
RESNET(34, false, "basic", 3, 4, 6, 3)
RESNET(50, true, "bottleneck", 3, 4, 6, 3)
RESNET(101, true, "bottleneck", 3, 4, 23, 3)
RESNET(152, true, "bottleneck", 3, 8, 36, 3)
