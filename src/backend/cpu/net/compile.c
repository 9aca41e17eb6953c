/* From a graph to a program: which layers become one operation, in which layout, and in which order. */
#include "net.h"

#include "conv_winograd.h"

#include <string.h>

typedef struct compiler {
    dro__cpu_network *net;
    const dro__graph *graph;
    dro__program *out;
    bool *needed;
    int32_t *readers;   /* (count) how many needed nodes read it */
    int32_t *reader;    /* (count) one of them */
    int32_t *begin;     /* (count) the first node of the chain that ends here, -1: inside of one */
    int32_t *converted; /* (value room) the same value in the other layout, -1 */
} compiler;

static size_t padded(const dro__cpu_network *net, int32_t channels)
{
    size_t b = (size_t)net->block;
    return ((size_t)channels + b - 1) / b * b;
}

/* ---- what is needed, and chains ---- */

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

/* Grows the chain that begins at a convolution or a norm as far as one reader after another allows. */
static void grow_chain(compiler *c, int32_t first, dro__tail *tail)
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
            bool chain = g->nodes[other].op == DRO__OP_CONV || g->nodes[other].op == DRO__OP_NORM;
            if (other == at || (other > at && chain))
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

static dro__value value_of(const compiler *c, int32_t channels, int32_t height, int32_t width,
                           bool blocked)
{
    size_t area = (size_t)height * (size_t)width;
    return (dro__value){.blocked = blocked,
                        .channels = channels,
                        .height = height,
                        .width = width,
                        .size = area * (blocked ? padded(c->net, channels) : (size_t)channels),
                        .tail = -1,
                        .maker = -1,
                        .data = -1,
                        .grad = -1,
                        .fill = -1,
                        .alias = -1};
}

static bool plain_output(const compiler *c, const dro__node *node)
{
    switch (node->op) {
    case DRO__OP_INPUT:
    case DRO__OP_AFFINE:
    case DRO__OP_DROPOUT:
    case DRO__OP_FLATTEN:
    case DRO__OP_LINEAR:
    case DRO__OP_GLOBAL_POOL:
        return true;
    case DRO__OP_RELU: /* in the layout of its input */
        return !c->out->values[node->inputs[0]].blocked;
    case DRO__OP_ADD:
        return !c->out->values[node->inputs[0]].blocked && !c->out->values[node->inputs[1]].blocked;
    default:
        return false;
    }
}

/* Which layout an operation wants of its inputs: 1 blocked, 0 plain, -1 either. */
static int wanted_layout(const compiler *c, const dro__node *node, const dro__value *in)
{
    enum { FEW_CHANNELS = 4 }; /* convolutions read plain images of so few channels */
    switch (node->op) {
    case DRO__OP_CONV:
        return in->channels <= FEW_CHANNELS && !in->blocked ? -1 : 1;
    case DRO__OP_AFFINE:
    case DRO__OP_DROPOUT:
    case DRO__OP_LINEAR:
        return 0;
    case DRO__OP_FLATTEN:
    case DRO__OP_RELU:
        return -1;
    case DRO__OP_ADD:
        return plain_output(c, node) ? 0 : 1;
    default:
        return 1;
    }
}

static dro__run *next_op(compiler *c)
{
    dro__run *op = &c->out->ops[c->out->op_count++];
    *op = (dro__run){.residual = {.value = -1}};
    return op;
}

/* The value in the wanted layout; adds a conversion when there is none yet. */
static int32_t in_layout(compiler *c, int32_t value, int layout)
{
    dro__value *v = &c->out->values[value];
    if (layout < 0 || v->blocked == (layout == 1))
        return value;
    if (c->converted[value] >= 0)
        return c->converted[value];
    int32_t made = c->out->value_count++;
    dro__value *to = &c->out->values[made];
    *to = value_of(c, v->channels, v->height, v->width, layout == 1);
    to->wants = v->wants;
    to->maker = c->out->op_count;
    dro__run *op = next_op(c);
    op->kind = DRO__RUN_CONVERT;
    op->end = made;
    op->input_count = 1;
    op->in[0].value = value;
    op->back = v->wants;
    c->converted[value] = made;
    c->converted[made] = value;
    return made;
}

/* ---- operations ---- */

/* The kind of convolution that is fastest for a shape. */
static dro_status choose_conv(dro__cpu_network *net, const dro__conv_shape *shape, dro__conv **conv)
{
    if (dro__conv_winograd_fits(shape))
        return dro__conv_winograd(net->ctx, shape, conv);
    return dro__onednn_conv(net->library, shape, conv);
}

static dro_status make_conv(compiler *c, dro__run *op)
{
    dro__conv **conv = &c->net->convs[op->index];
    const dro__value *in = &c->out->values[op->in[0].value], *out = &c->out->values[op->end];
    const dro__node *from = &c->graph->nodes[op->node->inputs[0]];
    if (!*conv) {
        dro__conv_shape shape = {.in = in->channels,
                                 .in_height = in->height,
                                 .in_width = in->width,
                                 .out = op->node->channels,
                                 .height = out->height,
                                 .width = out->width,
                                 .window = op->node->window,
                                 .plain = !in->blocked,
                                 .data = from->grad,
                                 .weight = !op->node->frozen};
        DRO_TRY(choose_conv(c->net, &shape, conv));
    }
    op->conv = *conv;
    return DRO_OK;
}

static dro_status make_tail(compiler *c, dro__run *op, const dro__tail *found)
{
    dro__tail *tail = &c->out->tails[c->out->tail_count];
    *tail = *found;
    tail->deferred = c->out->training && tail->norm && !tail->norm->frozen;
    tail->channels = padded(c->net, op->node->channels);
    tail->z = -1;
    tail->source = tail->conv ? -1 : op->in[0].value;
    enum { ARRAYS = 7 };
    float *all = dro__alloc(ARRAYS * DRO__PARTS * tail->channels, sizeof *all);
    if (!all)
        return dro__fail(c->net->ctx, DRO_ERR_MEMORY, "no memory for a network");
    float **arrays[ARRAYS] = {&tail->mean, &tail->inverse, &tail->scale, &tail->shift,
                              &tail->p,    &tail->q,       &tail->r};
    for (size_t k = 0; k < ARRAYS; k++)
        *arrays[k] = all + k * DRO__PARTS * tail->channels;
    c->out->values[op->end].tail = c->out->tail_count++;
    op->residual.value = tail->residual;
    return DRO_OK;
}

/* Emits the operation of the chain (or single node) that ends at node i. */
static dro_status emit(compiler *c, int32_t i, const dro__tail *found)
{
    const dro__graph *g = c->graph;
    int32_t first = c->begin[i];
    const dro__node *node = &g->nodes[first], *last = &g->nodes[i];
    bool chain = node->op == DRO__OP_CONV || node->op == DRO__OP_NORM;
    dro__tail tail = *found;
    int32_t inputs[DRO__NODE_INPUTS];
    for (int k = 0; k < node->input_count; k++) {
        const dro__value *in = &c->out->values[node->inputs[k]];
        inputs[k] = in_layout(c, node->inputs[k], wanted_layout(c, node, in));
    }
    if (chain && tail.residual >= 0)
        tail.residual = in_layout(c, tail.residual, 1); /* before the operation itself */
    c->out->values[i] =
        value_of(c, last->channels, last->height, last->width, !plain_output(c, last) || chain);
    c->out->values[i].wants = last->grad;
    c->out->values[i].maker = c->out->op_count;
    dro__run *op = next_op(c);
    op->index = first;
    op->node = node;
    op->end = i;
    op->back = c->out->training && last->grad;
    op->input_count = node->input_count;
    for (int k = 0; k < node->input_count; k++)
        op->in[k].value = inputs[k];
    if (chain)
        DRO_TRY(make_tail(c, op, &tail));
    return node->op == DRO__OP_CONV ? make_conv(c, op) : DRO_OK;
}

static dro_status emit_all(compiler *c)
{
    const dro__graph *g = c->graph;
    dro__tail *found = dro__alloc((size_t)g->count, sizeof *found); /* by first node */
    if (!found)
        return dro__fail(c->net->ctx, DRO_ERR_MEMORY, "no memory for a network");
    for (int32_t i = 0; i < g->count; i++) {
        const dro__node *node = &g->nodes[i];
        bool conv = node->op == DRO__OP_CONV;
        if (!c->needed[i] || c->begin[i] != i || !(conv || node->op == DRO__OP_NORM))
            continue;
        found[i] =
            (dro__tail){.conv = conv ? node : NULL, .norm = conv ? NULL : node, .residual = -1};
        grow_chain(c, i, &found[i]);
    }
    dro_status status = DRO_OK;
    for (int32_t i = 0; status == DRO_OK && i < g->count; i++) {
        const dro__node *node = &g->nodes[i];
        if (!c->needed[i] || c->begin[i] < 0)
            continue;
        if (node->op == DRO__OP_INPUT)
            c->out->values[i] = value_of(c, node->channels, node->height, node->width, false);
        else
            status = emit(c, i, &found[c->begin[i]]);
    }
    dro__free(found);
    for (int h = 0; status == DRO_OK && h < DRO__HEADS; h++) {
        bool used = g->heads[h] >= 0 && (h == 0 || c->out->training);
        c->out->heads[h] = used ? in_layout(c, g->heads[h], 0) : -1;
    }
    return status;
}

/* ---- who writes a slope first and last ---- */

static void mark_use(const dro__program *p, dro__use *use, dro__use **latest)
{
    if (use->value < 0 || !p->values[use->value].wants)
        return;
    use->first = !latest[use->value];
    use->last = true;
    if (latest[use->value])
        latest[use->value]->last = false;
    latest[use->value] = use;
}

static dro_status mark_uses(compiler *c)
{
    dro__program *p = c->out;
    dro__use loss[DRO__HEADS] = {{0}};
    dro__use **latest = dro__alloc((size_t)p->value_count, sizeof *latest);
    if (!latest)
        return dro__fail(c->net->ctx, DRO_ERR_MEMORY, "no memory for a network");
    for (int h = 0; h < DRO__HEADS; h++) {
        loss[h].value = p->heads[h];
        mark_use(p, &loss[h], latest);
    }
    for (int32_t i = p->op_count - 1; i >= 0; i--) {
        dro__run *op = &p->ops[i];
        if (!op->back)
            continue;
        for (int k = 0; k < op->input_count; k++)
            mark_use(p, &op->in[k], latest);
        mark_use(p, &op->residual, latest);
        if (op->residual.first)
            p->values[op->residual.value].alias = op->end;
    }
    dro__free(latest);
    return DRO_OK;
}

/* ---- chunks ---- */

static void size_chunks(compiler *c)
{
    enum { CACHE = 512 * 1024, LANES_PER_THREAD = 4, HEAVY = 1 << 12 };
    dro__program *p = c->out;
    size_t threads = (size_t)dro__pool_threads(c->net->ctx->pool);
    for (int32_t i = 0; i < p->op_count; i++) {
        dro__run *op = &p->ops[i];
        size_t floats = p->values[op->end].size, weights = 0;
        for (int k = 0; k < op->input_count; k++)
            floats += p->values[op->in[k].value].size;
        if (op->conv)
            weights = (size_t)op->node->channels * (size_t)p->values[op->in[0].value].channels *
                      (size_t)(op->node->window.kernel[0] * op->node->window.kernel[1]);
        size_t target = CACHE / sizeof(float);
        target = weights > target ? weights : target; /* large weights are read once per chunk */
        op->most = target / floats ? target / floats : 1;
        op->lanes = weights > HEAVY ? threads : c->net->lane_count;
    }
}

/* ---- the whole ---- */

static void compiler_free(compiler *c)
{
    dro__free(c->needed);
    dro__free(c->readers);
    dro__free(c->reader);
    dro__free(c->begin);
    dro__free(c->converted);
}

dro_status dro__program_create(dro__cpu_network *net, bool training)
{
    enum { MORE = 2 }; /* every value may be converted once */
    size_t count = (size_t)net->graph->count;
    dro__program *out = &net->program[training];
    compiler c = {.net = net, .graph = net->graph, .out = out};
    out->training = training;
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
    if (status == DRO_OK && training)
        status = mark_uses(&c);
    if (status == DRO_OK) {
        size_chunks(&c);
        if (!dro__program_plan(out))
            status = dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for a network");
    }
    compiler_free(&c);
    return status;
}

void dro__program_destroy(dro__program *p)
{
    for (int32_t k = 0; p->tails && k < p->tail_count; k++)
        dro__free(p->tails[k].mean); /* the first of its arrays */
    dro__free(p->values);
    dro__free(p->tails);
    dro__free(p->ops);
}
