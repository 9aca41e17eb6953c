/* A network of the cpu backend: memory, and the walk over the program's operations. */
#include "net.h"

#include <string.h>

/* ---- one piece of a convolution ---- */

static bool conv_forward(const dro__piece *piece)
{
    dro__program *p = piece->program;
    const dro__value *v = &p->values[piece->op->end];
    const dro__tail *tail = &p->tails[v->tail];
    const float *x = dro__piece_value(piece, piece->op->in[0].value, 0);
    float *z =
        dro__value_at(piece->net, p, tail->deferred ? tail->z : v->data, v->size, piece->first);
    if (!piece->op->conv->cls->forward(piece->op->conv, piece->lane_index, piece->count, x, z,
                                       piece->lane->scratch))
        return false;
    if (tail->deferred) {
        dro__piece_moments(piece, z);
        return true;
    }
    const float *residual = tail->residual < 0 ? NULL : dro__piece_value(piece, tail->residual, 1);
    dro__chunk chunk = dro__chunk_of(piece->net, v, piece->count);
    size_t at = (size_t)piece->part * tail->channels;
    dro__chunk_apply(&chunk, z, tail->mean + at, tail->scale + at, tail->shift + at, residual,
                     tail->relu, z);
    return true;
}

/* This piece's gradient by the weights, added to the lane's. */
static bool conv_slope(const dro__piece *piece, const float *dz)
{
    dro__lane *lane = piece->lane;
    dro__conv *conv = piece->op->conv;
    const float *x = dro__piece_value(piece, piece->op->in[0].value, 0);
    if (!conv->cls->slope(conv, piece->lane_index, piece->count, x, dz, !lane->any, lane->sum,
                          lane->spare, lane->scratch))
        return false;
    lane->any = true;
    return true;
}

static bool conv_backward(const dro__piece *piece)
{
    const dro__run *op = piece->op;
    const dro__use *in = &op->in[0];
    const dro__value *from = &piece->program->values[in->value];
    const float *dz = dro__piece_slope(piece, op->end, 2);
    if (!op->node->frozen && !conv_slope(piece, dz))
        return false;
    if (from->wants) {
        float *dx = dro__piece_grad(piece, in->value), *to = in->first ? dx : piece->lane->slots[3];
        if (!op->conv->cls->data(op->conv, piece->lane_index, piece->count, dz, to,
                                 piece->lane->scratch))
            return false;
        if (!in->first)
            dro__floats_add(piece->count * from->size, dx, to);
        dro__piece_close(piece, in, 0);
    }
    return true;
}

/* The tail's residual gets the slope of the sum: as it is, or added. */
static void residual_backward(const dro__piece *piece)
{
    const dro__use *use = &piece->op->residual;
    if (use->value < 0 || !piece->program->values[use->value].wants)
        return;
    const dro__value *v = &piece->program->values[use->value];
    if (!use->first)
        dro__floats_add(piece->count * v->size, dro__piece_grad(piece, use->value),
                        dro__piece_grad(piece, piece->op->end));
    dro__piece_close(piece, use, DRO__USES - 1);
}

/* ---- an operation, on all lanes ---- */

typedef struct task {
    dro__cpu_network *net;
    dro__program *program;
    int32_t index;
    bool back;
} task;

static bool run_piece(const dro__piece *piece, bool back)
{
    if (!back && piece->op->conv)
        return conv_forward(piece);
    if (!back) {
        dro__layer_forward(piece);
        return true;
    }
    if (piece->op->conv) {
        if (!conv_backward(piece))
            return false;
    } else {
        dro__layer_backward(piece);
    }
    residual_backward(piece);
    return true;
}

static void clear_lane(const task *t, dro__lane *lane)
{
    const dro__run *op = &t->program->ops[t->index];
    dro__cpu_network *net = t->net;
    lane->seen = 0;
    lane->any = false;
    if (!t->back) {
        int32_t tail = t->program->values[op->end].tail;
        if (tail >= 0)
            dro__lane_clear(net, lane, t->program->tails[tail].channels, 0);
        return;
    }
    for (int k = 0; k <= op->input_count; k++) {
        const dro__use *use = k < op->input_count ? &op->in[k] : &op->residual;
        int32_t tail = use->value < 0 ? -1 : t->program->values[use->value].tail;
        if (tail >= 0 && use->last)
            dro__lane_clear(net, lane, t->program->tails[tail].channels,
                            k < op->input_count ? k : DRO__USES - 1);
    }
}

/* The chunks of one lane. */
static void run_lane(void *arg, size_t index)
{
    const task *t = arg;
    dro__cpu_network *net = t->net;
    dro__run *op = &t->program->ops[t->index];
    dro__lane *lane = &net->lanes[index];
    int before = dro__onednn_begin();
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
        if (!run_piece(&piece, t->back))
            atomic_store(&net->failed, true);
    }
    dro__onednn_end(before);
}

/* ---- gradients of a convolution's weights: the lanes' sums ---- */

typedef struct reduction {
    dro__cpu_network *net;
    const dro__run *op;
    size_t size, pieces;
} reduction;

static void reduce_piece(void *arg, size_t k)
{
    const reduction *r = arg;
    size_t from = r->size * k / r->pieces, to = r->size * (k + 1) / r->pieces;
    float *sum = r->net->lanes[0].sum;
    for (size_t l = 0; l < r->op->lanes; l++) {
        const dro__lane *lane = &r->net->lanes[l];
        if (l == 0 && !lane->any)
            memset(sum + from, 0, (to - from) * sizeof *sum);
        if (l > 0 && lane->any)
            dro__floats_add(to - from, sum + from, lane->sum + from);
    }
}

static void conv_finish(dro__cpu_network *net, const dro__run *op)
{
    enum { WORTH_SHARING = 1 << 15 };
    if (op->node->frozen)
        return;
    reduction r = {net, op, op->conv->slope_size, 1};
    r.pieces = r.size > WORTH_SHARING ? net->lane_count : 1;
    dro__pool_run(net->ctx->pool, r.pieces, reduce_piece, &r);
    int before = dro__onednn_begin();
    if (!op->conv->cls->slope_out(op->conv, net->lanes[0].sum,
                                  net->grads[net->part] + op->node->weight))
        atomic_store(&net->failed, true);
    dro__onednn_end(before);
}

static void run_op(dro__cpu_network *net, dro__program *program, int32_t index, bool back)
{
    dro__run *op = &program->ops[index];
    task t = {net, program, index, back};
    dro__pool_run(net->ctx->pool, op->lanes, run_lane, &t);
    if (!back) {
        dro__tail_forward(net, program, op);
        return;
    }
    if (op->conv)
        conv_finish(net, op);
    else if (op->node && op->node->op == DRO__OP_LINEAR)
        dro__linear_finish(net, program, op);
    for (int k = 0; k < op->input_count; k++)
        dro__tail_backward(net, program, op, &op->in[k], k);
    dro__tail_backward(net, program, op, &op->residual, DRO__USES - 1);
}

/* ---- the loss ---- */

typedef struct loss_task {
    dro__cpu_network *net;
    dro__program *program;
    size_t lanes;
} loss_task;

static void loss_row(const loss_task *t, dro__lane *lane, int part, size_t n)
{
    dro__cpu_network *net = t->net;
    size_t example = net->first[part] + n;
    for (int h = 0; h < DRO__HEADS; h++) {
        if (t->program->heads[h] < 0)
            continue;
        const dro__value *v = &t->program->values[t->program->heads[h]];
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
        if (!v->wants) /* nothing in this head or below it is trained */
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

static void run_loss(dro__cpu_network *net, dro__program *program)
{
    loss_task t = {net, program, net->lane_count};
    dro__pool_run(net->ctx->pool, t.lanes, loss_lane, &t);
}

/* ---- weights into the convolutions ---- */

typedef struct take_task {
    dro__cpu_network *net;
    dro__program *program;
    bool back;
} take_task;

static void take_one(void *arg, size_t k)
{
    const take_task *t = arg;
    const dro__run *op = &t->program->ops[k];
    if (!op->conv || (t->back && (!op->back || !t->program->values[op->in[0].value].wants)))
        return;
    int before = dro__onednn_begin();
    if (!op->conv->cls->take(op->conv, dro__node_parameters(t->net, op->node, op->node->weight),
                             t->back))
        atomic_store(&t->net->failed, true);
    dro__onednn_end(before);
}

static void take_weights(dro__cpu_network *net, dro__program *program, bool back)
{
    take_task t = {net, program, back};
    dro__pool_run(net->ctx->pool, (size_t)program->op_count, take_one, &t);
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
        dro__program_destroy(&net->program[k]);
    dro__onednn_destroy(net->library);
    dro__free(net->convs);
    dro__free(net->lanes);
    dro__free(net->arena);
    dro__free(net->taken);
    dro__free(net->meeting);
    dro__free(net);
}

static dro_status make_lane_sums(dro__cpu_network *net)
{
    size_t outputs = 1;
    for (int32_t i = 0; i < net->graph->count; i++) {
        const dro__node *node = &net->graph->nodes[i];
        size_t padded = ((size_t)node->channels + (size_t)net->block - 1) / (size_t)net->block *
                        (size_t)net->block;
        bool norm = node->op == DRO__OP_NORM || node->op == DRO__OP_CONV;
        net->channels = norm && padded > net->channels ? padded : net->channels;
    }
    for (int h = 0; h < DRO__HEADS; h++)
        if (net->graph->heads[h] >= 0) {
            size_t size = dro__node_size(&net->graph->nodes[net->graph->heads[h]]);
            outputs = size > outputs ? size : outputs;
        }
    net->meeting = dro__alloc(1 + 2 * net->channels, sizeof(double));
    if (!net->meeting)
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
    const dro__program *p = &net->program[1];
    for (int32_t i = 0; i < p->op_count; i++) {
        const dro__run *op = &p->ops[i];
        bool lone = op->node && (op->conv || op->node->op == DRO__OP_LINEAR);
        reached += lone && op->back && !op->node->frozen;
    }
    for (int32_t k = 0; k < p->tail_count; k++)
        reached += p->tails[k].norm && !p->tails[k].norm->frozen;
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
    net->block = dro__onednn_block();
    net->lane_count = threads > 1 ? (size_t)(LANES_PER_THREAD * threads) : 1;
    net->lanes = dro__alloc(net->lane_count, sizeof *net->lanes);
    net->convs = dro__alloc((size_t)graph->count, sizeof *net->convs);
    net->taken = dro__alloc(graph->statistics_size + 1, sizeof *net->taken);
    dro_status status = DRO_OK;
    if (!net->lanes || !net->convs || !net->taken)
        status = dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a network");
    if (status == DRO_OK)
        status = dro__onednn_create(ctx, (int)net->lane_count, &net->library);
    if (status == DRO_OK)
        status = make_lane_sums(net);
    for (int training = 0; status == DRO_OK && training < 2; training++)
        status = dro__program_create(net, training);
    if (status != DRO_OK) {
        destroy(net);
        return status;
    }
    net->stray = has_stray(net);
    *out = net;
    return DRO_OK;
}

static dro_status begin(dro__cpu_network *net, dro__program *program, const float *w,
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
    DRO_TRY(dro__network_room(net, program, parts, part_count));
    atomic_store(&net->failed, false);
    memcpy(net->taken, net->memory.statistics, net->graph->statistics_size * sizeof *net->taken);
    for (int32_t k = 0; k < program->tail_count; k++)
        dro__tail_constants(net, &program->tails[k]);
    take_weights(net, program, false);
    for (net->part = 0; net->part < part_count; net->part++) {
        for (int32_t i = 0; i < program->op_count; i++)
            run_op(net, program, i, false);
        if (losses)
            run_loss(net, program);
    }
    return DRO_OK;
}

static dro_status finish(dro__cpu_network *net)
{
    if (atomic_load(&net->failed))
        return dro__fail(net->ctx, DRO_ERR_STATE, "oneDNN failed to run a convolution");
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
    dro__program *program = &net->program[1];
    net->w = w;
    net->coef = coef;
    net->grads = grads;
    for (int k = 0; net->stray && k < net->part_count; k++)
        memset(grads[k], 0, net->graph->dim * sizeof *grads[k]);
    take_weights(net, program, true);
    for (net->part = 0; net->part < net->part_count; net->part++) {
        run_loss(net, program);
        for (int32_t i = program->op_count - 1; i >= 0; i--)
            if (program->ops[i].back)
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
    dro__program *program = &net->program[0];
    DRO_TRY(begin(net, program, w, batch, 1, losses));
    const dro__value *v = &program->values[program->heads[0]];
    net->part = 0;
    if (logits)
        memcpy(logits, dro__value_at(net, program, v->data, v->size, 0),
               batch->count * v->size * sizeof *logits);
    return finish(net);
}

const dro__net_backend dro__cpu_net = {
    .syncs = true,
    .create = create,
    .destroy = destroy,
    .forward = forward,
    .backward = backward,
    .accept = accept,
    .evaluate = evaluate,
};
