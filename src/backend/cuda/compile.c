/* From a graph to a program: which layers become one operation, and in which form their values are. */
#include "net.h"

#include <stdatomic.h>
#include <string.h>

static atomic_int alive;

int dro__networks_alive(void)
{
    return atomic_load(&alive);
}

typedef struct compiler {
    dro__cuda_network *net;
    const dro__graph *graph;
    dro__gprogram *out;
    bool *needed;
    int32_t *readers;   /* (count) how many needed nodes read it */
    int32_t *reader;    /* (count) one of them */
    int32_t *begin;     /* (count) the first node of the chain that ends here, -1: inside of one */
    int32_t *converted; /* (value room) the same value in the other form, -1 */
} compiler;

static void find_needed(compiler *c)
{
    const dro__graph *g = c->graph;
    for (int h = 0; h < (c->out->training ? DRO__HEADS : 1); h++)
        if (g->heads[h] >= 0)
            c->needed[g->heads[h]] = true;
    for (int32_t i = g->count - 1; i >= 0; i--)
        for (int k = 0; c->needed[i] && k < g->nodes[i].input_count; k++) {
            int32_t from = g->nodes[i].inputs[k];
            c->needed[from] = true;
            c->readers[from]++;
            c->reader[from] = i;
        }
    for (int h = 0; h < DRO__HEADS; h++) /* a head is read from outside too */
        if (g->heads[h] >= 0)
            c->readers[g->heads[h]]++;
}

static bool ends_chain(const dro__node *node)
{
    return node->op == DRO__OP_CONV || node->op == DRO__OP_NORM || node->op == DRO__OP_ADD ||
           node->op == DRO__OP_RELU;
}

/* Grows the chain that begins at a convolution or a norm as far as one reader after another allows. */
static void grow_chain(compiler *c, int32_t first, dro__gtail *tail)
{
    const dro__graph *g = c->graph;
    int32_t at = first;
    while (c->readers[at] == 1 && !tail->relu) {
        int32_t next = c->reader[at];
        const dro__node *node = &g->nodes[next];
        if (node->op == DRO__OP_NORM && !tail->norm && tail->residual < 0) {
            tail->norm = node;
        } else if (node->op == DRO__OP_ADD && tail->residual < 0) {
            int32_t other = node->inputs[0] == at ? node->inputs[1] : node->inputs[0];
            if (other >= at && ends_chain(&g->nodes[other]))
                break; /* the later of two chains takes the sum */
            tail->residual = other;
        } else if (node->op == DRO__OP_RELU) {
            tail->relu = true;
        } else {
            break;
        }
        c->begin[at] = -1;
        at = next;
    }
    c->begin[at] = first;
}

/* ---- values ---- */

static dro__gvalue value_of(int32_t channels, int32_t height, int32_t width, bool bf16)
{
    return (dro__gvalue){.extent = {channels, height, width},
                         .stored = channels,
                         .size = (size_t)channels * (size_t)height * (size_t)width,
                         .bf16 = bf16,
                         .whole = -1,
                         .tail = -1,
                         .op = -1,
                         .filler = -1};
}

/* Whether a node's value is bfloat16. */
static bool narrow(const compiler *c, const dro__node *node)
{
    if (!c->net->bf16)
        return false;
    switch (node->op) {
    case DRO__OP_INPUT:
        return node->height * node->width > 1;
    case DRO__OP_CONV:
        return true;
    case DRO__OP_LINEAR:
    case DRO__OP_FLATTEN:
    case DRO__OP_GLOBAL_POOL:
        return false;
    default:
        for (int k = 0; k < node->input_count; k++)
            if (c->out->values[node->inputs[k]].bf16)
                return true;
        return false;
    }
}

static dro__gop *next_op(compiler *c, dro__gkind kind, int32_t end)
{
    dro__gop *op = &c->out->ops[c->out->op_count++];
    *op = (dro__gop){.kind = kind, .end = end};
    return op;
}

/* The value as bfloat16 (0: float; 2: flat floats in the parameters' order). */
static int32_t in_form(compiler *c, int32_t value, int form)
{
    dro__gvalue *v = &c->out->values[value];
    bool flat = v->extent.height * v->extent.width == 1;
    if (form == 2 ? flat && !v->bf16 : v->bf16 == (form == 1))
        return value;
    if (c->converted[value] >= 0 && c->out->values[c->converted[value]].bf16 == (form == 1))
        return c->converted[value];
    int32_t made = c->out->value_count++;
    dro__gvalue *to = &c->out->values[made];
    *to = form == 2 ? value_of((int32_t)v->size, 1, 1, false)
                    : value_of(v->extent.channels, v->extent.height, v->extent.width, form == 1);
    to->wants = v->wants;
    dro__gop *op = next_op(c, form == 2 ? DRO__RUN_FLATTEN : DRO__RUN_CONVERT, made);
    op->input_count = 1;
    op->in[0] = value;
    op->back = c->out->training && v->wants;
    c->converted[value] = made;
    return made;
}

/* Which form an operation wants of its inputs, -1: any. */
static int wanted_form(const compiler *c, const dro__node *node)
{
    if (node->op == DRO__OP_CONV)
        return c->net->bf16;
    return node->op == DRO__OP_LINEAR ? 2 : -1;
}

/* ---- operations ---- */

/* Our own convolutions are for small images; on larger ones cuDNN's keep the tensor cores busier. */
enum { OWN_AREA = 32 * 32 };

static bool fits_conv3(const compiler *c, const dro__node *node, int in)
{
    const dro_window *k = &node->window;
    const dro__node *from = &c->graph->nodes[node->inputs[0]];
    return c->graph->precision != DRO__FP32 && !c->graph->only_cudnn && k->kernel[0] == 3 &&
           k->kernel[1] == 3 && k->pad[0] == 1 && k->pad[1] == 1 && k->stride[0] == k->stride[1] &&
           from->height * from->width <= OWN_AREA &&
           dro__gpu_conv3_fits(in, node->channels, k->stride[0]);
}

/* Whether a convolution reads its image folded: see fold.cu. */
static bool folds(const compiler *c, const dro__node *node)
{
    enum { FOLDED_MOST = 16, OWN = 16 };
    const dro__node *from = &c->graph->nodes[node->inputs[0]];
    return node->op == DRO__OP_CONV && node->window.stride[0] == 2 && node->window.stride[1] == 2 &&
           (from->op == DRO__OP_INPUT || from->op == DRO__OP_AFFINE) && !from->grad &&
           4 * from->channels <= FOLDED_MOST && !fits_conv3(c, node, OWN);
}

/* How many channels a value of few of them should have in memory: 16 when only our own convolutions read it, 16
 * bytes when only others do. Asked of all readers, those too that a program leaves out: both have the same weights. */
static int padded(const compiler *c, int32_t value)
{
    enum { OWN = 16, WORD = 16 };
    const dro__node *v = &c->graph->nodes[value];
    int word = WORD / (c->net->bf16 ? 2 : 4), wanted = OWN;
    for (int32_t i = 0; i < c->graph->count; i++) {
        const dro__node *node = &c->graph->nodes[i];
        for (int k = 0; k < node->input_count; k++) {
            if (node->inputs[k] != value)
                continue;
            int to = node->op == DRO__OP_AFFINE           ? padded(c, i)
                     : node->op != DRO__OP_CONV           ? v->channels
                     : folds(c, node)                     ? v->channels
                     : fits_conv3(c, node, OWN) && k == 0 ? OWN
                                                          : word;
            wanted = to < wanted ? to : wanted;
        }
    }
    bool image = v->height * v->width > 1 && wanted > v->channels;
    return image ? wanted : v->channels;
}

static void pad(dro__gvalue *v, int stored)
{
    v->stored = stored;
    v->size = (size_t)stored * (size_t)v->extent.height * (size_t)v->extent.width;
}

/* The image as a convolution of stride 2 reads it. */
static int32_t folded(compiler *c, int32_t value, const dro__node *node, dro_window *window)
{
    const dro__gvalue *v = &c->out->values[value];
    int32_t made = c->out->value_count++, side[2] = {node->height, node->width};
    int word = v->bf16 ? 8 : 4, channels = 4 * v->extent.channels;
    for (int k = 0; k < 2; k++) {
        window->kernel[k] = (node->window.pad[k] % 2 + node->window.kernel[k] + 1) / 2;
        window->stride[k] = 1;
        window->pad[k] = 0;
        side[k] += window->kernel[k] - 1;
    }
    c->out->values[made] = value_of(channels, side[0], side[1], v->bf16);
    pad(&c->out->values[made], (channels + word - 1) / word * word);
    dro__gop *op = next_op(c, DRO__RUN_FOLD, made);
    op->input_count = 1;
    op->in[0] = value;
    op->window = node->window;
    return made;
}

static dro_status make_tail(compiler *c, dro__gop *op, const dro__gtail *found)
{
    dro__gtail *tail = &c->out->tails[c->out->tail_count];
    enum { ARRAYS = 7 };
    size_t each = DRO__PARTS * (size_t)op->node->channels;
    *tail = *found;
    tail->deferred = c->out->training && tail->norm && !tail->norm->frozen;
    tail->source = tail->conv ? -1 : op->in[0];
    c->out->values[op->end].tail = c->out->tail_count++;
    float *all = dro__cuda_alloc(ARRAYS * each, sizeof *all);
    tail->numbers.mean = all;
    tail->numbers.channels = op->node->channels;
    if (!all)
        return dro__fail(c->net->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
    float **arrays[ARRAYS] = {&tail->numbers.mean,  &tail->numbers.inverse, &tail->numbers.scale,
                              &tail->numbers.shift, &tail->numbers.p,       &tail->numbers.q,
                              &tail->numbers.r};
    for (size_t k = 0; k < ARRAYS; k++)
        *arrays[k] = all + k * each;
    return DRO_OK;
}

/* Emits the operation of the chain (or single node) that ends at node i. */
static dro_status emit(compiler *c, int32_t i, const dro__gtail *found)
{
    const dro__graph *g = c->graph;
    int32_t first = c->begin[i], inputs[DRO__NODE_INPUTS];
    const dro__node *node = &g->nodes[first], *last = &g->nodes[i];
    bool chain = node->op == DRO__OP_CONV || node->op == DRO__OP_NORM;
    for (int k = 0; k < node->input_count; k++) {
        int form = wanted_form(c, node);
        inputs[k] = form < 0 ? node->inputs[k] : in_form(c, node->inputs[k], form);
    }
    dro_window window = node->window;
    bool fold = folds(c, node);
    if (fold)
        inputs[0] = folded(c, inputs[0], node, &window);
    dro__gop *op = next_op(c, DRO__RUN_NODE, i);
    c->out->values[i] = value_of(last->channels, last->height, last->width, narrow(c, node));
    c->out->values[i].wants = last->grad;
    if (node->op == DRO__OP_AFFINE)
        pad(&c->out->values[i], c->out->values[inputs[0]].stored);
    op->index = first;
    op->node = node;
    op->window = window;
    op->folded = fold;
    op->back = c->out->training && last->grad;
    op->input_count = node->input_count;
    memcpy(op->in, inputs, sizeof inputs);
    const dro_window *k = &node->window;
    if (node->op == DRO__OP_MAX_POOL && (int64_t)k->kernel[0] * k->kernel[1] > UINT16_MAX)
        return dro__fail(c->net->ctx, DRO_ERR_UNSUPPORTED, "a max pool of %d x %d is too large",
                         (int)k->kernel[0], (int)k->kernel[1]);
    const dro__gvalue *in = &c->out->values[inputs[0]];
    op->own = node->op == DRO__OP_CONV && fits_conv3(c, node, in->stored);
    op->bands = op->own && c->net->bf16 &&
                dro__gpu_conv3_bands_fit(in->stored, node->channels, k->stride[0],
                                         in->extent.height, in->extent.width);
    return chain ? make_tail(c, op, found) : DRO_OK;
}

static dro_status emit_all(compiler *c)
{
    const dro__graph *g = c->graph;
    dro__gtail *found = dro__alloc((size_t)g->count, sizeof *found); /* by first node */
    if (!found)
        return dro__fail(c->net->ctx, DRO_ERR_MEMORY, "no memory for a network");
    for (int32_t i = 0; i < g->count; i++) {
        const dro__node *node = &g->nodes[i];
        bool conv = node->op == DRO__OP_CONV;
        if (!c->needed[i] || c->begin[i] != i || !(conv || node->op == DRO__OP_NORM))
            continue;
        found[i] =
            (dro__gtail){.conv = conv ? node : NULL, .norm = conv ? NULL : node, .residual = -1};
        grow_chain(c, i, &found[i]);
    }
    dro_status status = DRO_OK;
    for (int32_t i = 0; status == DRO_OK && i < g->count; i++) {
        const dro__node *node = &g->nodes[i];
        if (!c->needed[i] || c->begin[i] < 0)
            continue;
        if (node->op != DRO__OP_INPUT) {
            status = emit(c, i, &found[c->begin[i]]);
            continue;
        }
        c->out->values[i] = value_of(node->channels, node->height, node->width, narrow(c, node));
        pad(&c->out->values[i], padded(c, i));
    }
    dro__free(found);
    for (int h = 0; status == DRO_OK && h < DRO__HEADS; h++) {
        bool used = g->heads[h] >= 0 && (h == 0 || c->out->training);
        c->out->heads[h] = used ? in_form(c, g->heads[h], 2) : -1;
    }
    return status;
}

/* Counts who reads a value and who writes its slope, and finds the values that need not be kept. */
static void count_uses(dro__gprogram *p)
{
    for (int h = 0; h < DRO__HEADS; h++)
        if (p->heads[h] >= 0) {
            p->values[p->heads[h]].writers++;
            p->values[p->heads[h]].readers += 2; /* kept in any case */
        }
    for (int32_t i = 0; i < p->op_count; i++) {
        const dro__gop *op = &p->ops[i];
        int32_t tail = p->values[op->end].tail, residual = tail < 0 ? -1 : p->tails[tail].residual;
        for (int k = 0; k <= op->input_count; k++) {
            int32_t from = k < op->input_count ? op->in[k] : residual;
            if (from < 0)
                continue;
            p->values[from].readers += op->own && k == 0 ? 1 : 2; /* 2: needs it in memory */
            p->values[from].writers += op->back;
        }
    }
    for (int32_t i = 0; i < p->op_count; i++) {
        dro__gvalue *v = &p->values[p->ops[i].end];
        const dro__gtail *tail = v->tail < 0 ? NULL : &p->tails[v->tail];
        v->op = i;
        v->lazy = tail && tail->deferred && tail->conv && tail->residual < 0 && v->readers == 1;
    }
}

/* The first operation that reads a value, -1: none. */
static int32_t first_reader(const dro__gprogram *p, int32_t value)
{
    for (int32_t i = 0; i < p->op_count; i++) {
        int32_t tail = p->values[p->ops[i].end].tail;
        if (tail >= 0 && p->tails[tail].residual == value)
            return i;
        for (int k = 0; k < p->ops[i].input_count; k++)
            if (p->ops[i].in[k] == value)
                return i;
    }
    return -1;
}

/* A value whose first reader is one of our own convolutions is worked out by it. */
static void find_fillers(dro__gprogram *p)
{
    for (int32_t i = 0; i < p->op_count; i++) {
        int32_t end = p->ops[i].end;
        dro__gvalue *v = &p->values[end];
        const dro__gtail *tail = v->tail < 0 ? NULL : &p->tails[v->tail];
        v->filler = -1;
        if (!tail || !tail->deferred || !tail->conv || v->lazy)
            continue;
        const dro__gvalue *residual = tail->residual < 0 ? v : &p->values[tail->residual];
        int32_t first = first_reader(p, end);
        if (first < 0 || !p->ops[first].own || p->ops[first].in[0] != end ||
            residual->bf16 != v->bf16 || residual->stored != residual->extent.channels)
            continue;
        v->filler = first;
    }
}

/* Whether an operation can write its value with a stride, and read its slope so. */
static bool may_be_slice(const dro__gprogram *p, const dro__gop *op)
{
    const dro__gvalue *v = &p->values[op->end];
    if (op->kind != DRO__RUN_NODE || op->own || v->lazy || v->filler >= 0)
        return false;
    if (v->tail < 0)
        return op->node->op == DRO__OP_MAX_POOL || op->node->op == DRO__OP_AVG_POOL;
    const dro__gtail *tail = &p->tails[v->tail]; /* its z lies elsewhere */
    if (tail->residual >= 0 && !tail->relu)      /* the slope goes on to the residual as it is */
        return false;
    return tail->norm || tail->relu || tail->residual >= 0 || tail->conv->has_bias;
}

/* What only a concatenation reads is written where it will be. */
static void find_slices(dro__gprogram *p)
{
    enum { ONE_READER = 2 }; /* of one that needs it in memory */
    for (int32_t i = 0; i < p->op_count; i++) {
        const dro__gop *op = &p->ops[i];
        if (op->kind != DRO__RUN_NODE || op->node->op != DRO__OP_CONCAT)
            continue;
        for (int k = 0, at = 0; k < op->input_count; k++) {
            dro__gvalue *v = &p->values[op->in[k]];
            if (v->readers == ONE_READER && v->op >= 0 && v->bf16 == p->values[op->end].bf16 &&
                v->stored == v->extent.channels && may_be_slice(p, &p->ops[v->op]))
                v->whole = op->end, v->at = at;
            at += v->extent.channels;
        }
    }
}

/* One block for what all tails gather: the forward pass's, then the backward pass's. */
static dro_status make_sums(dro__cuda_network *net, dro__gprogram *p)
{
    size_t count = 0;
    p->tail_room = dro__cuda_alloc(DRO__TAIL_ROOM, 1);
    if (!p->tail_room)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
    for (int pass = 0; pass < 2; pass++) {
        count = 0;
        for (int32_t k = 0; k < p->tail_count; k++) {
            dro__numbers *n = &p->tails[k].numbers;
            if (n->channels > DRO__TAIL_CHANNELS)
                return dro__fail(net->ctx, DRO_ERR_RANGE,
                                 "a layer of %d channels: the cuda backend takes %d at most",
                                 n->channels, (int)DRO__TAIL_CHANNELS);
            if (pass)
                n->sums = p->sums + count, n->back = p->back + count, n->room = p->tail_room;
            count += 2 * 2 * DRO__PARTS * (size_t)n->channels; /* each sum is two numbers */
        }
        if (pass)
            break;
        p->sums = dro__cuda_alloc(2 * count + 1, sizeof(double));
        if (!p->sums)
            return dro__fail(net->ctx, DRO_ERR_MEMORY, "the GPU has no memory left");
        p->back = p->sums + count;
    }
    p->sums_bytes = count * sizeof(double);
    return DRO_OK;
}

static void compiler_free(compiler *c)
{
    dro__free(c->needed);
    dro__free(c->readers);
    dro__free(c->reader);
    dro__free(c->begin);
    dro__free(c->converted);
}

dro_status dro__gprogram_create(dro__cuda_network *net, bool training)
{
    enum { MORE = 4 }; /* every value may be converted twice and folded */
    size_t count = (size_t)net->graph->count;
    dro__gprogram *out = &net->program[training];
    compiler c = {.net = net, .graph = net->graph, .out = out};
    out->training = out->counted = training;
    atomic_fetch_add(&alive, training ? 1 : 0);
    out->values = dro__alloc(MORE * count, sizeof *out->values);
    out->tails = dro__alloc(count, sizeof *out->tails);
    out->ops = dro__alloc(MORE * count, sizeof *out->ops);
    out->value_count = net->graph->count;
    c.needed = dro__alloc(count, sizeof *c.needed);
    c.readers = dro__alloc(count, sizeof *c.readers);
    c.reader = dro__alloc(count, sizeof *c.reader);
    c.begin = dro__alloc(count, sizeof *c.begin);
    c.converted = dro__alloc(MORE * count, sizeof *c.converted);
    dro_status status = DRO_OK;
    if (!out->values || !out->tails || !out->ops || !c.needed || !c.readers || !c.reader ||
        !c.begin || !c.converted)
        status = dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for a network");
    if (status == DRO_OK) {
        for (size_t i = 0; i < count; i++)
            c.begin[i] = (int32_t)i;
        memset(c.converted, -1, MORE * count * sizeof *c.converted);
        find_needed(&c);
        status = emit_all(&c);
    }
    if (status == DRO_OK) {
        count_uses(out);
        find_fillers(out);
        find_slices(out);
        status = make_sums(net, out);
    }
    compiler_free(&c);
    return status;
}

void dro__gprogram_destroy(dro__gprogram *p)
{
    atomic_fetch_sub(&alive, p->counted ? 1 : 0);
    for (int32_t k = 0; p->tails && k < p->tail_count; k++)
        dro__cuda_free(p->tails[k].numbers.mean); /* the first of its arrays */
    dro__cuda_free(p->sums);
    dro__cuda_free(p->tail_room);
    dro__free(p->values);
    dro__free(p->tails);
    dro__free(p->ops);
    dro__cuda_free(p->memory);
}
