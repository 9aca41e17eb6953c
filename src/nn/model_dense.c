/* Models of fully connected layers: "linear" (one layer) and "mlp:128,64" (hidden layers with
 * ReLU). */
#include "nn.h"

#include <stdio.h>
#include <stdlib.h>

static void linear(dro_net *net, const char *arguments, int32_t outputs)
{
    if (arguments[0]) {
        dro__net_wrong(net, DRO_ERR_RANGE, "it takes no numbers: write just 'linear'");
        return;
    }
    dro_net_output(net, dro_net_linear(net, "fc", dro_net_input(net), outputs));
}

static void mlp(dro_net *net, const char *arguments, int32_t outputs)
{
    const char *at = arguments[0] ? arguments : "128,64";
    dro_node x = dro_net_input(net);
    char name[32];
    for (int layer = 1;; layer++) {
        char *end;
        long width = strtol(at, &end, 10);
        if (end == at || width < 1 || width > 1 << 16 || (*end && *end != ',')) {
            dro__net_wrong(net, DRO_ERR_RANGE,
                           "expected the sizes of the hidden layers, 1 to 65536, as in mlp:128,64");
            return;
        }
        snprintf(name, sizeof name, "fc%d", layer);
        x = dro_net_relu(net, dro_net_linear(net, name, x, (int32_t)width));
        if (!*end)
            break;
        at = end + 1;
    }
    dro_net_output(net, dro_net_linear(net, "fc", x, outputs));
}

const dro__model dro__model_linear = {
    .name = "linear",
    .summary = "one linear layer: logistic regression with cross-entropy",
    .usual = {123, 1, 1, 2},
    .build = linear,
};

const dro__model dro__model_mlp = {
    .name = "mlp",
    .summary = "hidden layers with ReLU, mlp:128,64 by default",
    .usual = {123, 1, 1, 2},
    .build = mlp,
};
