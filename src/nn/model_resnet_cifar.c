/* The ResNets for small images (He et al. 2015, section 4.2): three stages of n basic blocks with
 * 16, 32 and 64 channels, 6n + 2 layers, option-A shortcuts (every second pixel, zero channels on
 * both sides). Tensor names are those of the common PyTorch version: conv1, bn1, layer1.0.conv1,
 * ..., linear. */
#include "nn.h"

#include <stdio.h>

static dro_node block(dro_net *net, int stage, int index, dro_node x, int32_t channels,
                      int32_t stride)
{
    char name[64];
    const char *format = "layer%d.%d.%s";
#define NAME(what) (snprintf(name, sizeof name, format, stage, index, what), name)
    dro_node y = dro_net_conv(net, NAME("conv1"), x, channels, 3, stride, 1);
    y = dro_net_relu(net, dro_net_norm(net, NAME("bn1"), y));
    y = dro_net_conv(net, NAME("conv2"), y, channels, 3, 1, 1);
    y = dro_net_norm(net, NAME("bn2"), y);
#undef NAME
    if (index == 0 && stage > 1)
        x = dro_net_shortcut(net, x, channels, stride);
    return dro_net_relu(net, dro_net_add(net, y, x));
}

static void build(dro_net *net, const char *arguments, int32_t outputs, int blocks)
{
    if (arguments[0]) {
        dro__net_wrong(net, DRO_ERR_RANGE, "it takes no numbers after its name");
        return;
    }
    dro_node x = dro_net_conv(net, "conv1", dro_net_input(net), 16, 3, 1, 1);
    x = dro_net_relu(net, dro_net_norm(net, "bn1", x));
    for (int stage = 1; stage <= 3; stage++)
        for (int k = 0; k < blocks; k++)
            x = block(net, stage, k, x, 8 << stage, stage > 1 && k == 0 ? 2 : 1);
    dro_net_output(net, dro_net_linear(net, "linear", dro_net_global_pool(net, x), outputs));
}

#define RESNET(depth)                                                                              \
    static void build##depth(dro_net *net, const char *arguments, int32_t outputs)                 \
    {                                                                                              \
        build(net, arguments, outputs, ((depth)-2) / 6);                                           \
    }                                                                                              \
    const dro__model dro__model_resnet##depth = {                                                  \
        .name = "resnet" #depth,                                                                   \
        .summary = "CIFAR ResNet of " #depth " layers, option-A shortcuts",                        \
        .usual = {3, 32, 32, 10},                                                                  \
        .build = build##depth,                                                                     \
    };

RESNET(20)
RESNET(32)
RESNET(44)
RESNET(56)
RESNET(110)
