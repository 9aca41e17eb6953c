/* A network of the cpu backend: memory, and the walk over the program's operations. */
#include "net.h"

#include <string.h>

/* ---- an operation, on all lanes ---- */

/* The tail's residual gets the slope of the sum: as it is, or added. */
static void residual_backward(const dro__piece *piece)
{
    const dro__use *use = &piece->op->base.residual;
    if (use->value < 0 || !piece->program->values[use->value].base.wants)
        return;
    const dro__cpu_value *v = &piece->program->values[use->value];
    if (!use->first)
        dro__floats_add(piece->count * v->size, dro__piece_grad(piece, use->value),
                        dro__piece_grad(piece, piece->op->base.end));
    dro__piece_close(piece, use, DRO__USES - 1);
}

typedef struct task {
    dro__cpu_network *net;
    dro__cpu_program *program;
    int32_t index;
    bool back;
} task;

static void run_piece(const dro__piece *piece, bool back)
{
    const dro__operation *op = &piece->op->base;
    dro__cpu_layers[op->op].run(piece, back);
    for (int k = 0; back && k < op->input_count; k++)
        dro__piece_close(piece, &op->in[k], k);
    if (back)
        residual_backward(piece);
}

static void clear_lane(const task *t, dro__lane *lane)
{
    const dro__cpu_op *op = &t->program->ops[t->index];
    dro__cpu_network *net = t->net;
    lane->seen = 0;
    lane->any = false;
    if (!t->back) {
        int32_t tail = t->program->values[op->base.end].base.tail;
        if (tail >= 0)
            dro__lane_clear(net, lane, t->program->tails[tail].channels, 0);
        return;
    }
    for (int k = 0; k <= op->base.input_count; k++) {
        const dro__use *use = k < op->base.input_count ? &op->base.in[k] : &op->base.residual;
        int32_t tail = use->value < 0 ? -1 : t->program->values[use->value].base.tail;
        if (tail >= 0 && use->last)
            dro__lane_clear(net, lane, t->program->tails[tail].channels,
                            k < op->base.input_count ? k : DRO__USES - 1);
    }
}

/* The chunks of one lane. */
static void run_lane(void *arg, size_t index)
{
    const task *t = arg;
    dro__cpu_network *net = t->net;
    dro__cpu_op *op = &t->program->ops[t->index];
    dro__lane *lane = &net->lanes[index];
    clear_lane(t, lane);
    size_t count = net->parts[net->part].count, chunks = (count + op->chunk - 1) / op->chunk;
    size_t end = chunks * (index + 1) / op->lanes;
    for (size_t c = chunks * index / op->lanes; c < end; c++) {
        size_t at = c * op->chunk, left = count - at;
        dro__piece piece = {.net = net,
                            .program = t->program,
                            .op = op,
                            .op_index = t->index,
                            .part = net->part,
                            .first = net->first[net->part] + at,
                            .count = left < op->chunk ? left : op->chunk,
                            .lane = lane,
                            .lane_index = index};
        run_piece(&piece, t->back);
    }
}

static void run_op(dro__cpu_network *net, dro__cpu_program *program, int32_t index, bool back)
{
    dro__cpu_op *op = &program->ops[index];
    task t = {net, program, index, back};
    dro__pool_run(net->ctx->pool, op->lanes, run_lane, &t);
    if (!back) {
        dro__tail_forward(net, program, op);
        return;
    }
    if (dro__cpu_layers[op->base.op].finish)
        dro__cpu_layers[op->base.op].finish(net, program, op);
    for (int k = 0; k < op->base.input_count; k++)
        dro__tail_backward(net, program, op, &op->base.in[k], k);
    dro__tail_backward(net, program, op, &op->base.residual, DRO__USES - 1);
}

/* ---- the loss ---- */

typedef struct loss_task {
    dro__cpu_network *net;
    dro__cpu_program *program;
    size_t lanes;
} loss_task;

static void loss_row(const loss_task *t, dro__lane *lane, int part, size_t n)
{
    dro__cpu_network *net = t->net;
    size_t example = net->first[part] + n;
    for (int h = 0; h < DRO__HEADS; h++) {
        if (t->program->base.heads[h] < 0)
            continue;
        const dro__cpu_value *v = &t->program->values[t->program->base.heads[h]];
        const float *logits = dro__value_at(net, t->program, v->data, v->size, example);
        double weight = h ? (double)net->graph->auxiliary_weight : 1, *slope = lane->row + v->size;
        for (size_t j = 0; j < v->size; j++)
            lane->row[j] = (double)logits[j];
        double loss =
            dro__net_loss_row(net->graph, v->size, &net->parts[part], n, lane->row, slope);
        if (!net->coef) {
            net->losses[example] = (h ? net->losses[example] : 0) + (float)(weight * loss);
            continue;
        }
        if (!v->base.wants) /* nothing in this head or below it is trained */
            continue;
        float *to = dro__value_at(net, t->program, v->grad, v->size, example);
        for (size_t j = 0; j < v->size; j++)
            to[j] = (float)(weight * (double)net->coef[example] * slope[j]);
    }
}

static void loss_lane(void *arg, size_t index)
{
    const loss_task *t = arg;
    int part = t->net->part;
    size_t count = t->net->parts[part].count;
    for (size_t n = count * index / t->lanes; n < count * (index + 1) / t->lanes; n++)
        loss_row(t, &t->net->lanes[index], part, n);
}

static void run_loss(dro__cpu_network *net, dro__cpu_program *program)
{
    loss_task t = {net, program, net->lane_count};
    dro__pool_run(net->ctx->pool, t.lanes, loss_lane, &t);
}

/* ---- the table ---- */

static void destroy(void *arg)
{
    dro__cpu_network *net = arg;
    if (!net)
        return;
    for (size_t l = 0; net->lanes && l < net->lane_count; l++) {
        dro__lane_free(&net->lanes[l]);
        dro__free(net->lanes[l].moments);
        dro__free(net->lanes[l].row);
    }
    for (int32_t i = 0; net->convs && i < net->graph->count; i++)
        if (net->convs[i])
            net->convs[i]->cls->destroy(net->convs[i]);
    for (int k = 0; k < 2; k++)
        dro__cpu_program_destroy(&net->program[k]);
    dro__onednn_destroy(net->library);
    dro__free(net->convs);
    dro__free(net->lanes);
    dro__free(net->arena);
    dro__free(net->taken);
    dro__free(net->norm_sums);
    dro__free(net);
}

static dro_status make_lane_sums(dro__cpu_network *net)
{
    size_t outputs = 1;
    for (int32_t i = 0; i < net->graph->count; i++) {
        const dro__graph_node *node = &net->graph->nodes[i];
        size_t padded = ((size_t)node->channels + (size_t)net->block - 1) / (size_t)net->block *
                        (size_t)net->block;
        bool tail = dro__cpu_layers[node->op].traits.tail;
        net->channels = tail && padded > net->channels ? padded : net->channels;
    }
    for (int h = 0; h < DRO__HEADS; h++)
        if (net->graph->heads[h] >= 0) {
            size_t size = dro__node_size(&net->graph->nodes[net->graph->heads[h]]);
            outputs = size > outputs ? size : outputs;
        }
    net->norm_sums = dro__alloc(1 + 2 * net->channels, sizeof(double));
    if (!net->norm_sums)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for a network");
    for (size_t l = 0; l < net->lane_count; l++) {
        net->lanes[l].moments = dro__alloc(2 * net->channels * DRO__USES + 1, sizeof(double));
        net->lanes[l].row = dro__alloc(2 * outputs, sizeof(double));
        if (!net->lanes[l].moments || !net->lanes[l].row)
            return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for a network");
    }
    return DRO_OK;
}

/* Is there a trained layer that no head depends on? Its gradient is 0. */
static bool has_stray(const dro__cpu_network *net)
{
    size_t trained = 0, reached = 0;
    for (int32_t i = 0; i < net->graph->count; i++)
        trained += net->graph->nodes[i].weight >= 0 && !net->graph->nodes[i].frozen;
    const dro__cpu_program *p = &net->program[1];
    for (int32_t i = 0; i < p->base.operation_count; i++) {
        const dro__cpu_op *op = &p->ops[i];
        bool weights = dro__cpu_layers[op->base.op].finish; /* it has a gradient by its weights */
        reached += weights && op->base.back && !op->base.node->frozen;
    }
    for (int32_t k = 0; k < p->base.tail_count; k++)
        reached += p->tails[k].base.norm && !p->tails[k].base.norm->frozen;
    return reached < trained;
}

static dro_status create(dro_context *ctx, const dro__graph *graph, const dro__net_memory *memory,
                         void **out)
{
    enum { LANES_PER_THREAD = 4 };
    dro__cpu_network *net = dro__alloc(1, sizeof *net);
    if (!net)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a network");
    int threads = dro__pool_threads(ctx->pool);
    net->ctx = ctx;
    net->graph = graph;
    net->memory = *memory;
    net->block = dro__simd_best()->block;
    net->lane_count = threads > 1 ? (size_t)(LANES_PER_THREAD * threads) : 1;
    net->lanes = dro__alloc(net->lane_count, sizeof *net->lanes);
    net->convs = dro__alloc((size_t)graph->count, sizeof *net->convs);
    net->taken = dro__alloc(graph->statistics_size + 1, sizeof *net->taken);
    dro_status status = DRO_OK;
    if (!net->lanes || !net->convs || !net->taken)
        status = dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a network");
    if (status == DRO_OK)
        status = make_lane_sums(net);
    for (int training = 0; status == DRO_OK && training < 2; training++)
        status = dro__cpu_program_create(net, training);
    if (status != DRO_OK) {
        destroy(net);
        return status;
    }
    net->stray = has_stray(net);
    *out = net;
    return DRO_OK;
}

static dro_status begin(dro__cpu_network *net, dro__cpu_program *program, const float *w,
                        const dro_net_batch *parts, int part_count, float *losses)
{
    net->pending = false;
    net->losses = losses;
    net->w = w;
    net->part_count = part_count;
    net->coef = NULL;
    for (int k = 0; k < part_count; k++) {
        net->parts[k] = parts[k];
        net->first[k + 1] = net->first[k] + parts[k].count;
    }
    DRO_TRY(dro__network_reserve(net, program, parts, part_count));
    atomic_store(&net->failed, false);
    memcpy(net->taken, net->memory.statistics, net->graph->statistics_size * sizeof *net->taken);
    for (int32_t k = 0; k < program->base.tail_count; k++)
        dro__tail_constants(net, &program->tails[k]);
    dro__conv_take(net, program, false);
    for (net->part = 0; net->part < part_count; net->part++) {
        for (int32_t i = 0; i < program->base.operation_count; i++)
            run_op(net, program, i, false);
        if (losses)
            run_loss(net, program);
    }
    return DRO_OK;
}

static dro_status finish(dro__cpu_network *net)
{
    if (atomic_load(&net->failed))
        return dro__fail(
            net->ctx, DRO_ERR_MEMORY,
            "oneDNN could not compute a layer: most likely there is too little memory");
    return DRO_OK;
}

static dro_status forward(void *arg, const float *w, const dro_net_batch *parts, int part_count,
                          float *losses)
{
    dro__cpu_network *net = arg;
    DRO_TRY(begin(net, &net->program[1], w, parts, part_count, losses));
    net->pending = true;
    return finish(net);
}

static dro_status backward(void *arg, const float *w, const float *coef, float *const *grads)
{
    dro__cpu_network *net = arg;
    dro__cpu_program *program = &net->program[1];
    net->w = w;
    net->coef = coef;
    net->grads = grads;
    for (int k = 0; net->stray && k < net->part_count; k++)
        memset(grads[k], 0, net->graph->dim * sizeof *grads[k]);
    dro__conv_take(net, program, true);
    for (net->part = 0; net->part < net->part_count; net->part++) {
        run_loss(net, program);
        for (int32_t i = program->base.operation_count - 1; i >= 0; i--)
            if (program->ops[i].base.back)
                run_op(net, program, i, true);
    }
    net->coef = NULL;
    return finish(net);
}

static void accept(void *arg)
{
    dro__cpu_network *net = arg;
    if (net->pending)
        memcpy(net->memory.statistics, net->taken,
               net->graph->statistics_size * sizeof *net->taken);
    net->pending = false;
}

static dro_status evaluate(void *arg, const float *w, const dro_net_batch *batch, float *logits,
                           float *losses)
{
    dro__cpu_network *net = arg;
    dro__cpu_program *program = &net->program[0];
    DRO_TRY(begin(net, program, w, batch, 1, losses));
    const dro__cpu_value *v = &program->values[program->base.heads[0]];
    net->part = 0;
    if (logits)
        memcpy(logits, dro__value_at(net, program, v->data, v->size, 0),
               batch->count * v->size * sizeof *logits);
    return finish(net);
}

const dro__net_backend dro__cpu_net = {
    .create = create,
    .destroy = destroy,
    .forward = forward,
    .backward = backward,
    .accept = accept,
    .evaluate = evaluate,
};
