/* MobileNetV2 (Sandler et al. 2018), layer by layer as torchvision has it: blocks of a 1x1
 * convolution to `expand` times the channels, a depthwise 3x3 and a 1x1 back to few channels
 * without a ReLU; ReLU6 elsewhere. Tensor names are torchvision's: features.0.0,
 * features.2.conv.1.0, ..., features.18.1, classifier.1. Any input size works. */
#include "nn.h"

#include <stdio.h>

/* A convolution, depthwise when channels is 0, and its norm: features.NUMBER followed by conv and
 * norm. */
typedef struct unit {
    dro_net *net;
    int number;
    const char *conv, *norm;
} unit;

static dro_node conv_norm(const unit *u, dro_node x, int32_t channels, int32_t kernel,
                          int32_t stride)
{
    const dro_window window = {{kernel, kernel}, {stride, stride}, {kernel / 2, kernel / 2}};
    char name[40];
    snprintf(name, sizeof name, "features.%d.%s", u->number, u->conv);
    x = channels ? dro_net_conv_window(u->net, name, x, channels, &window, false)
                 : dro_net_depthwise(u->net, name, x, &window, false);
    snprintf(name, sizeof name, "features.%d.%s", u->number, u->norm);
    return dro_net_norm(u->net, name, x);
}

/* Blocks of the same size. */
typedef struct stage {
    int32_t expand, channels, blocks, stride; /* stride: of the first */
} stage;

/* An inverted residual block of the stage, with `in` channels before it. */
static dro_node block(dro_net *net, int number, dro_node x, int32_t in, const stage *s,
                      int32_t stride)
{
    int32_t expand = s->expand, out = s->channels;
    const unit wide = {net, number, "conv.0.0", "conv.0.1"},
               deep = {net, number, "conv.1.0", "conv.1.1"},
               last = {net, number, "conv.2", "conv.3"},
               plain_last = {net, number, "conv.1", "conv.2"};
    dro_node y = x;
    if (expand > 1)
        y = dro_net_relu6(net, conv_norm(&wide, y, expand * in, 1, 1));
    y = dro_net_relu6(net, conv_norm(expand > 1 ? &deep : &wide, y, 0, 3, stride));
    y = conv_norm(expand > 1 ? &last : &plain_last, y, out, 1, 1);
    return stride == 1 && in == out ? dro_net_add(net, x, y) : y;
}

static void build(dro_net *net, const char *arguments, int32_t outputs)
{
    static const stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                   {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
    enum { STAGES = sizeof stages / sizeof stages[0], STEM = 32, LAST = 1280 };
    if (arguments[0]) {
        dro__net_wrong(net, DRO_ERR_RANGE, "it takes no numbers after its name");
        return;
    }
    unit u = {net, 0, "0", "1"};
    dro_node x = dro_net_relu6(net, conv_norm(&u, dro_net_input(net), STEM, 3, 2));
    int32_t in = STEM;
    for (const stage *s = stages; s < stages + STAGES; s++)
        for (int k = 0; k < s->blocks; k++, in = s->channels)
            x = block(net, ++u.number, x, in, s, k ? 1 : s->stride);
    u.number++;
    x = dro_net_relu6(net, conv_norm(&u, x, LAST, 1, 1));
    x = dro_net_dropout(net, dro_net_global_pool(net, x), 0.2f);
    dro_net_output(net, dro_net_linear(net, "classifier.1", x, outputs));
}

const dro__model dro__model_mobilenet_v2 = {
    .name = "mobilenet_v2",
    .summary = "torchvision's MobileNetV2, depthwise convolutions and ReLU6",
    .usual = {3, 224, 224, 1000},
    .build = build,
};
