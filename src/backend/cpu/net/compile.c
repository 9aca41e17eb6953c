/* From a graph to a program: what the lowering leaves to this backend. */
#include "net.h"

static const dro__traits *traits_of(dro__op op)
{
    return &dro__cpu_layers[op].traits;
}

static size_t padded(const dro__cpu_network *net, int32_t channels)
{
    size_t b = (size_t)net->block;
    return ((size_t)channels + b - 1) / b * b;
}

static void complete_value(dro__program *base, int32_t index)
{
    dro__cpu_program *p = (dro__cpu_program *)base;
    dro__cpu_value *v = &p->values[index];
    size_t channels = v->base.form == DRO__BLOCKED ? padded(base->net, v->base.channels)
                                                   : (size_t)v->base.channels;
    v->size = channels * (size_t)v->base.height * (size_t)v->base.width;
    v->data = v->grad = -1;
    v->fill = v->alias = -1;
}

static dro_status complete_operation(dro__program *p, dro__operation *op)
{
    const dro__cpu_layer *layer = &dro__cpu_layers[op->op];
    return layer->make ? layer->make((dro__cpu_program *)p, (dro__cpu_op *)op) : DRO_OK;
}

static dro_status complete_tail(dro__program *p, dro__tail *base, const dro__operation *op)
{
    enum { ARRAYS = 7 };
    dro__cpu_tail *tail = (dro__cpu_tail *)base;
    tail->channels = padded(p->net, op->node->channels);
    tail->z = -1;
    float *all = dro__alloc(ARRAYS * DRO__PARTS * tail->channels, sizeof *all);
    if (!all)
        return dro__fail(p->ctx, DRO_ERR_MEMORY, "no memory for a network");
    float **arrays[ARRAYS] = {&tail->mean, &tail->inverse, &tail->scale, &tail->shift,
                              &tail->p,    &tail->q,       &tail->r};
    for (size_t k = 0; k < ARRAYS; k++)
        *arrays[k] = all + k * DRO__PARTS * tail->channels;
    return DRO_OK;
}

/* A residual that is the first to get a slope shares it with the sum. */
static void share_slopes(dro__cpu_program *p)
{
    for (int32_t i = 0; i < p->base.operation_count; i++) {
        const dro__operation *op = &p->ops[i].base;
        if (op->residual.first)
            p->values[op->residual.value].alias = op->end;
    }
}

static void size_chunks(const dro__cpu_network *net, dro__cpu_program *p)
{
    enum { CACHE = 512 * 1024, HEAVY = 1 << 12 };
    size_t threads = (size_t)dro__pool_threads(net->ctx->pool);
    for (int32_t i = 0; i < p->base.operation_count; i++) {
        dro__cpu_op *op = &p->ops[i];
        size_t floats = p->values[op->base.end].size, weights = 0;
        for (int k = 0; k < op->base.input_count; k++)
            floats += p->values[op->base.in[k].value].size;
        if (op->conv)
            weights = (size_t)op->conv->shape.out *
                      (size_t)(op->conv->shape.in / op->conv->shape.groups) *
                      (size_t)(op->base.node->window.kernel[0] * op->base.node->window.kernel[1]);
        size_t target = CACHE / sizeof(float);
        target = weights > target ? weights : target; /* large weights are read once per chunk */
        op->most = target / floats ? target / floats : 1;
        op->lanes = weights > HEAVY ? threads : net->lane_count;
    }
}

dro_status dro__cpu_program_create(dro__cpu_network *net, bool training)
{
    static const dro__lowering lowering = {.value_size = sizeof(dro__cpu_value),
                                           .tail_size = sizeof(dro__cpu_tail),
                                           .operation_size = sizeof(dro__cpu_op),
                                           .extra = 1, /* a conversion */
                                           .traits = traits_of,
                                           .value = complete_value,
                                           .operation = complete_operation,
                                           .tail = complete_tail};
    dro__cpu_program *p = &net->program[training];
    p->base = (dro__program){.ctx = net->ctx,
                             .net = net,
                             .graph = net->graph,
                             .lowering = &lowering,
                             .training = training,
                             .form_most = DRO__BLOCKED};
    dro_status status = dro__program_begin(&p->base);
    p->values = p->base.values;
    p->tails = p->base.tails;
    p->ops = p->base.operations;
    if (status == DRO_OK)
        status = dro__program_lower(&p->base);
    if (status != DRO_OK)
        return status;
    share_slopes(p);
    size_chunks(net, p);
    return dro__cpu_program_plan(p)
               ? DRO_OK
               : dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for a network");
}

void dro__cpu_program_destroy(dro__cpu_program *p)
{
    for (int32_t k = 0; k < p->base.tail_count; k++)
        dro__free(p->tails[k].mean); /* the first of its arrays */
    dro__program_end(&p->base);
}
