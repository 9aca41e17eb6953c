/* Tails: bias, batch norm, residual and ReLU behind a convolution, computed where a value or a
 * slope is read. See net.h. */
#include "net.h"

#include <math.h>
#include <string.h>

const float *dro__node_parameters(const dro__cpu_network *net, const dro__graph_node *node,
                                  int64_t offset)
{
    return (node->frozen ? net->memory.frozen : net->w) + offset;
}

/* A piece of a value with a tail. */
static dro__chunk chunk_of(const dro__piece *piece, const dro__cpu_value *v)
{
    const dro__cpu_tail *t = &piece->program->tails[v->base.tail];
    size_t at = (size_t)piece->part * t->channels, block = (size_t)piece->net->block;
    return (dro__chunk){.count = piece->count,
                        .blocks = t->channels / block,
                        .area = (size_t)v->base.height * (size_t)v->base.width,
                        .block = piece->net->block,
                        .mean = t->mean + at,
                        .scale = t->scale + at,
                        .shift = t->shift + at,
                        .p = t->p + at,
                        .q = t->q + at,
                        .r = t->r + at,
                        .cap = t->base.cap};
}

static const float *z_of(const dro__piece *piece, const dro__cpu_value *v,
                         const dro__cpu_tail *tail)
{
    if (!tail->base.conv)
        return dro__piece_value(piece, tail->base.source, 0);
    return dro__value_at(piece->net, piece->program, tail->z, v->size, piece->first);
}

void dro__piece_apply(const dro__piece *piece, const dro__cpu_value *v, const float *z, int slot,
                      float *y)
{
    const dro__cpu_tail *tail = &piece->program->tails[v->base.tail];
    const float *residual =
        tail->base.residual < 0 ? NULL : dro__piece_value(piece, tail->base.residual, slot);
    dro__chunk chunk = chunk_of(piece, v);
    dro__chunk_apply(&chunk, z, residual, y);
}

const float *dro__piece_value(const dro__piece *piece, int32_t value, int slot)
{
    const dro__cpu_program *p = piece->program;
    const dro__cpu_value *v = &p->values[value];
    if (v->base.maker < 0) {
        size_t begin = piece->net->first[piece->part];
        return piece->net->parts[piece->part].x + (piece->first - begin) * v->size;
    }
    float *data = v->data < 0 ? NULL : dro__value_at(piece->net, p, v->data, v->size, piece->first);
    const dro__cpu_tail *tail = v->base.tail < 0 ? NULL : &p->tails[v->base.tail];
    if (!tail || !tail->base.deferred)
        return data;
    bool filling = v->fill == piece->op_index && !piece->net->coef;
    if (data && !filling)
        return data;
    float *to = data ? data : piece->lane->slots[slot];
    dro__piece_apply(piece, v, z_of(piece, v, tail), slot + 1, to);
    return to;
}

float *dro__piece_grad(const dro__piece *piece, int32_t value)
{
    const dro__cpu_value *v = &piece->program->values[value];
    return dro__value_at(piece->net, piece->program, v->grad, v->size, piece->first);
}

static double *sums_of(const dro__cpu_network *net, const dro__lane *lane, int use_index)
{
    return lane->moments + 2 * net->channels * (size_t)use_index;
}

void dro__piece_close(const dro__piece *piece, const dro__use *use, int use_index)
{
    const dro__cpu_value *v = &piece->program->values[use->value];
    if (!use->last || v->base.tail < 0)
        return;
    const dro__cpu_tail *tail = &piece->program->tails[v->base.tail];
    dro__chunk chunk = chunk_of(piece, v);
    const float *y = NULL, *z = tail->base.deferred ? z_of(piece, v, tail) : NULL;
    if (tail->base.cap > 0 && v->data >= 0)
        y = dro__value_at(piece->net, piece->program, v->data, v->size, piece->first);
    dro__chunk_close(&chunk, dro__piece_grad(piece, use->value), y, z,
                     sums_of(piece->net, piece->lane, use_index));
}

const float *dro__piece_slope(const dro__piece *piece, int32_t value, int slot)
{
    const dro__cpu_value *v = &piece->program->values[value];
    const dro__cpu_tail *tail = &piece->program->tails[v->base.tail];
    const float *g = dro__piece_grad(piece, value);
    if (!tail->base.norm)
        return g;
    dro__chunk chunk = chunk_of(piece, v);
    const float *z = tail->base.deferred ? z_of(piece, v, tail) : NULL;
    dro__chunk_slope(&chunk, g, z, piece->lane->slots[slot]);
    return piece->lane->slots[slot];
}

/* A lane's sums for one use, to 0. */
void dro__lane_clear(const dro__cpu_network *net, dro__lane *lane, size_t channels, int use_index)
{
    memset(sums_of(net, lane, use_index), 0, 2 * channels * sizeof(double));
}

void dro__piece_moments(const dro__piece *piece, const float *z)
{
    const dro__cpu_value *v = &piece->program->values[piece->op->base.end];
    dro__chunk chunk = chunk_of(piece, v);
    dro__chunk_moments(&chunk, z, sums_of(piece->net, piece->lane, 0), &piece->lane->seen);
}

/* ---- between operations ---- */

/* scale, shift, inverse and p from a channel's moments. */
static void set_affine(const dro__cpu_network *net, dro__cpu_tail *tail, int part, size_t c,
                       double mean, double variance)
{
    size_t at = (size_t)part * tail->channels + c;
    const float *gamma = dro__node_parameters(net, tail->base.norm, tail->base.norm->weight);
    const float *beta = dro__node_parameters(net, tail->base.norm, tail->base.norm->bias);
    double inverse = 1 / sqrt(variance + (double)tail->base.norm->eps);
    tail->mean[at] = (float)mean;
    tail->inverse[at] = (float)inverse;
    tail->scale[at] = tail->p[at] = (float)((double)gamma[c] * inverse);
    /* corrects for the rounding of the mean */
    tail->shift[at] =
        (float)((double)beta[c] - (mean - (double)tail->mean[at]) * (double)gamma[c] * inverse);
}

/* Tails whose numbers do not depend on the batch. */
void dro__tail_constants(dro__cpu_network *net, dro__cpu_tail *tail)
{
    if (tail->base.deferred)
        return;
    const dro__graph_node *node = tail->base.norm ? tail->base.norm : tail->base.conv;
    const float *bias = tail->base.conv && tail->base.conv->has_bias
                            ? dro__node_parameters(net, tail->base.conv, tail->base.conv->bias)
                            : NULL;
    for (int part = 0; part < DRO__PARTS; part++)
        for (size_t c = 0; c < (size_t)node->channels; c++) {
            size_t at = (size_t)part * tail->channels + c;
            double shift = bias ? (double)bias[c] : 0;
            if (tail->base.norm) {
                const float *run = net->memory.statistics + tail->base.norm->running;
                set_affine(net, tail, part, c, (double)run[c] - shift,
                           (double)run[node->channels + (int)c]);
            } else {
                tail->scale[at] = tail->p[at] = 1;
                tail->shift[at] = (float)shift;
            }
        }
}

/* All lanes' moments into the first one's, in the order of the lanes. */
static double merge_moments(const dro__cpu_network *net, const dro__cpu_op *op,
                            const dro__cpu_tail *tail)
{
    double seen = 0, *into = sums_of(net, &net->lanes[0], 0);
    for (size_t l = 0; l < op->lanes; l++) {
        const dro__lane *lane = &net->lanes[l];
        const double *from = sums_of(net, lane, 0);
        double m = lane->seen, all = seen + m;
        size_t count = tail->channels;
        for (size_t c = 0; m > 0 && l > 0 && c < count; c++) {
            double away = from[c] - into[c];
            into[count + c] += from[count + c] + away * away * seen * m / all;
            into[c] += away * m / all;
        }
        seen = all;
    }
    return seen;
}

/* Merges this network's moments (in the first lane's sums) with those of all networks; returns
 * their n. */
static double sync_forward(const dro__cpu_network *net, const dro__cpu_tail *tail, double m)
{
    size_t channels = (size_t)tail->base.norm->channels;
    double *mean = sums_of(net, &net->lanes[0], 0), *dev = mean + tail->channels;
    double *values = net->norm_sums;
    if (!dro__net_synced(&net->memory))
        return m;
    values[0] = m;
    memcpy(values + 1, mean, channels * sizeof *mean);
    memcpy(values + 1 + channels, dev, channels * sizeof *dev);
    net->memory.sync->merge(net->memory.sync->user, values, 1 + 2 * channels, dro__moments_merge);
    memcpy(mean, values + 1, channels * sizeof *mean);
    memcpy(dev, values + 1 + channels, channels * sizeof *dev);
    return values[0];
}

/* After an operation's forward: the batch's moments become its tail's numbers. */
void dro__tail_forward(dro__cpu_network *net, dro__cpu_program *program, dro__cpu_op *op)
{
    int32_t index = program->values[op->base.end].base.tail;
    dro__cpu_tail *tail = index < 0 ? NULL : &program->tails[index];
    if (!tail || !tail->base.deferred)
        return;
    size_t channels = (size_t)tail->base.norm->channels;
    const float *bias = tail->base.conv && tail->base.conv->has_bias
                            ? dro__node_parameters(net, tail->base.conv, tail->base.conv->bias)
                            : NULL;
    double m = sync_forward(net, tail, merge_moments(net, op, tail));
    double share = 1.0 / DRO__NORM_MOMENTUM_INVERSE;
    const double *mean = sums_of(net, &net->lanes[0], 0), *dev = mean + tail->channels;
    for (size_t c = 0; c < channels; c++) {
        set_affine(net, tail, net->part, c, mean[c], dev[c] / m);
        if (net->part > 0)
            continue;
        float *run = net->taken + tail->base.norm->running;
        double unbiased = m > 1 ? dev[c] / (m - 1) : dev[c] / m;
        double centre = mean[c] + (bias ? (double)bias[c] : 0);
        run[c] = (float)((1 - share) * (double)run[c] + share * centre);
        run[channels + c] = (float)((1 - share) * (double)run[channels + c] + share * unbiased);
    }
}

/* After the operation that closed a value's slope: the gradients of the tail's own parameters, and
 * what the slope of z needs. */
void dro__tail_backward(dro__cpu_network *net, dro__cpu_program *program, const dro__cpu_op *op,
                        const dro__use *use, int use_index)
{
    if (use->value < 0 || !use->last || program->values[use->value].base.tail < 0)
        return;
    const dro__cpu_value *v = &program->values[use->value];
    dro__cpu_tail *tail = &program->tails[v->base.tail];
    float *grad = net->grads[net->part];
    size_t channels = (size_t)v->base.channels;
    double *sums = net->norm_sums, *dots = sums + channels, *m = dots + channels;
    *m = (double)(net->parts[net->part].count * (size_t)v->base.height * (size_t)v->base.width);
    for (size_t c = 0; c < channels; c++) {
        size_t at = (size_t)net->part * tail->channels + c;
        sums[c] = dots[c] = 0;
        for (size_t l = 0; l < op->lanes; l++) {
            const double *lane = sums_of(net, &net->lanes[l], use_index);
            sums[c] += lane[c];
            dots[c] += lane[tail->channels + c];
        }
        if (tail->base.norm && !tail->base.norm->frozen) {
            grad[tail->base.norm->weight + (int64_t)c] =
                (float)(dots[c] * (double)tail->inverse[at]);
            grad[tail->base.norm->bias + (int64_t)c] = (float)sums[c];
        }
        if (tail->base.conv && tail->base.conv->has_bias && !tail->base.conv->frozen)
            grad[tail->base.conv->bias + (int64_t)c] =
                tail->base.deferred ? 0 : (float)((double)tail->p[at] * sums[c]);
    }
    if (!tail->base.deferred)
        return;
    if (dro__net_synced(&net->memory))
        net->memory.sync->merge(net->memory.sync->user, sums, 1 + 2 * channels, dro__sums_merge);
    for (size_t c = 0; c < channels; c++) {
        size_t at = (size_t)net->part * tail->channels + c;
        double inverse = (double)tail->inverse[at], p = (double)tail->p[at];
        tail->q[at] = (float)(-p * inverse * inverse * dots[c] / *m);
        tail->r[at] = (float)(-p * sums[c] / *m);
    }
}
