/* A network for small images that trains in seconds on a processor: four convolutions, halving the
 * side three times, and one linear layer. 57 thousand parameters at 3 x 32 x 32. */
#include "nn.h"

#include <stdio.h>

static void glyphnet(dro_net *net, const char *arguments, int32_t outputs)
{
    static const int32_t channels[] = {16, 32, 48, 64}, strides[] = {2, 2, 1, 2};
    if (arguments[0]) {
        dro__net_wrong(net, DRO_ERR_RANGE, "it takes no numbers after its name");
        return;
    }
    dro_node x = dro_net_input(net);
    for (int k = 0; k < 4; k++) {
        char name[16];
        snprintf(name, sizeof name, "conv%d", k + 1);
        x = dro_net_conv(net, name, x, channels[k], 3, strides[k], 1);
        snprintf(name, sizeof name, "bn%d", k + 1);
        x = dro_net_relu(net, dro_net_norm(net, name, x));
    }
    dro_net_output(net, dro_net_linear(net, "fc", dro_net_flatten(net, x), outputs));
}

const dro__model dro__model_glyphnet = {
    .name = "glyphnet",
    .summary = "four convolutions for small images; trains in seconds on a CPU",
    .usual = {3, 32, 32, 10},
    .build = glyphnet,
};
