/* Compiles a graph into a program: which layers become one operation, and in which form values are
 * stored. */
#include "net.h"

#include <stdatomic.h>

static atomic_int alive;

int dro__networks_alive(void)
{
    return atomic_load(&alive);
}

static const dro__traits *traits_of(dro__op op)
{
    return &dro__gpu_layers[op].traits;
}

/* ---- how convolutions read their input ---- */

/* Our own convolutions are for small images. On larger ones cuDNN's use the tensor cores better. */
enum { OWN_AREA = 32 * 32 };

static bool fits_conv3(const dro__graph *g, const dro__graph_node *node, int in)
{
    const dro_window *k = &node->window;
    const dro__graph_node *from = &g->nodes[node->inputs[0]];
    return g->precision != DRO__FP32 && !g->only_cudnn && k->kernel[0] == 3 && k->kernel[1] == 3 &&
           k->pad[0] == 1 && k->pad[1] == 1 && k->stride[0] == k->stride[1] &&
           from->height * from->width <= OWN_AREA &&
           dro__gpu_conv3_fits(g->precision == DRO__BF16, in, node->channels, k->stride[0]);
}

/* Whether a convolution reads its image folded: see fold.cu. */
static bool folds(const dro__graph *g, const dro__graph_node *node)
{
    enum { FOLDED_MOST = 16, OWN = 16 };
    const dro__graph_node *from = &g->nodes[node->inputs[0]];
    return node->op == DRO__OP_CONV && node->window.stride[0] == 2 && node->window.stride[1] == 2 &&
           (from->op == DRO__OP_INPUT || from->op == DRO__OP_AFFINE) && !from->grad &&
           4 * from->channels <= FOLDED_MOST && !fits_conv3(g, node, OWN);
}

/* The height (k = 0) or width (k = 1) of a folded kernel. */
static int32_t folded_side(const dro__graph_node *node, int k)
{
    return (node->window.pad[k] % 2 + node->window.kernel[k] + 1) / 2;
}

/* How many channels a value with few of them should have in memory: 16 if only our own convolutions
 * read it, 16 bytes if other convolutions do too, and no padding if anything else reads it (in
 * place of an affine layer, its readers count). All readers in the graph count, even those that a
 * program leaves out, because both programs use the same packed weights. */
static int padded(const dro__graph *g, int32_t value)
{
    enum { OWN = 16, WORD = 16 };
    const dro__graph_node *v = &g->nodes[value];
    int word = WORD / (g->precision == DRO__BF16 ? 2 : 4), wanted = OWN;
    for (int32_t i = 0; i < g->count; i++) {
        const dro__graph_node *node = &g->nodes[i];
        for (int k = 0; k < node->input_count; k++) {
            if (node->inputs[k] != value)
                continue;
            int to = v->channels;
            if (node->op == DRO__OP_AFFINE)
                to = padded(g, i);
            else if (node->op == DRO__OP_CONV && !folds(g, node))
                to = fits_conv3(g, node, OWN) ? OWN : word;
            wanted = to < wanted ? to : wanted;
        }
    }
    bool image = v->height * v->width > 1 && wanted > v->channels;
    return image ? wanted : v->channels;
}

/* ---- callbacks of the lowering ---- */

static void pad(dro__gvalue *v, int stored)
{
    v->stored = stored;
    v->size = (size_t)stored * (size_t)v->extent.height * (size_t)v->extent.width;
}

static void complete_value(dro__program *base, int32_t index)
{
    dro__gvalue *v = &((dro__gprogram *)base)->values[index];
    bool input = index < base->graph->count && base->graph->nodes[index].op == DRO__OP_INPUT;
    v->extent = (dro__extent){v->base.channels, v->base.height, v->base.width};
    v->whole = v->filler = -1;
    if (input && v->extent.height * v->extent.width == 1)
        v->base.form = DRO__FLOATS; /* rows stay in floats */
    pad(v, input ? padded(base->graph, index) : v->extent.channels);
}

static dro_status complete_operation(dro__program *p, dro__operation *op)
{
    const dro__gpu_layer *layer = &dro__gpu_layers[op->op];
    return layer->make ? layer->make((dro__gprogram *)p, (dro__gop *)op) : DRO_OK;
}

/* The value that a convolution reads: its input, or the folded image of it. */
static int32_t folded(dro__program *p, const dro__graph_node *node, int32_t value)
{
    const dro__gvalue *v = &((dro__gprogram *)p)->values[value];
    if (!folds(p->graph, node))
        return value;
    dro__value made = {.channels = 4 * v->extent.channels,
                       .height = node->height + folded_side(node, 0) - 1,
                       .width = node->width + folded_side(node, 1) - 1,
                       .form = v->base.form};
    int word = made.form ? 8 : 4;
    dro__gop *op = (dro__gop *)dro__program_insert(p, DRO__OP_FOLD, value, &made);
    pad(&((dro__gprogram *)p)->values[op->base.end], (made.channels + word - 1) / word * word);
    op->window = node->window;
    return op->base.end;
}

dro_status dro__gconv_make(dro__gprogram *p, dro__gop *op)
{
    const dro__graph *g = p->base.graph;
    const dro__graph_node *node = op->base.node;
    const dro__gvalue *in = &p->values[op->base.in[0].value];
    op->window = node->window;
    op->folded = folds(g, node);
    for (int k = 0; op->folded && k < 2; k++) {
        op->window.kernel[k] = folded_side(node, k);
        op->window.stride[k] = 1;
        op->window.pad[k] = 0;
    }
    op->own = fits_conv3(g, node, in->stored);
    op->bands = op->own && g->precision == DRO__BF16 &&
                dro__gpu_conv3_bands_fit(in->stored, node->channels, node->window.stride[0],
                                         in->extent.height, in->extent.width);
    return DRO_OK;
}

static dro_status complete_tail(dro__program *p, dro__tail *base, const dro__operation *op)
{
    enum { ARRAYS = 7 };
    dro__gtail *tail = (dro__gtail *)base;
    dro__numbers *n = &tail->numbers;
    size_t each = DRO__PARTS * (size_t)op->node->channels;
    float *all = n->mean = dro__cuda_alloc(ARRAYS * each, sizeof *all);
    if (!all)
        return dro__fail(p->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
    float **arrays[ARRAYS] = {&n->mean, &n->inverse, &n->scale, &n->shift, &n->p, &n->q, &n->r};
    n->channels = op->node->channels;
    for (size_t k = 0; k < ARRAYS; k++)
        *arrays[k] = all + k * each;
    return DRO_OK;
}

/* ---- values that are not stored, or stored elsewhere ---- */

/* Finds the values that one of our own convolutions computes when it reads them. Those without a
 * residual and without another reader are not stored (lazy); the others are stored by that
 * convolution. */
static void find_lazy(dro__gprogram *p)
{
    for (int32_t i = 0; i < p->base.operation_count; i++) {
        dro__gvalue *v = &p->values[p->ops[i].base.end];
        const dro__gtail *tail = v->base.tail < 0 ? NULL : &p->tails[v->base.tail];
        const dro__gop *first = v->base.first < 0 ? NULL : &p->ops[v->base.first];
        if (!tail || !tail->base.deferred || !tail->base.conv || !dro__conv3_knows(tail) ||
            !first || !first->own || first->base.in[0].value != p->ops[i].base.end)
            continue;
        const dro__gvalue *residual = tail->base.residual < 0 ? v : &p->values[tail->base.residual];
        v->lazy = tail->base.residual < 0 && v->base.readers == 1;
        if (!v->lazy && residual->stored == residual->extent.channels)
            v->filler = v->base.first;
    }
}

/* Whether an operation can write its value, and read its slope, with a stride. */
static bool may_be_slice(const dro__gprogram *p, const dro__gop *op)
{
    const dro__gvalue *v = &p->values[op->base.end];
    if (op->own || v->lazy || v->filler >= 0)
        return false;
    if (v->base.tail < 0)
        return dro__gpu_layers[op->base.op].strided;
    const dro__gtail *tail = &p->tails[v->base.tail]; /* its z is stored elsewhere */
    if (tail->base.residual >= 0 &&
        tail->base.cap == 0) /* the slope is passed on to the residual unchanged */
        return false;
    return tail->base.norm || tail->base.cap > 0 || tail->base.residual >= 0 ||
           tail->base.conv->has_bias;
}

/* A value that only a concatenation reads is written directly into the result. */
static void find_slices(dro__gprogram *p)
{
    for (int32_t i = 0; i < p->base.operation_count; i++) {
        const dro__gop *op = &p->ops[i];
        if (op->base.op != DRO__OP_CONCAT)
            continue;
        for (int k = 0, at = 0; k < op->base.input_count; k++) {
            dro__gvalue *v = &p->values[op->base.in[k].value];
            if (v->base.readers == 1 && v->base.maker >= 0 &&
                v->base.form == p->values[op->base.end].base.form &&
                v->stored == v->extent.channels && may_be_slice(p, &p->ops[v->base.maker]))
                v->whole = op->base.end, v->at = at;
            at += v->extent.channels;
        }
    }
}

/* Allocates one block for the sums of all tails: those of the forward pass, those of the backward
 * pass, then the latter over all ranks. */
static dro_status make_sums(dro__cuda_network *net, dro__gprogram *p)
{
    size_t count = 0;
    p->tail_scratch = dro__cuda_alloc(DRO__TAIL_SCRATCH, 1);
    if (!p->tail_scratch)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
    for (int pass = 0; pass < 2; pass++) {
        count = 0;
        for (int32_t k = 0; k < p->base.tail_count; k++) {
            dro__numbers *n = &p->tails[k].numbers;
            if (n->channels > DRO__TAIL_CHANNELS)
                return dro__fail(net->ctx, DRO_ERR_RANGE,
                                 "a layer of %d channels: the cuda backend takes %d at most",
                                 n->channels, (int)DRO__TAIL_CHANNELS);
            if (pass)
                n->sums = p->sums + count, n->all = n->back = p->back + count,
                n->scratch = p->tail_scratch;
            count += 2 * 2 * DRO__PARTS * (size_t)n->channels; /* each sum is two doubles */
        }
        if (pass)
            break;
        p->sums = dro__cuda_alloc(3 * count + 1, sizeof(double));
        if (!p->sums)
            return dro__fail(net->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
        p->back = p->sums + count;
    }
    p->sums_bytes = count * sizeof(double);
    return DRO_OK;
}

dro_status dro__gprogram_create(dro__cuda_network *net, bool training)
{
    static const dro__lowering lowering = {.value_size = sizeof(dro__gvalue),
                                           .tail_size = sizeof(dro__gtail),
                                           .operation_size = sizeof(dro__gop),
                                           .extra = 2, /* a conversion and a folded image */
                                           .traits = traits_of,
                                           .value = complete_value,
                                           .operation = complete_operation,
                                           .tail = complete_tail,
                                           .input = folded};
    dro__gprogram *p = &net->program[training];
    p->counted = training;
    atomic_fetch_add(&alive, training ? 1 : 0);
    p->base = (dro__program){.ctx = net->ctx,
                             .net = net,
                             .graph = net->graph,
                             .lowering = &lowering,
                             .training = training,
                             .form_most = net->bf16 ? DRO__BF16_VALUES : DRO__FLOATS};
    dro_status status = dro__program_begin(&p->base);
    p->values = p->base.values;
    p->tails = p->base.tails;
    p->ops = p->base.operations;
    if (status == DRO_OK)
        status = dro__program_lower(&p->base);
    if (status != DRO_OK)
        return status;
    find_lazy(p);
    find_slices(p);
    return make_sums(net, p);
}

void dro__gprogram_destroy(dro__gprogram *p)
{
    atomic_fetch_sub(&alive, p->counted ? 1 : 0);
    for (int32_t k = 0; k < p->base.tail_count; k++)
        dro__cuda_free(p->tails[k].numbers.mean); /* one block for all arrays */
    dro__cuda_free(p->sums);
    dro__cuda_free(p->tail_scratch);
    dro__cuda_free(p->memory);
    dro__program_end(&p->base);
}
