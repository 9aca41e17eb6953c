/* Convolutions as layers: which kind does one, a chunk of examples forward and backward, and the
 * gradient by the weights, which lanes sum up for themselves first. */
#include "net.h"

#include "conv_winograd.h"

#include <string.h>

dro_status dro__conv_make(dro__cpu_program *p, dro__cpu_op *op)
{
    dro__cpu_network *net = p->base.net;
    const dro__graph_node *node = op->base.node;
    const dro__value *in = &p->values[op->base.in[0].value].base;
    dro__conv_shape shape = {.in = in->channels,
                             .in_height = in->height,
                             .in_width = in->width,
                             .out = node->channels,
                             .height = p->values[op->base.end].base.height,
                             .width = p->values[op->base.end].base.width,
                             .groups = node->groups,
                             .window = node->window,
                             .plain = in->form == DRO__PLAIN,
                             .data = in->wants,
                             .weight = !node->frozen};
    dro__conv **conv = &net->convs[op->base.index]; /* both programs have the same */
    bool own = dro__conv_winograd_fits(&shape, net->block);
    if (!*conv && !own && !net->library)
        DRO_TRY(dro__onednn_create(net->ctx, (int)net->lane_count, &net->library));
    if (!*conv)
        DRO_TRY(own ? dro__conv_winograd(net->ctx, &shape, net->block, conv)
                    : dro__onednn_conv(net->library, &shape, conv));
    op->conv = *conv;
    return DRO_OK;
}

dro_status dro__conv_weights(dro_context *ctx, dro__conv *conv, size_t floats)
{
    conv->slope_size = floats;
    for (int back = 0; back < (conv->shape.data ? 2 : 1); back++)
        if (!(conv->weights[back] = dro__alloc(floats, sizeof(float))))
            return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a convolution");
    return DRO_OK;
}

void dro__conv_free(dro__conv *conv)
{
    dro__free(conv->weights[0]);
    dro__free(conv->weights[1]);
    dro__free(conv);
}

/* ---- a chunk ---- */

static dro__conv_chunk chunk_of(const dro__piece *piece)
{
    return (dro__conv_chunk){piece->lane_index, piece->count, piece->lane->scratch,
                             piece->lane->spare};
}

static bool forward(const dro__piece *piece)
{
    const dro__conv_chunk chunk = chunk_of(piece);
    dro__cpu_program *p = piece->program;
    dro__conv *conv = piece->op->conv;
    const dro__cpu_value *v = &p->values[piece->op->base.end];
    const dro__cpu_tail *tail = &p->tails[v->base.tail];
    const float *x = dro__piece_value(piece, piece->op->base.in[0].value, 0);
    int64_t place = tail->base.deferred ? tail->z : v->data;
    float *z = dro__value_at(piece->net, p, place, v->size, piece->first);
    if (!conv->cls->forward(conv, &chunk, x, z))
        return false;
    if (tail->base.deferred)
        dro__piece_moments(piece, z);
    else
        dro__piece_apply(piece, v, z, 1, z);
    return true;
}

/* This piece's gradient by the weights, added to the lane's. */
static bool add_slope(const dro__piece *piece, const float *dz)
{
    const dro__conv_chunk chunk = chunk_of(piece);
    dro__lane *lane = piece->lane;
    dro__conv *conv = piece->op->conv;
    const float *x = dro__piece_value(piece, piece->op->base.in[0].value, 0);
    if (!conv->cls->slope(conv, &chunk, x, dz, !lane->any, lane->sum))
        return false;
    lane->any = true;
    return true;
}

static bool backward(const dro__piece *piece)
{
    const dro__conv_chunk chunk = chunk_of(piece);
    dro__conv *conv = piece->op->conv;
    const dro__use *in = &piece->op->base.in[0];
    const dro__cpu_value *from = &piece->program->values[in->value];
    const float *dz = dro__piece_slope(piece, piece->op->base.end, 2);
    if (!piece->op->base.node->frozen && !add_slope(piece, dz))
        return false;
    if (!from->base.wants)
        return true;
    float *dx = dro__piece_grad(piece, in->value), *to = in->first ? dx : piece->lane->slots[3];
    if (!conv->cls->data(conv, &chunk, dz, to))
        return false;
    if (!in->first)
        dro__floats_add(piece->count * from->size, dx, to);
    return true;
}

void dro__conv_run(const dro__piece *piece, bool back)
{
    if (!(back ? backward(piece) : forward(piece)))
        atomic_store(&piece->net->failed, true);
}

/* ---- gradients by the weights: the lanes' sums ---- */

typedef struct reduction {
    dro__cpu_network *net;
    const dro__cpu_op *op;
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

void dro__conv_finish(dro__cpu_network *net, dro__cpu_program *program, const dro__cpu_op *op)
{
    enum { WORTH_SHARING = 1 << 15 };
    (void)program;
    if (op->base.node->frozen)
        return;
    reduction r = {net, op, op->conv->slope_size, 1};
    r.pieces = r.size > WORTH_SHARING ? net->lane_count : 1;
    dro__pool_run(net->ctx->pool, r.pieces, reduce_piece, &r);
    if (!op->conv->cls->slope_out(op->conv, net->lanes[0].sum,
                                  net->grads[net->part] + op->base.node->weight))
        atomic_store(&net->failed, true);
}

/* ---- weights into the convolutions ---- */

typedef struct take_task {
    dro__cpu_network *net;
    dro__cpu_program *program;
    bool back;
} take_task;

static void take_one(void *arg, size_t k)
{
    const take_task *t = arg;
    const dro__cpu_op *op = &t->program->ops[k];
    bool wants = t->program->values[op->base.in[0].value].base.wants;
    if (!op->conv || (t->back && (!op->base.back || !wants)))
        return;
    const dro__graph_node *node = op->base.node;
    if (!op->conv->cls->take(op->conv, dro__node_parameters(t->net, node, node->weight), t->back))
        atomic_store(&t->net->failed, true);
}

void dro__conv_take(dro__cpu_network *net, dro__cpu_program *program, bool back)
{
    take_task t = {net, program, back};
    dro__pool_run(net->ctx->pool, (size_t)program->base.operation_count, take_one, &t);
}
