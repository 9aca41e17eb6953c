/* A trained model as a PyTorch module (dro/export.h): a file of Python that has the layers under
 * the names that their tensors have in the weights file, loads that file, and has forward() in a
 * few lines. */
#include "export.h"
#include "scale.h"

#include <dro/export.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct writer {
    const dro__export *from;
    const dro__graph *graph;
    int *readers; /* (nodes) */
    dro__buffer out;
} writer;

/* A text in quotes. */
static void quoted(dro__buffer *b, const char *text)
{
    dro__buffer_add(b, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c; c++)
        if (*c < 0x20 || *c == 0x7f)
            dro__buffer_print(b, "\\x%02x", *c);
        else
            dro__buffer_print(b, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    dro__buffer_add(b, "\"");
}

/* "3" or "(1, 7)" */
static void pair(dro__buffer *b, const int32_t *values)
{
    dro__buffer_print(b, values[0] == values[1] ? "%d" : "(%d, %d)", (int)values[0],
                      (int)values[1]);
}

static void window(dro__buffer *b, const dro_window *w)
{
    pair(b, w->kernel);
    dro__buffer_add(b, ", ");
    pair(b, w->stride);
    dro__buffer_add(b, ", ");
    pair(b, w->pad);
}

static void numbers(dro__buffer *b, const float *values, int32_t count)
{
    for (int32_t k = 0; k < count; k++)
        dro__buffer_print(b, "%s%.9g", k ? ", " : "[", (double)values[k]);
    dro__buffer_add(b, "]");
}

/* ---- layers with tensors ---- */

/* The name of a layer: the names of its tensors without their endings. */
static void layer_name(writer *w, int32_t index)
{
    for (size_t k = 0; k < w->from->net->tensor_count; k++) {
        const dro__net_entry *t = &w->from->net->tensors[k];
        const char *end = strrchr(t->name, '.');
        if (t->node != index || !end)
            continue;
        dro__buffer_print(&w->out, "\"%.*s\"", (int)(end - t->name), t->name);
        return;
    }
}

static bool has_tensors(const dro__graph_node *n)
{
    return n->op == DRO__OP_CONV || n->op == DRO__OP_DEPTHWISE || n->op == DRO__OP_NORM ||
           n->op == DRO__OP_LINEAR || n->op == DRO__OP_COSINE;
}

static void make_layer(writer *w, int32_t index)
{
    const dro__graph_node *n = &w->graph->nodes[index], *in = &w->graph->nodes[n->inputs[0]];
    dro__buffer *b = &w->out;
    dro__buffer_add(b, "        self.put(");
    layer_name(w, index);
    if (n->op == DRO__OP_NORM) {
        dro__buffer_print(b, ", nn.BatchNorm2d(%d, eps=%.6g))\n", (int)n->channels, (double)n->eps);
        return;
    }
    if (n->op == DRO__OP_LINEAR || n->op == DRO__OP_COSINE) {
        dro__buffer_print(b, ", nn.Linear(%zu, %d, bias=%s))\n", dro__node_size(in),
                          (int)n->channels, n->has_bias ? "True" : "False");
        return;
    }
    dro__buffer_print(b, ", nn.Conv2d(%d, %d, ", (int)in->channels, (int)n->channels);
    window(b, &n->window);
    if (n->groups > 1)
        dro__buffer_print(b, ", groups=%d", (int)n->groups);
    dro__buffer_print(b, ", bias=%s))\n", n->has_bias ? "True" : "False");
}

/* x * scale + shift by channel. */
static void make_affine(writer *w, const char *name, const float *scale, const float *shift,
                        int32_t channels)
{
    const float *values[] = {scale, shift};
    static const char *const ends[] = {"scale", "shift"};
    for (int k = 0; k < 2; k++) {
        dro__buffer_print(&w->out, "        self.constant(\"%s_%s\", ", name, ends[k]);
        numbers(&w->out, values[k], channels);
        dro__buffer_add(&w->out, ")\n");
    }
}

static void make_layers(writer *w)
{
    const dro__weights_about *a = &w->from->about;
    char name[32];
    if (a->has_normal && a->shape.channels <= 3)
        make_affine(w, "pixel", a->normal.scale, a->normal.shift, a->shape.channels);
    for (int32_t k = 1; k < w->graph->count; k++) {
        const dro__graph_node *n = &w->graph->nodes[k];
        if (!w->from->needed[k])
            continue;
        snprintf(name, sizeof name, "x%d", (int)k);
        if (n->op == DRO__OP_AFFINE)
            make_affine(w, name, n->scale, n->shift, n->channels);
        else if (has_tensors(n))
            make_layer(w, k);
    }
}

/* ---- forward ---- */

/* Layers that are written into the line of the layer that reads them. */
static bool is_inline(const writer *w, int32_t index)
{
    const dro__graph_node *n = &w->graph->nodes[index];
    return index > 0 && w->readers[index] == 1 && index != w->graph->heads[0] &&
           (n->op == DRO__OP_CONV || n->op == DRO__OP_DEPTHWISE || n->op == DRO__OP_NORM ||
            n->op == DRO__OP_ADD || n->op == DRO__OP_SHORTCUT);
}

static void expression(writer *w, int32_t index);

static void operand(writer *w, int32_t index)
{
    if (is_inline(w, index))
        expression(w, index);
    else
        dro__buffer_print(&w->out, "x%d", (int)index);
}

/* BEFORE operand, operand, ... AFTER */
static void operands(writer *w, const dro__graph_node *n, const char *before, const char *between,
                     const char *after)
{
    dro__buffer_add(&w->out, before);
    for (int k = 0; k < n->input_count; k++) {
        dro__buffer_add(&w->out, k ? between : "");
        operand(w, n->inputs[k]);
    }
    dro__buffer_add(&w->out, after);
}

static void shortcut(writer *w, const dro__graph_node *n)
{
    int32_t more = n->channels - w->graph->nodes[n->inputs[0]].channels, before = more / 2;
    int32_t stride = n->window.stride[0];
    operands(w, n, "F.pad(", "", "");
    dro__buffer_print(&w->out, "[:, :, ::%d, ::%d], (0, 0, 0, 0, %d, %d))", (int)stride,
                      (int)stride, (int)before, (int)(more - before));
}

static void pool(writer *w, const dro__graph_node *n)
{
    operands(w, n, n->op == DRO__OP_MAX_POOL ? "F.max_pool2d(" : "F.avg_pool2d(", "", ", ");
    window(&w->out, &n->window);
    dro__buffer_add(&w->out, ")");
}

static void expression(writer *w, int32_t index)
{
    const dro__graph_node *n = &w->graph->nodes[index];
    dro__buffer *b = &w->out;
    if (n->op == DRO__OP_COSINE) {
        operands(w, n, "", "", ".flatten(1)");
        dro__buffer_print(b, "\n        x%d = %.9g * unit(x%d) @ unit(layer(", (int)index,
                          (double)n->gain, (int)index);
        layer_name(w, index);
        dro__buffer_add(b, ").weight).T");
        return;
    }
    if (has_tensors(n)) {
        dro__buffer_add(b, "layer(");
        layer_name(w, index);
        operands(w, n, ")(", "", n->op == DRO__OP_LINEAR ? ".flatten(1))" : ")");
        return;
    }
    switch (n->op) {
    case DRO__OP_AFFINE:
        operands(w, n, "", "", "");
        dro__buffer_print(b, " * self.x%d_scale + self.x%d_shift", (int)index, (int)index);
        break;
    case DRO__OP_RELU:
        operands(w, n, isinf(n->cap) ? "F.relu(" : "torch.clamp(", "", "");
        if (!isinf(n->cap))
            dro__buffer_print(b, ", 0, %.9g", (double)n->cap);
        dro__buffer_add(b, ")");
        break;
    case DRO__OP_MAX_POOL:
    case DRO__OP_AVG_POOL:
        pool(w, n);
        break;
    case DRO__OP_GLOBAL_POOL:
        operands(w, n, "", "", ".mean((2, 3), keepdim=True)");
        break;
    case DRO__OP_ADD:
        operands(w, n, "", " + ", "");
        break;
    case DRO__OP_CONCAT:
        operands(w, n, "torch.cat([", ", ", "], 1)");
        break;
    case DRO__OP_SHORTCUT:
        shortcut(w, n);
        break;
    case DRO__OP_DROPOUT:
        operands(w, n, "F.dropout(", "", "");
        dro__buffer_print(b, ", %.9g, self.training)", (double)n->rate);
        break;
    case DRO__OP_FLATTEN:
        operands(w, n, "", "", ".flatten(1)");
        break;
    case DRO__OP_INPUT: /* no call: the argument of forward() */
    case DRO__OP_CONV:  /* above */
    case DRO__OP_DEPTHWISE:
    case DRO__OP_NORM:
    case DRO__OP_LINEAR:
    case DRO__OP_COSINE:
    case DRO__OP_COUNT:
    case DRO__OP_FOLD:
    case DRO__OP_ALL:
        break;
    }
}

static void forward(writer *w)
{
    const dro__graph *g = w->graph;
    const dro__weights_about *a = &w->from->about;
    bool pixels = a->has_normal && a->shape.channels <= 3;
    dro__buffer_add(&w->out, "\n    def forward(self, x0):\n"
                             "        layer = self.get_submodule\n");
    if (pixels)
        dro__buffer_add(&w->out, "        x0 = x0 * self.pixel_scale + self.pixel_shift\n");
    for (int32_t k = 1; k < g->count; k++) {
        if (!w->from->needed[k] || is_inline(w, k))
            continue;
        dro__buffer_print(&w->out, "        x%d = ", (int)k);
        expression(w, k);
        dro__buffer_add(&w->out, "\n");
    }
    dro__buffer_print(&w->out, "        return x%d\n", (int)g->heads[0]);
}

/* ---- what is around it ---- */

static void before(writer *w)
{
    const dro__weights_about *a = &w->from->about;
    dro__buffer *b = &w->out;
    bool pixels = a->has_normal && a->shape.channels <= 3;
    dro__buffer_print(b,
                      "\"\"\"%s as a PyTorch module, written by dro export.\n\n"
                      "    net = load(\"weights.safetensors\")\n"
                      "    net.%s(net(x))      # net(x): %s\n\n",
                      a->model, a->classes ? "probabilities" : "value",
                      a->classes ? "logits" : "outputs");
    if (pixels)
        dro__buffer_print(b, "x: pixels 0 to 255, (batch, %d, %d, %d).\"\"\"\n",
                          (int)a->shape.channels, (int)a->shape.height, (int)a->shape.width);
    else
        dro__buffer_print(b,
                          "x: features as the model sees them, (batch, %d): encoded and scaled "
                          "(dro export --onnx\nwrites a model that does this itself).\"\"\"\n",
                          (int)a->shape.channels);
    dro__buffer_add(b, "import torch\nfrom torch import nn\n"
                       "from torch.nn import functional as F\n\n"
                       "CLASSES = [");
    for (int32_t k = 0; k < a->classes; k++) {
        dro__buffer_add(b, k ? ", " : "");
        quoted(b, a->names[k]);
    }
    dro__buffer_add(b, "]\n");
    if (w->graph->nodes[w->graph->heads[0]].op == DRO__OP_COSINE)
        dro__buffer_print(b,
                          "\n\ndef unit(x):\n"
                          "    return x / (x.square().sum(1, keepdim=True) + %.9g).sqrt()\n",
                          (double)DRO__COSINE_EPS);
    dro__buffer_add(b, "\n\nclass Model(nn.Module):\n    def __init__(self):\n"
                       "        super().__init__()\n");
}

/* The classes that dro predict prints: with a threshold not always those of the largest logits. */
static void make_classes(writer *w)
{
    const dro__weights_about *a = &w->from->about;
    dro__buffer *b = &w->out;
    dro__buffer_add(b, "\n    def classes(self, logits):\n"
                       "        \"\"\"The places in CLASSES of what dro predict prints.\"\"\"\n");
    if (!(a->threshold > 0)) {
        dro__buffer_add(b, "        return logits.argmax(1)\n");
        return;
    }
    dro__buffer_print(b,
                      "        others = logits.clone()\n"
                      "        others[:, %d] = -torch.inf\n"
                      "        rare = self.probabilities(logits)[:, %d] >= %.17g  # its threshold\n"
                      "        return others.argmax(1).masked_fill(rare, %d)\n",
                      (int)a->rare, (int)a->rare, a->threshold, (int)a->rare);
}

/* Outputs become probabilities, or values in the target's unit. */
static dro_status behind(writer *w)
{
    const dro__weights_about *a = &w->from->about;
    dro__buffer *b = &w->out;
    if (a->classes == 0) {
        dro__unit unit;
        DRO_TRY(dro__unit_read(w->from->ctx, dro__rows_kept(a->encoding), &unit));
        dro__buffer_print(b,
                          "\n    def value(self, outputs):\n"
                          "        return outputs * %.17g + %.17g\n",
                          unit.scale, unit.centre);
        return DRO_OK;
    }
    dro__buffer_add(b, "\n    def probabilities(self, logits):\n"
                       "        prior = torch.tensor([");
    for (int32_t k = 0; k < a->classes; k++)
        dro__buffer_print(b, "%s%.9g", k ? ", " : "", w->from->shift[k]);
    dro__buffer_add(b, "], dtype=logits.dtype, device=logits.device)\n");
    int link = (int)dro__net_losses[w->graph->loss].link;
    if (link != DRO__LINK_LOGISTIC && link != DRO__LINK_SQUARED) {
        dro__buffer_add(b, "        return torch.softmax(logits + prior, 1)\n");
        make_classes(w);
        return DRO_OK;
    }
    dro__buffer_print(b,
                      "        share = %s(logits) * prior.exp()\n"
                      "        total = share.sum(1, keepdim=True)\n"
                      "        return torch.where(total > 0, share / total, 1 / %d)\n",
                      link == DRO__LINK_LOGISTIC ? "torch.sigmoid" : "F.relu", (int)a->classes);
    make_classes(w);
    return DRO_OK;
}

static const char helpers[] =
    "\n    def put(self, name, layer):\n"
    "        \"\"\"Registers a layer under a name with dots.\"\"\"\n"
    "        *path, last = name.split(\".\")\n"
    "        module = self\n"
    "        for part in path:\n"
    "            if part not in module._modules:\n"
    "                module.add_module(part, nn.Module())\n"
    "            module = module._modules[part]\n"
    "        module.add_module(last, layer)\n"
    "\n    def constant(self, name, values):\n"
    "        self.register_buffer(name, torch.tensor(values).view(1, -1, 1, 1), persistent=False)\n"
    "\n\ndef load(path):\n"
    "    from safetensors.torch import load_file\n"
    "    net = Model()\n"
    "    missing, _ = net.load_state_dict(load_file(path), strict=False)\n"
    "    missing = [name for name in missing if not name.endswith(\".num_batches_tracked\")]\n"
    "    if missing:\n"
    "        raise KeyError(f\"{path} has no {', '.join(missing)}\")\n"
    "    return net.eval()\n";

static dro_status write(writer *w, const char *path)
{
    const dro__graph *g = w->graph;
    for (int32_t k = 1; k < g->count; k++)
        for (int i = 0; w->from->needed[k] && i < g->nodes[k].input_count; i++)
            w->readers[g->nodes[k].inputs[i]]++;
    before(w);
    make_layers(w);
    forward(w);
    DRO_TRY(behind(w));
    dro__buffer_add(&w->out, helpers);
    if (w->out.failed)
        return dro__fail(w->from->ctx, DRO_ERR_MEMORY, "no memory to export a model");
    return dro__write_file(w->from->ctx, path, w->out.bytes, w->out.size);
}

dro_status dro_export_torch(dro_context *ctx, const char *weights, const char *path)
{
    dro__export from;
    if (!ctx || !weights || !path)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    DRO_TRY(dro__export_open(ctx, weights, false, &from));
    writer w = {.from = &from, .graph = &from.net->graph};
    w.readers = dro__alloc((size_t)w.graph->count, sizeof *w.readers);
    dro_status status =
        w.readers ? write(&w, path) : dro__fail(ctx, DRO_ERR_MEMORY, "no memory to export a model");
    dro__buffer_free(&w.out);
    dro__free(w.readers);
    dro__export_close(&from);
    return status;
}
