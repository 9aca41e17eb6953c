/* The builder: each call checks shapes and appends one node. Errors are reported by
 * dro_net_ready(). */
#include "nn.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SIDE_MAX = 1 << 16, CHANNELS_MAX = 1 << 20, NODES_MAX = 1 << 16 };
static const double TENSOR_MAX = 0x1p40; /* numbers in one: products of shapes stay below 2^63 */

dro_node dro__net_wrong(dro_net *net, dro_status status, const char *format, ...)
{
    if (net->failed != DRO_OK)
        return -1;
    va_list args;
    va_start(args, format);
    vsnprintf(net->error, sizeof net->error, format, args);
    va_end(args);
    net->failed = status;
    return -1;
}

dro_status dro_net_create(dro_context *ctx, int32_t channels, int32_t height, int32_t width,
                          dro_net **net)
{
    if (!ctx || !net)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    *net = NULL;
    if (channels < 1 || channels > CHANNELS_MAX || height < 1 || height > SIDE_MAX || width < 1 ||
        width > SIDE_MAX)
        return dro__fail(ctx, DRO_ERR_RANGE, "a network's input cannot be %d x %d x %d", channels,
                         height, width);
    dro_net *made = dro__alloc(1, sizeof *made);
    if (!made)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a network");
    made->ctx = ctx;
    made->graph.heads[0] = made->graph.heads[1] = -1;
    const dro__param_row *const tables[DRO__TABLE_MAX] = {dro__params_net};
    dro_status status = dro__params_reset(ctx, tables, &made->set);
    if (status == DRO_OK) {
        made->node_capacity = 64;
        made->graph.nodes = dro__alloc((size_t)made->node_capacity, sizeof *made->graph.nodes);
        status =
            made->graph.nodes ? DRO_OK : dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a network");
    }
    if (status != DRO_OK) {
        dro_net_destroy(made);
        return status;
    }
    made->graph.nodes[0] = (dro__graph_node){.op = DRO__OP_INPUT,
                                             .channels = channels,
                                             .height = height,
                                             .width = width,
                                             .weight = -1,
                                             .bias = -1,
                                             .running = -1};
    made->graph.count = 1;
    *net = made;
    return DRO_OK;
}

dro_node dro_net_input(dro_net *net)
{
    return net ? 0 : -1;
}

/* ---- nodes and tensors ---- */

/* Is x a node of this network, and may nodes still be added? */
static bool usable(dro_net *net, dro_node x)
{
    if (!net || net->failed != DRO_OK)
        return false;
    if (net->ready) {
        dro__net_wrong(net, DRO_ERR_STATE, "the network is ready: no layer can be added");
        return false;
    }
    if (x < 0 || x >= net->graph.count) {
        dro__net_wrong(net, DRO_ERR_ARGUMENT, "layer %d takes node %d, which does not exist",
                       net->graph.count, x);
        return false;
    }
    return true;
}

/* A node with the shape of its input; the caller changes what differs, then appends it. */
static dro__graph_node follow(const dro_net *net, dro__op op, dro_node x)
{
    const dro__graph_node *from = &net->graph.nodes[x];
    return (dro__graph_node){.op = op,
                             .input_count = 1,
                             .inputs = {x},
                             .channels = from->channels,
                             .height = from->height,
                             .width = from->width,
                             .weight = -1,
                             .bias = -1,
                             .running = -1};
}

static dro_node append(dro_net *net, const dro__graph_node *node)
{
    if (node->channels < 1 || node->height < 1 || node->width < 1 || node->channels > CHANNELS_MAX)
        return dro__net_wrong(net, DRO_ERR_RANGE,
                              "layer %d would give %d x %d x %d: use a larger input",
                              net->graph.count, node->channels, node->height, node->width);
    if (net->graph.count >= NODES_MAX)
        return dro__net_wrong(net, DRO_ERR_RANGE, "more than %d layers", NODES_MAX);
    if (net->graph.count == net->node_capacity) {
        size_t capacity = 2 * (size_t)net->node_capacity;
        dro__graph_node *more = dro__alloc(capacity, sizeof *more);
        if (!more)
            return dro__net_wrong(net, DRO_ERR_MEMORY, "no memory for a network");
        memcpy(more, net->graph.nodes, (size_t)net->graph.count * sizeof *more);
        dro__free(net->graph.nodes);
        net->graph.nodes = more;
        net->node_capacity = (int32_t)capacity;
    }
    net->graph.nodes[net->graph.count] = *node;
    return net->graph.count++;
}

/* One tensor of the node to be appended next. place STATISTICS or WEIGHTS; freezing comes later. */
static bool add_tensor(dro_net *net, const char *layer, const char *what, dro__tensor_place place,
                       int rank, const int64_t d[4])
{
    double size = (double)d[0] * (double)d[1] * (double)d[2] * (double)d[3];
    if (size > TENSOR_MAX)
        return dro__net_wrong(net, DRO_ERR_RANGE, "'%s' would have %.3g parameters", layer, size),
               false;
    if (net->tensor_count == net->tensor_capacity) {
        size_t capacity = net->tensor_capacity ? 2 * net->tensor_capacity : 64;
        dro__net_entry *more = dro__alloc(capacity, sizeof *more);
        if (!more)
            return dro__net_wrong(net, DRO_ERR_MEMORY, "no memory for a network"), false;
        if (net->tensor_count)
            memcpy(more, net->tensors, net->tensor_count * sizeof *more);
        dro__free(net->tensors);
        net->tensors = more;
        net->tensor_capacity = capacity;
    }
    size_t length = strlen(layer) + strlen(what) + 2;
    char *name = dro__alloc(length, 1);
    if (!name)
        return dro__net_wrong(net, DRO_ERR_MEMORY, "no memory for a network"), false;
    snprintf(name, length, "%s.%s", layer, what);
    for (size_t k = 0; k < net->tensor_count; k++)
        if (strcmp(net->tensors[k].name, name) == 0) {
            dro__net_wrong(net, DRO_ERR_NAME, "two layers are called '%s'", layer);
            dro__free(name);
            return false;
        }
    net->tensors[net->tensor_count++] =
        (dro__net_entry){.name = name,
                         .rank = rank,
                         .shape = {d[0], d[1], d[2], d[3]},
                         .node = net->graph.count,
                         .count = (size_t)(d[0] * d[1] * d[2] * d[3]),
                         .place = place};
    return true;
}

static bool named(dro_net *net, const char *name)
{
    if (name && name[0])
        return true;
    dro__net_wrong(net, DRO_ERR_ARGUMENT, "layer %d has parameters and no name", net->graph.count);
    return false;
}

/* ---- layers ---- */

/* Output side of a window over an input side; 0 when it does not fit. */
static int32_t windowed(int32_t in, int32_t kernel, int32_t stride, int32_t pad)
{
    int32_t left = in + 2 * pad - kernel;
    return left < 0 ? 0 : left / stride + 1;
}

static bool set_window(dro_net *net, dro__graph_node *node, const dro_window *window)
{
    for (int k = 0; window && k < 2; k++)
        if (window->kernel[k] < 1 || window->kernel[k] > SIDE_MAX || window->stride[k] < 1 ||
            window->stride[k] > SIDE_MAX || window->pad[k] < 0 ||
            window->pad[k] >= window->kernel[k])
            window = NULL;
    if (!window) {
        dro__net_wrong(
            net, DRO_ERR_RANGE,
            "layer %d: a window needs kernel and stride of at least 1, and padding below "
            "the kernel's size",
            net->graph.count);
        return false;
    }
    node->window = *window;
    node->height = windowed(node->height, window->kernel[0], window->stride[0], window->pad[0]);
    node->width = windowed(node->width, window->kernel[1], window->stride[1], window->pad[1]);
    return true;
}

/* A convolution: the node has its channels and groups, and still the size of its input. */
static dro_node convolve(dro_net *net, const char *name, dro__graph_node *node,
                         const dro_window *window, bool bias)
{
    int64_t channels = node->channels, in = net->graph.nodes[node->inputs[0]].channels;
    node->has_bias = bias;
    if (!set_window(net, node, window))
        return -1;
    if (channels < 1 || channels > CHANNELS_MAX)
        return dro__net_wrong(net, DRO_ERR_RANGE, "'%s' cannot have %d channels", name,
                              node->channels);
    if (!add_tensor(
            net, name, "weight", DRO__IN_WEIGHTS, 4,
            (int64_t[]){channels, in / node->groups, window->kernel[0], window->kernel[1]}) ||
        (bias &&
         !add_tensor(net, name, "bias", DRO__IN_WEIGHTS, 1, (int64_t[]){channels, 1, 1, 1})))
        return -1;
    return append(net, node);
}

dro_node dro_net_conv_window(dro_net *net, const char *name, dro_node x, int32_t channels,
                             const dro_window *window, bool bias)
{
    if (!usable(net, x) || !named(net, name))
        return -1;
    dro__graph_node node = follow(net, DRO__OP_CONV, x);
    node.channels = channels;
    node.groups = 1;
    return convolve(net, name, &node, window, bias);
}

dro_node dro_net_depthwise(dro_net *net, const char *name, dro_node x, const dro_window *window,
                           bool bias)
{
    if (!usable(net, x) || !named(net, name))
        return -1;
    dro__graph_node node = follow(net, DRO__OP_DEPTHWISE, x);
    node.groups = node.channels;
    return convolve(net, name, &node, window, bias);
}

dro_node dro_net_conv(dro_net *net, const char *name, dro_node x, int32_t channels, int32_t kernel,
                      int32_t stride, int32_t pad)
{
    dro_window window = {{kernel, kernel}, {stride, stride}, {pad, pad}};
    return dro_net_conv_window(net, name, x, channels, &window, false);
}

dro_node dro_net_norm_eps(dro_net *net, const char *name, dro_node x, float eps)
{
    if (!usable(net, x) || !named(net, name))
        return -1;
    if (!(eps > 0) || !isfinite((double)eps))
        return dro__net_wrong(net, DRO_ERR_RANGE, "'%s' needs eps above 0", name);
    dro__graph_node node = follow(net, DRO__OP_NORM, x);
    node.eps = eps;
    node.has_bias = true;
    int64_t c = node.channels;
    if (!add_tensor(net, name, "weight", DRO__IN_WEIGHTS, 1, (int64_t[]){c, 1, 1, 1}) ||
        !add_tensor(net, name, "bias", DRO__IN_WEIGHTS, 1, (int64_t[]){c, 1, 1, 1}) ||
        !add_tensor(net, name, "running_mean", DRO__IN_STATISTICS, 1, (int64_t[]){c, 1, 1, 1}) ||
        !add_tensor(net, name, "running_var", DRO__IN_STATISTICS, 1, (int64_t[]){c, 1, 1, 1}))
        return -1;
    return append(net, &node);
}

dro_node dro_net_norm(dro_net *net, const char *name, dro_node x)
{
    return dro_net_norm_eps(net, name, x, 1e-5f);
}

static dro_node relu(dro_net *net, dro_node x, float cap)
{
    if (!usable(net, x))
        return -1;
    dro__graph_node node = follow(net, DRO__OP_RELU, x);
    node.cap = cap;
    return append(net, &node);
}

dro_node dro_net_relu(dro_net *net, dro_node x)
{
    return relu(net, x, INFINITY);
}

dro_node dro_net_relu6(dro_net *net, dro_node x)
{
    return relu(net, x, 6);
}

static dro_node pool(dro_net *net, dro__op op, dro_node x, const dro_window *window)
{
    if (!usable(net, x))
        return -1;
    dro__graph_node node = follow(net, op, x);
    if (!set_window(net, &node, window))
        return -1;
    for (int k = 0; k < 2; k++)
        if (2 * window->pad[k] > window->kernel[k])
            return dro__net_wrong(net, DRO_ERR_RANGE,
                                  "layer %d: a pooling's padding is at most half its kernel",
                                  net->graph.count);
    return append(net, &node);
}

dro_node dro_net_max_pool(dro_net *net, dro_node x, const dro_window *window)
{
    return pool(net, DRO__OP_MAX_POOL, x, window);
}

dro_node dro_net_avg_pool(dro_net *net, dro_node x, const dro_window *window)
{
    return pool(net, DRO__OP_AVG_POOL, x, window);
}

dro_node dro_net_global_pool(dro_net *net, dro_node x)
{
    if (!usable(net, x))
        return -1;
    dro__graph_node node = follow(net, DRO__OP_GLOBAL_POOL, x);
    node.height = node.width = 1;
    return append(net, &node);
}

dro_node dro_net_add(dro_net *net, dro_node x, dro_node y)
{
    if (!usable(net, x) || !usable(net, y))
        return -1;
    dro__graph_node node = follow(net, DRO__OP_ADD, x);
    const dro__graph_node *other = &net->graph.nodes[y];
    if (other->channels != node.channels || other->height != node.height ||
        other->width != node.width)
        return dro__net_wrong(net, DRO_ERR_RANGE, "layer %d adds %d x %d x %d to %d x %d x %d",
                              net->graph.count, other->channels, other->height, other->width,
                              node.channels, node.height, node.width);
    node.input_count = 2;
    node.inputs[1] = y;
    return append(net, &node);
}

dro_node dro_net_concat(dro_net *net, const dro_node *x, int count)
{
    if (!net || net->failed != DRO_OK)
        return -1;
    if (!x || count < 1 || count > DRO__NODE_INPUTS)
        return dro__net_wrong(net, DRO_ERR_RANGE, "layer %d: 1 to %d inputs can be concatenated",
                              net->graph.count, DRO__NODE_INPUTS);
    for (int k = 0; k < count; k++)
        if (!usable(net, x[k]))
            return -1;
    dro__graph_node node = follow(net, DRO__OP_CONCAT, x[0]);
    node.input_count = count;
    node.channels = 0;
    for (int k = 0; k < count; k++) {
        const dro__graph_node *from = &net->graph.nodes[x[k]];
        if (from->height != node.height || from->width != node.width)
            return dro__net_wrong(net, DRO_ERR_RANGE, "layer %d concatenates %d x %d with %d x %d",
                                  net->graph.count, node.height, node.width, from->height,
                                  from->width);
        node.inputs[k] = x[k];
        node.channels += from->channels;
    }
    return append(net, &node);
}

dro_node dro_net_flatten(dro_net *net, dro_node x)
{
    if (!usable(net, x))
        return -1;
    dro__graph_node node = follow(net, DRO__OP_FLATTEN, x);
    size_t size = dro__node_size(&node);
    if (size > CHANNELS_MAX)
        return dro__net_wrong(net, DRO_ERR_RANGE,
                              "layer %d would flatten to %zu numbers, at most %d", net->graph.count,
                              size, CHANNELS_MAX);
    node.channels = (int32_t)size;
    node.height = node.width = 1;
    return append(net, &node);
}

dro_node dro_net_linear(dro_net *net, const char *name, dro_node x, int32_t outputs)
{
    if (!usable(net, x) || !named(net, name))
        return -1;
    if (net->graph.nodes[x].height != 1 || net->graph.nodes[x].width != 1)
        x = dro_net_flatten(net, x);
    if (!usable(net, x))
        return -1;
    if (outputs < 1 || outputs > DRO__OUTPUTS_MAX)
        return dro__net_wrong(net, DRO_ERR_RANGE, "'%s' cannot have %d outputs", name, outputs);
    dro__graph_node node = follow(net, DRO__OP_LINEAR, x);
    if (!add_tensor(net, name, "weight", DRO__IN_WEIGHTS, 2,
                    (int64_t[]){outputs, node.channels, 1, 1}) ||
        !add_tensor(net, name, "bias", DRO__IN_WEIGHTS, 1, (int64_t[]){outputs, 1, 1, 1}))
        return -1;
    node.channels = outputs;
    node.has_bias = true;
    return append(net, &node);
}

dro_node dro_net_dropout(dro_net *net, dro_node x, float rate)
{
    if (!usable(net, x))
        return -1;
    if (!(rate >= 0 && rate < 1))
        return dro__net_wrong(net, DRO_ERR_RANGE, "layer %d: dropout of %g, expected 0 to below 1",
                              net->graph.count, (double)rate);
    dro__graph_node node = follow(net, DRO__OP_DROPOUT, x);
    node.rate = rate;
    return append(net, &node);
}

dro_node dro_net_shortcut(dro_net *net, dro_node x, int32_t channels, int32_t stride)
{
    if (!usable(net, x))
        return -1;
    dro__graph_node node = follow(net, DRO__OP_SHORTCUT, x);
    if (stride < 1 || channels < node.channels || (channels - node.channels) % 2)
        return dro__net_wrong(net, DRO_ERR_RANGE,
                              "layer %d: a shortcut from %d channels to %d with stride %d is not "
                              "possible: the channels are padded by the same number on both sides",
                              net->graph.count, node.channels, channels, stride);
    dro_window every = {{1, 1}, {stride, stride}, {0, 0}};
    node.channels = channels;
    if (!set_window(net, &node, &every))
        return -1;
    return append(net, &node);
}

dro_node dro_net_affine(dro_net *net, dro_node x, const float *scale, const float *shift)
{
    if (!usable(net, x))
        return -1;
    dro__graph_node node = follow(net, DRO__OP_AFFINE, x);
    size_t count = (size_t)node.channels;
    float *both = scale && shift ? dro__alloc(2 * count, sizeof *both) : NULL;
    if (!both)
        return dro__net_wrong(net, scale && shift ? DRO_ERR_MEMORY : DRO_ERR_ARGUMENT,
                              "layer %d needs a scale and a shift per channel", net->graph.count);
    memcpy(both, scale, count * sizeof *both);
    memcpy(both + count, shift, count * sizeof *both);
    node.scale = both;
    node.shift = both + count;
    dro_node made = append(net, &node);
    if (made < 0)
        dro__free(both);
    return made;
}

/* ---- heads ---- */

static bool is_head(dro_net *net, dro_node logits)
{
    if (!usable(net, logits))
        return false;
    const dro__graph_node *node = &net->graph.nodes[logits];
    if (node->height == 1 && node->width == 1 && node->channels <= DRO__OUTPUTS_MAX)
        return true;
    dro__net_wrong(net, DRO_ERR_RANGE,
                   "an output of %d x %d x %d: expected a flat one of at most %d", node->channels,
                   node->height, node->width, DRO__OUTPUTS_MAX);
    return false;
}

void dro_net_output(dro_net *net, dro_node logits)
{
    if (is_head(net, logits))
        net->graph.heads[0] = logits;
}

void dro_net_auxiliary(dro_net *net, dro_node logits, float weight)
{
    if (!is_head(net, logits))
        return;
    if (!(weight >= 0) || !isfinite((double)weight)) {
        dro__net_wrong(net, DRO_ERR_RANGE, "an auxiliary head's weight must be at least 0");
        return;
    }
    net->graph.heads[1] = logits;
    net->graph.auxiliary_weight = weight;
}
