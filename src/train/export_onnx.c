/* A trained model as ONNX (dro/export.h): the layers of its graph one by one, with what is around
 * them: normalisation or the columns' encoding before, the loss's probabilities behind. */
#include "export.h"
#include "onnx.h"
#include "scale.h"

#include <dro/export.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 64 };

typedef struct exporter {
    dro_context *ctx;
    const dro__export *from;
    const dro__weights_about *about;
    const dro_net *net;
    dro__buffer graph;
} exporter;

static const char *value(char out[NAME], int32_t node)
{
    snprintf(out, NAME, "layer.%d", node);
    return out;
}

static void node(exporter *e, const char *op, const char *const *inputs, const char *output)
{
    dro__onnx_node(&e->graph, op, inputs, output, NULL);
}

/* The probabilities that the loss makes of outputs. */
static dro__link link_of(const exporter *e)
{
    if (e->net)
        return dro__net_losses[e->net->graph.loss].link;
    return strcmp(e->about->loss, "squared") == 0 ? DRO__LINK_SQUARED : DRO__LINK_SOFTMAX;
}

/* ---- before the network ---- */

/* x * scale + shift by channel, (1, channels, 1, 1). */
static void affine(exporter *e, const char *from, const char *to, const float *scale,
                   const float *shift, int64_t channels)
{
    char names[3][NAME + 16];
    static const char *const parts[] = {"scale", "scaled", "shift"};
    for (int k = 0; k < 3; k++)
        snprintf(names[k], sizeof names[k], "%s.%s", to, parts[k]);
    dro__onnx_constant(&e->graph, names[0], DRO__INTS(1, channels, 1, 1), 4, scale);
    dro__onnx_constant(&e->graph, names[2], DRO__INTS(1, channels, 1, 1), 4, shift);
    node(e, "Mul", DRO__NAMES(from, names[0]), names[1]);
    node(e, "Add", DRO__NAMES(names[1], names[2]), to);
}

/* x up to the limit L, beyond it L (2 - L/|x|) with its sign (dro__limited). */
static void limited_rows(exporter *e)
{
    static const char *const names[] = {"limit", "limit_twice", "limit_squared"};
    const float limit[] = {DRO__LIMIT, 2 * DRO__LIMIT, DRO__LIMIT * DRO__LIMIT};
    for (int k = 0; k < 3; k++)
        dro__onnx_constant(&e->graph, names[k], DRO__INTS(1, 1), 2, &limit[k]);
    node(e, "Abs", DRO__NAMES("scaled"), "size");
    node(e, "LessOrEqual", DRO__NAMES("size", "limit"), "within");
    node(e, "Div", DRO__NAMES("limit_squared", "size"), "ratio");
    node(e, "Sub", DRO__NAMES("limit_twice", "ratio"), "rest");
    node(e, "Sign", DRO__NAMES("scaled"), "sign");
    node(e, "Mul", DRO__NAMES("sign", "rest"), "beyond");
    node(e, "Where", DRO__NAMES("within", "scaled", "beyond"), "rows");
}

/* Rows whose columns were scaled: (x - centre) * factor, limited (scale.h). Sparse rows are not
 * centred, and columns that training did not have get the factor of the rest. */
static dro_status scaled_rows(exporter *e, const char *kept)
{
    dro__scale s;
    dro__buffer *g = &e->graph;
    size_t features = (size_t)e->about->shape.channels;
    DRO_TRY(dro__scale_read(e->ctx, kept, &s));
    float *factor = dro__alloc(features, sizeof *factor);
    bool fits = s.dense ? s.features == features : s.features <= features;
    if (!fits || !factor) {
        dro__scale_free(&s);
        dro__free(factor);
        return fits ? dro__fail(e->ctx, DRO_ERR_MEMORY, "no memory for the columns")
                    : dro__fail(e->ctx, DRO_ERR_DATA,
                                "the encoding in the weights file is damaged: expected a number "
                                "for each column");
    }
    for (size_t k = 0; k < features; k++)
        factor[k] = k < s.features ? s.factor[k] : s.rest;
    const int64_t *shape = DRO__INTS(1, (int64_t)features);
    dro__onnx_constant(g, "factor", shape, 2, factor);
    if (s.dense) {
        dro__onnx_constant(g, "centre", shape, 2, s.centre);
        node(e, "Sub", DRO__NAMES(":features", "centre"), "away");
    }
    node(e, "Mul", DRO__NAMES(s.dense ? "away" : ":features", "factor"),
         s.limited ? "scaled" : "rows");
    if (s.limited)
        limited_rows(e);
    dro__scale_free(&s);
    dro__free(factor);
    return DRO_OK;
}

/* The network's input; *name is the value it reads. */
static dro_status input(exporter *e, const char **name)
{
    const dro__weights_about *a = e->about;
    const dro_model_shape *s = &a->shape;
    size_t columns = 0;
    if (a->has_normal && s->channels <= 3) {
        dro__onnx_input(&e->graph, ":pixels", DRO__ONNX_FLOAT,
                        DRO__INTS(s->channels, s->height, s->width), 3);
        affine(e, ":pixels", "normalised", a->normal.scale, a->normal.shift, s->channels);
        *name = "normalised";
        return DRO_OK;
    }
    DRO_TRY(dro__export_columns(e->ctx, a->encoding, &e->graph, &columns));
    const char *kept = columns ? NULL : dro__rows_kept(a->encoding);
    kept = kept && strncmp(kept, "scale ", 6) == 0 ? kept : NULL;
    *name = kept ? "rows" : columns ? "features" : ":features";
    if (columns)
        return DRO_OK;
    if (s->height == 1 && s->width == 1)
        dro__onnx_input(&e->graph, ":features", DRO__ONNX_FLOAT, DRO__INTS(s->channels), 1);
    else
        dro__onnx_input(&e->graph, ":features", DRO__ONNX_FLOAT,
                        DRO__INTS(s->channels, s->height, s->width), 3);
    return kept ? scaled_rows(e, kept) : DRO_OK;
}

/* ---- layers ---- */

/* The names of a layer's tensors, which become constants of the graph. */
enum { WEIGHT, BIAS, MEAN, VARIANCE, TENSORS };

static void tensors(exporter *e, int32_t index, const char *names[TENSORS])
{
    static const char *const ends[] = {".weight", ".bias", ".running_mean", ".running_var"};
    memset(names, 0, TENSORS * sizeof *names);
    for (size_t k = 0; k < e->net->tensor_count; k++) {
        const dro__net_entry *t = &e->net->tensors[k];
        size_t length = strlen(t->name);
        for (int w = 0; t->node == index && w < TENSORS; w++) {
            size_t end = strlen(ends[w]);
            if (length < end || strcmp(t->name + length - end, ends[w]) != 0)
                continue;
            const float *places[] = {[DRO__IN_WEIGHTS] = e->net->weights,
                                     [DRO__IN_FROZEN] = e->net->frozen,
                                     [DRO__IN_STATISTICS] = e->from->statistics};
            names[w] = t->name;
            dro__onnx_constant(&e->graph, t->name, t->shape, t->rank, places[t->place] + t->offset);
        }
    }
}

static dro__buffer window(const dro__graph_node *n)
{
    dro__buffer a = {0};
    const dro_window *w = &n->window;
    dro__onnx_ints(&a, "kernel_shape", DRO__INTS(w->kernel[0], w->kernel[1]), 2);
    dro__onnx_ints(&a, "strides", DRO__INTS(w->stride[0], w->stride[1]), 2);
    dro__onnx_ints(&a, "pads", DRO__INTS(w->pad[0], w->pad[1], w->pad[0], w->pad[1]), 4);
    return a;
}

static void with_weights(exporter *e, int32_t index, const char *x, const char *y)
{
    const dro__graph_node *n = &e->net->graph.nodes[index];
    const char *t[TENSORS];
    dro__buffer a = {0};
    char flat[NAME + 16];
    tensors(e, index, t);
    if (n->op == DRO__OP_NORM) {
        dro__onnx_float(&a, "epsilon", n->eps);
        dro__onnx_node(&e->graph, "BatchNormalization",
                       DRO__NAMES(x, t[WEIGHT], t[BIAS], t[MEAN], t[VARIANCE]), y, &a);
    } else if (n->op == DRO__OP_LINEAR) {
        snprintf(flat, sizeof flat, "%s.flat", y);
        dro__onnx_int(&a, "axis", 1);
        dro__onnx_node(&e->graph, "Flatten", DRO__NAMES(x), flat, &a);
        a = (dro__buffer){0};
        dro__onnx_int(&a, "transB", 1);
        dro__onnx_node(&e->graph, "Gemm", DRO__NAMES(flat, t[WEIGHT], t[BIAS]), y, &a);
    } else {
        a = window(n);
        dro__onnx_int(&a, "group", n->groups ? n->groups : 1);
        dro__onnx_node(&e->graph, "Conv", DRO__NAMES(x, t[WEIGHT], t[BIAS]), y, &a);
    }
}

/* Rows divided by their lengths; opset 13 has the axes of ReduceSumSquare as an attribute. */
static void unit(exporter *e, const char *x, const char *y)
{
    static const char *const parts[] = {"squares", "more", "sum", "length"};
    static const float eps = DRO__COSINE_EPS;
    char names[4][NAME + 32];
    dro__buffer a = {0};
    for (int k = 0; k < 4; k++)
        snprintf(names[k], sizeof names[k], "%s.%s", y, parts[k]);
    dro__onnx_ints(&a, "axes", DRO__INTS(1), 1);
    dro__onnx_int(&a, "keepdims", 1);
    dro__onnx_node(&e->graph, "ReduceSumSquare", DRO__NAMES(x), names[0], &a);
    dro__onnx_constant(&e->graph, names[1], NULL, 0, &eps);
    node(e, "Add", DRO__NAMES(names[0], names[1]), names[2]);
    node(e, "Sqrt", DRO__NAMES(names[2]), names[3]);
    node(e, "Div", DRO__NAMES(x, names[3]), y);
}

static void cosine(exporter *e, int32_t index, const char *x, const char *y)
{
    const dro__graph_node *n = &e->net->graph.nodes[index];
    static const char *const parts[] = {"flat", "x", "w"};
    const char *t[TENSORS];
    char names[3][NAME + 16];
    dro__buffer a = {0};
    tensors(e, index, t);
    for (int k = 0; k < 3; k++)
        snprintf(names[k], sizeof names[k], "%s.%s", y, parts[k]);
    dro__onnx_int(&a, "axis", 1);
    dro__onnx_node(&e->graph, "Flatten", DRO__NAMES(x), names[0], &a);
    unit(e, names[0], names[1]);
    unit(e, t[WEIGHT], names[2]);
    a = (dro__buffer){0};
    dro__onnx_int(&a, "transB", 1);
    dro__onnx_float(&a, "alpha", n->gain);
    dro__onnx_node(&e->graph, "Gemm", DRO__NAMES(names[1], names[2]), y, &a);
}

/* Every stride-th pixel, zero channels on both sides. */
static void shortcut(exporter *e, int32_t index, const char *x, const char *y)
{
    const dro__graph_node *n = &e->net->graph.nodes[index];
    int64_t more = n->channels - e->net->graph.nodes[n->inputs[0]].channels, before = more / 2;
    static const char *const parts[] = {"from", "to", "axes", "steps", "pads", "fewer"};
    char names[6][NAME + 16];
    for (int k = 0; k < 6; k++)
        snprintf(names[k], sizeof names[k], "%s.%s", y, parts[k]);
    int64_t stride = n->window.stride[0];
    dro__onnx_constant_ints(&e->graph, names[0], DRO__INTS(0, 0), 2);
    dro__onnx_constant_ints(&e->graph, names[1], DRO__INTS(INT32_MAX, INT32_MAX), 2);
    dro__onnx_constant_ints(&e->graph, names[2], DRO__INTS(2, 3), 2);
    dro__onnx_constant_ints(&e->graph, names[3], DRO__INTS(stride, stride), 2);
    dro__onnx_constant_ints(&e->graph, names[4], DRO__INTS(0, before, 0, 0, 0, more - before, 0, 0),
                            8);
    node(e, "Slice", DRO__NAMES(x, names[0], names[1], names[2], names[3]), names[5]);
    node(e, "Pad", DRO__NAMES(names[5], names[4]), y);
}

static void relu(exporter *e, const dro__graph_node *n, const char *x, const char *y)
{
    char low[NAME + 16], high[NAME + 16];
    if (isinf(n->cap)) {
        node(e, "Relu", DRO__NAMES(x), y);
        return;
    }
    snprintf(low, sizeof low, "%s.low", y);
    snprintf(high, sizeof high, "%s.high", y);
    dro__onnx_constant(&e->graph, low, NULL, 0, &(float){0});
    dro__onnx_constant(&e->graph, high, NULL, 0, &n->cap);
    node(e, "Clip", DRO__NAMES(x, low, high), y);
}

static void pool(exporter *e, const dro__graph_node *n, const char *x, const char *y)
{
    dro__buffer a = window(n);
    if (n->op == DRO__OP_AVG_POOL)
        dro__onnx_int(&a, "count_include_pad", 1);
    dro__onnx_node(&e->graph, n->op == DRO__OP_AVG_POOL ? "AveragePool" : "MaxPool", DRO__NAMES(x),
                   y, &a);
}

static void concat(exporter *e, const char *const *inputs, const char *y)
{
    dro__buffer a = {0};
    dro__onnx_int(&a, "axis", 1);
    dro__onnx_node(&e->graph, "Concat", inputs, y, &a);
}

static void layer(exporter *e, int32_t index, const char *first)
{
    const dro__graph_node *n = &e->net->graph.nodes[index];
    char names[DRO__NODE_INPUTS][NAME], y[NAME];
    const char *inputs[DRO__NODE_INPUTS + 1] = {NULL};
    for (int k = 0; k < n->input_count; k++)
        inputs[k] = n->inputs[k] == 0 ? first : value(names[k], n->inputs[k]);
    value(y, index);
    switch (n->op) {
    case DRO__OP_AFFINE:
        affine(e, inputs[0], y, n->scale, n->shift, n->channels);
        break;
    case DRO__OP_CONV:
    case DRO__OP_DEPTHWISE:
    case DRO__OP_NORM:
    case DRO__OP_LINEAR:
        with_weights(e, index, inputs[0], y);
        break;
    case DRO__OP_COSINE:
        cosine(e, index, inputs[0], y);
        break;
    case DRO__OP_RELU:
        relu(e, n, inputs[0], y);
        break;
    case DRO__OP_MAX_POOL:
    case DRO__OP_AVG_POOL:
        pool(e, n, inputs[0], y);
        break;
    case DRO__OP_CONCAT:
        concat(e, inputs, y);
        break;
    case DRO__OP_SHORTCUT:
        shortcut(e, index, inputs[0], y);
        break;
    case DRO__OP_GLOBAL_POOL:
        node(e, "GlobalAveragePool", inputs, y);
        break;
    case DRO__OP_ADD:
        node(e, "Add", inputs, y);
        break;
    case DRO__OP_FLATTEN:
        node(e, "Flatten", inputs, y);
        break;
    case DRO__OP_DROPOUT:
        node(e, "Identity", inputs, y);
        break;
    case DRO__OP_INPUT: /* no node */
    case DRO__OP_COUNT:
    case DRO__OP_FOLD:
    case DRO__OP_ALL:
        break;
    }
}

/* ---- the linear model on sparse rows ---- */

/* The classes' margins: <x, w> for the second of two and 0 for the first; with the squared loss,
 * whose margin is -1 or 1, the probabilities (1 - <x, w>)/2 and (1 + <x, w>)/2 themselves. */
static dro_status sparse_rows(exporter *e)
{
    const dro__weights_about *a = e->about;
    size_t features, width = (size_t)a->shape.channels, outputs = (size_t)a->shape.outputs;
    size_t bias = dro__kept_bias(dro__rows_kept(a->encoding));
    DRO_TRY(dro__export_columns(e->ctx, a->encoding, &e->graph, &features));
    if (features + (bias != 0) != width || (bias && bias != features))
        return dro__fail(e->ctx, DRO_ERR_DATA,
                         "the weights file is damaged: it has columns of %zu features and weights "
                         "of %zu",
                         features, width);
    bool pair = e->from->heads < outputs, halves = pair && link_of(e) == DRO__LINK_SQUARED;
    float *w = dro__alloc(outputs * features + 1, sizeof *w);
    float *b = dro__alloc(outputs, sizeof *b);
    e->graph.failed = e->graph.failed || !w || !b;
    for (size_t k = 0; w && b && k < outputs; k++) {
        const float *from = e->from->rows + (pair ? 0 : k * width);
        float sign = pair ? (float)k - (halves ? 0.5f : 0.0f) : 1.0f;
        for (size_t j = 0; j < features; j++)
            w[k * features + j] = sign * from[j];
        b[k] = (bias ? sign * from[features] : 0.0f) + (halves ? 0.5f : 0.0f);
    }
    if (w && b) {
        dro__onnx_constant(&e->graph, "fc.weight", DRO__INTS((int64_t)outputs, (int64_t)features),
                           2, w);
        dro__onnx_constant(&e->graph, "fc.bias", DRO__INTS((int64_t)outputs), 1, b);
    }
    dro__buffer turned = {0};
    dro__onnx_int(&turned, "transB", 1);
    dro__onnx_node(&e->graph, "Gemm", DRO__NAMES("features", "fc.weight", "fc.bias"), "margins",
                   &turned);
    dro__free(w);
    dro__free(b);
    return DRO_OK;
}

/* ---- behind the network ---- */

/* Values to be normalised over the classes: all above 0, or equal if none is. */
static void shares(exporter *e, const char *from)
{
    float none = 0, same = 1.0f / (float)e->about->classes;
    dro__onnx_constant_ints(&e->graph, "classes_axis", DRO__INTS(1), 1);
    dro__onnx_constant(&e->graph, "nothing", NULL, 0, &none);
    dro__onnx_constant(&e->graph, "same_share", NULL, 0, &same);
    node(e, "ReduceSum", DRO__NAMES(from, "classes_axis"), "all_shares");
    node(e, "Equal", DRO__NAMES("all_shares", "nothing"), "no_share");
    node(e, "Div", DRO__NAMES(from, "all_shares"), "share");
    node(e, "Where", DRO__NAMES("no_share", "same_share", "share"), ":probabilities");
}

/* The shift that gives the probabilities the training data's prior: added to logits or, with by =
 * "Mul", as factors. */
static const char *with_prior(exporter *e, const char *from, const char *by)
{
    int32_t classes = e->about->classes;
    const double *shift = e->from->shift;
    float *values = dro__alloc((size_t)classes, sizeof *values);
    bool any = false;
    e->graph.failed = e->graph.failed || !values;
    for (int32_t k = 0; values && k < classes; k++) {
        any = any || shift[k] != 0;
        values[k] = (float)(strcmp(by, "Mul") == 0 ? exp(shift[k]) : shift[k]);
    }
    if (any) {
        dro__onnx_constant(&e->graph, "prior", DRO__INTS(1, classes), 2, values);
        node(e, by, DRO__NAMES(from, "prior"), "with_prior");
    }
    dro__free(values);
    return any ? "with_prior" : from;
}

/* The values whose largest is the class: the logits or, with a threshold, the logits with that of
 * the rare class far above all others where its probability is at least the threshold, and far
 * below elsewhere. */
static const char *decisive(exporter *e, const char *logits)
{
    const dro__weights_about *a = e->about;
    const float NEVER = 2; /* no probability */
    float *from = dro__alloc((size_t)a->classes, sizeof *from);
    float *below = dro__alloc((size_t)a->classes, sizeof *below);
    e->graph.failed = e->graph.failed || !from || !below;
    if (a->threshold > 0 && from && below) {
        for (int32_t k = 0; k < a->classes; k++) {
            from[k] = k == a->rare ? (float)a->threshold : NEVER;
            below[k] = k == a->rare ? -FLT_MAX : 0;
        }
        const int64_t *shape = DRO__INTS(1, a->classes);
        dro__onnx_constant(&e->graph, "threshold", shape, 2, from);
        dro__onnx_constant(&e->graph, "rare_below", shape, 2, below);
        dro__onnx_constant(&e->graph, "far", NULL, 0, &(float){FLT_MAX});
        node(e, "GreaterOrEqual", DRO__NAMES(":probabilities", "threshold"), "is_rare");
        node(e, "Add", DRO__NAMES(logits, "rare_below"), "others");
        node(e, "Where", DRO__NAMES("is_rare", "far", "others"), "decisive");
    }
    dro__free(from);
    dro__free(below);
    return a->threshold > 0 ? "decisive" : logits;
}

static dro_status output(exporter *e, const char *logits)
{
    const dro__weights_about *a = e->about;
    dro__buffer axis = {0}, best = {0};
    if (a->classes == 0) {
        dro__unit unit;
        DRO_TRY(dro__unit_read(e->ctx, dro__rows_kept(a->encoding), &unit));
        float numbers[] = {(float)unit.scale, (float)unit.centre};
        dro__onnx_constant(&e->graph, "target_scale", DRO__INTS(1, 1), 2, &numbers[0]);
        dro__onnx_constant(&e->graph, "target_centre", DRO__INTS(1, 1), 2, &numbers[1]);
        node(e, "Mul", DRO__NAMES(logits, "target_scale"), "measured");
        node(e, "Add", DRO__NAMES("measured", "target_centre"), ":value");
        dro__onnx_output(&e->graph, ":value", DRO__ONNX_FLOAT, DRO__INTS(a->shape.outputs), 1);
        return DRO_OK;
    }
    switch (link_of(e)) {
    case DRO__LINK_LOGISTIC:
        node(e, "Sigmoid", DRO__NAMES(logits), "each");
        shares(e, with_prior(e, "each", "Mul"));
        break;
    case DRO__LINK_SQUARED:
        node(e, "Relu", DRO__NAMES(logits), "each");
        shares(e, with_prior(e, "each", "Mul"));
        break;
    default:
        dro__onnx_int(&axis, "axis", 1);
        dro__onnx_node(&e->graph, "Softmax", DRO__NAMES(with_prior(e, logits, "Add")),
                       ":probabilities", &axis);
    }
    dro__onnx_int(&best, "axis", 1);
    dro__onnx_int(&best, "keepdims", 0);
    dro__onnx_node(&e->graph, "ArgMax", DRO__NAMES(decisive(e, logits)), "best", &best);
    dro__onnx_constant_texts(&e->graph, "class_names", (const char *const *)a->names,
                             (size_t)a->classes);
    node(e, "Gather", DRO__NAMES("class_names", "best"), ":label");
    dro__onnx_output(&e->graph, ":probabilities", DRO__ONNX_FLOAT, DRO__INTS(a->classes), 1);
    dro__onnx_output(&e->graph, ":label", DRO__ONNX_STRING, NULL, 0);
    return DRO_OK;
}

/* ---- all of it ---- */

static dro_status network(exporter *e)
{
    if (!e->net) {
        DRO_TRY(sparse_rows(e));
        return output(e, "margins");
    }
    const dro__graph *g = &e->net->graph;
    const char *first;
    char logits[NAME];
    DRO_TRY(input(e, &first));
    for (int32_t k = 1; k < g->count; k++)
        if (e->from->needed[k])
            layer(e, k, first);
    return output(e, value(logits, g->heads[0]));
}

/* What dro predict makes of an image's file before it is an input (augment.c, image_files.c). */
static const char *resize_text(const exporter *e, char text[160])
{
    const dro__weights_about *a = e->about;
    int size = a->shape.height, shorter = (int)floor(size * 256.0 / 224 + 0.5);
    bool square = a->has_normal && a->shape.channels <= 3 && a->shape.height == a->shape.width;
    if (square && a->files)
        snprintf(text, 160,
                 "shorter side to %d, the middle %d x %d; bilinear with antialiasing (Pillow)",
                 shorter, size, size);
    else if (square && a->arrays)
        snprintf(text, 160,
                 "the largest square in the middle to %d x %d; bilinear with antialiasing (Pillow)",
                 size, size);
    else
        return NULL;
    return text;
}

static dro_status export(exporter *e, const char *path)
{
    dro__buffer file = {0};
    char text[160];
    const char *resize = resize_text(e, text);
    DRO_TRY(network(e));
    dro__onnx_model(&file, &e->graph, e->about->model,
                    DRO__NAMES("dro.model", e->about->model, "dro.loss", e->about->loss,
                               resize ? "dro.resize" : NULL, resize));
    dro_status status = file.failed
                            ? dro__fail(e->ctx, DRO_ERR_MEMORY, "no memory to export a model")
                            : dro__write_file(e->ctx, path, file.bytes, file.size);
    dro__buffer_free(&file);
    return status;
}

dro_status dro_export_onnx(dro_context *ctx, const char *weights, const char *path)
{
    dro__export from;
    if (!ctx || !weights || !path)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    DRO_TRY(dro__export_open(ctx, weights, true, &from));
    exporter e = {.ctx = ctx, .from = &from, .about = &from.about, .net = from.net};
    dro_status status = export(&e, path);
    dro__buffer_free(&e.graph);
    dro__export_close(&from);
    return status;
}
