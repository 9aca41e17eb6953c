/* The host code of the cuda backend (compile.c, place.c, forward.c, backward.c, net.c, dnn.c,
 * library.c) on the CPU, with stand-ins for kernels and libraries, against the reference: random
 * networks, in tf32 and fp32, of which the programs differ (our own convolutions or none); bf16 is
 * left out, its values would be of another type everywhere. Losses, gradients and running
 * statistics of a call of one part and of one of two, logits and losses of evaluations behind them,
 * and that both programs of a network have the same convolutions. The same of two ranks that have a
 * slice of each part and one batch norm.
 *
 * test_cuda_host [SEED [COUNT]]: those networks, and what they are. */
#include "nccl.h"
#include "networks.h"
#include "nn.h"
#include "ranks.h"
#include "stand_ins.h"
#include "steps.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 600, EXAMPLES_MOST = 6, CALLS = 2 };

/* What all backends are given. */
typedef struct given {
    size_t count, first; /* examples; of the first part of a call of two */
    int parts[CALLS];
    float *w, *x;
    float coef[EXAMPLES_MOST], targets[EXAMPLES_MOST * OUTPUTS];
    bool targets_of[2]; /* by part of a call of two */
    dro_mix mixes[EXAMPLES_MOST];
    bool mixed[2]; /* likewise */
    int32_t labels[EXAMPLES_MOST];
    uint64_t keys[EXAMPLES_MOST];
} given;

/* What a call gives, and the evaluation behind it. */
typedef struct outcome {
    float losses[EXAMPLES_MOST], eval_losses[EXAMPLES_MOST], logits[EXAMPLES_MOST * OUTPUTS];
    float *grads[2], *running;
} outcome;

static int failures;
static long seen_own, seen_lazy, seen_filled, seen_slices, seen_folds, seen_residuals, seen_deep,
    seen_caps, seen_ranks;

static void *zeros(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory)
        abort();
    return memory;
}

static void say_status(const char *what, uint64_t seed, const dro_context *ctx)
{
    printf("seed %llu: %s: %s\n", (unsigned long long)seed, what, dro_context_error(ctx));
    failures++;
}

static given give(const dro_net *net, drawn *about)
{
    uint64_t *s = &about->state;
    size_t size = (size_t)about->channels * (size_t)about->height * (size_t)about->width;
    given g = {.count = 4 + (size_t)draw(s, 3), .first = 2};
    g.first += (size_t)draw(s, (int)g.count - 3);
    g.parts[0] = 1 + draw(s, 2);
    g.parts[1] = 3 - g.parts[0];
    g.w = zeros(dro_net_dim(net), sizeof *g.w);
    g.x = zeros(g.count * size, sizeof *g.x);
    memcpy(g.w, dro_net_weights(net), dro_net_dim(net) * sizeof *g.w);
    for (size_t j = 0; j < dro_net_dim(net); j++)
        g.w[j] += 0.2f * draw_real(s);
    for (size_t j = 0; j < g.count * size; j++)
        g.x[j] = 1.5f * draw_real(s);
    for (size_t i = 0; i < g.count; i++) {
        g.labels[i] = draw(s, OUTPUTS);
        g.coef[i] = 0.2f + (float)draw(s, 1000) / 2000;
        g.keys[i] = (uint64_t)draw(s, 1000000);
    }
    for (size_t j = 0; j < g.count * OUTPUTS; j++)
        g.targets[j] = draw_real(s);
    g.targets_of[0] = about->targets;
    g.targets_of[1] = about->targets && draw(s, 2);
    for (size_t i = 0; i < g.count; i++)
        g.mixes[i] = (dro_mix){.label = draw(s, OUTPUTS), .share = 1 - (float)draw(s, 11) / 20};
    for (int k = 0; k < 2; k++)
        g.mixed[k] = !about->targets && draw(s, 2);
    return g;
}

/* The parts of a call. */
static void parts_of(const given *g, const drawn *about, int parts, dro_net_batch *to)
{
    size_t size = (size_t)about->channels * (size_t)about->height * (size_t)about->width;
    for (int k = 0; k < parts; k++) {
        size_t from = k ? g->first : 0, end = k + 1 == parts ? g->count : g->first;
        to[k] = (dro_net_batch){.count = end - from,
                                .x = g->x + from * size,
                                .labels = g->labels + from,
                                .targets = g->targets_of[k] ? g->targets + from * OUTPUTS : NULL,
                                .mixes = g->mixed[k] ? g->mixes + from : NULL,
                                .keys = g->keys + from};
    }
}

/* Both calls. What the first one left behind in the values is spoilt. The second evaluation has one
 * example less, or it would be recorded. */
static dro_status run(dro_net *net, dro__cuda_network *live, const given *g, const drawn *about,
                      outcome *out)
{
    for (int call = 0; call < CALLS; call++) {
        outcome *o = &out[call];
        dro_net_batch parts[2];
        for (int k = 0; live && k < 2; k++)
            stand_ins_dirty(live->program[k].memory);
        for (int k = 0; k < 2; k++)
            o->grads[k] = zeros(dro_net_dim(net), sizeof(float));
        o->running = zeros(dro_net_statistics_count(net), sizeof(float));
        parts_of(g, about, g->parts[call], parts);
        DRO_TRY(dro_net_forward(net, g->w, parts, g->parts[call], o->losses));
        DRO_TRY(dro_net_backward(net, g->w, g->coef, o->grads));
        dro_net_accept(net);
        DRO_TRY(dro_net_statistics(net, o->running));
        parts_of(g, about, 1, parts);
        parts[0].count -= (size_t)call;
        DRO_TRY(dro_net_evaluate(net, g->w, parts, o->logits, o->eval_losses));
    }
    return DRO_OK;
}

static void outcomes_free(outcome *out)
{
    for (int call = 0; call < CALLS; call++)
        free(out[call].grads[0]), free(out[call].grads[1]), free(out[call].running);
}

/* ---- comparing ---- */

/* |a - b| and |b| */
static void lengths(size_t n, const float *a, const float *b, double *difference, double *size)
{
    *difference = *size = 0;
    for (size_t i = 0; i < n; i++) {
        *difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        *size += (double)b[i] * (double)b[i];
    }
    *difference = sqrt(*difference);
    *size = sqrt(*size);
}

/* Whether a is not b, up to `share` of b's size and what is `least` anyway. */
static bool off(const char *what, size_t n, const float *a, const float *b, double share,
                double least)
{
    double difference, size;
    lengths(n, a, b, &difference, &size);
    if (difference <= share * size + least)
        return false;
    printf("  %s: %.3g off, of %.3g\n", what, difference, size);
    return true;
}

/* Tensor by tensor, so that a small one counts. Below a cosine classifier a gradient can be zero
 * but for rounding: the cosine does not change with the length of its input. */
static bool gradient_off(const dro_net *net, int part, const float *a, const float *b)
{
    const double rounding = 1e-6;
    double difference, size;
    bool wrong = false;
    char what[96];
    dro_tensor t;
    lengths(dro_net_dim(net), a, b, &difference, &size);
    for (size_t k = 0; dro_net_tensor(net, k, &t) == DRO_OK; k++) {
        size_t count = 1;
        for (int j = 0; j < t.rank; j++)
            count *= (size_t)t.shape[j];
        snprintf(what, sizeof what, "the gradient of %s by part %d", t.name, part);
        if (t.trained)
            wrong |= off(what, count, a + t.offset, b + t.offset, 1e-3, 1e-4 * size + rounding);
    }
    return wrong;
}

/* Whether a head is above a node. (The reference moves the statistics of the others too.) */
static bool matters(const dro__graph *g, int32_t node)
{
    bool below = node == g->heads[0] || node == g->heads[1];
    for (int32_t i = node + 1; i < g->count && !below; i++)
        for (int k = 0; k < g->nodes[i].input_count && !below; k++)
            below = g->nodes[i].inputs[k] == node && matters(g, i);
    return below;
}

static bool statistics_off(const dro_net *net, const float *a, const float *b)
{
    bool wrong = false;
    char what[96];
    for (size_t k = 0; k < net->tensor_count; k++) {
        const dro__net_entry *t = &net->tensors[k];
        if (t->place != DRO__IN_STATISTICS || !matters(&net->graph, t->node))
            continue;
        snprintf(what, sizeof what, "%s", t->name);
        wrong |= off(what, t->count, a + t->offset, b + t->offset, 1e-4, 1e-5);
    }
    return wrong;
}

static bool outcome_off(const dro_net *net, const given *g, int call, const outcome *a,
                        const outcome *b)
{
    size_t shown = g->count - (size_t)call;
    bool wrong = off("losses", g->count, a->losses, b->losses, 1e-4, 1e-5);
    for (int part = 0; part < g->parts[call]; part++)
        wrong |= gradient_off(net, part, a->grads[part], b->grads[part]);
    wrong |= statistics_off(net, a->running, b->running);
    wrong |= off("logits of the evaluation", shown * OUTPUTS, a->logits, b->logits, 1e-4, 1e-5);
    wrong |= off("losses of the evaluation", shown, a->eval_losses, b->eval_losses, 1e-4, 1e-5);
    return wrong;
}

static const dro__gop *conv_of(const dro__gprogram *p, int32_t index)
{
    for (int32_t i = 0; i < p->base.operation_count; i++)
        if (p->ops[i].base.op == DRO__OP_CONV && p->ops[i].base.index == index)
            return &p->ops[i];
    return NULL;
}

/* Weights are packed once, as the training program's convolutions read them. */
static bool programs_differ(const dro__cuda_network *net)
{
    bool differ = false;
    const dro__gprogram *p = &net->program[0], *q = &net->program[1];
    for (int32_t i = 0; i < p->base.operation_count; i++) {
        const dro__gop *op = &p->ops[i];
        if (op->base.op != DRO__OP_CONV)
            continue;
        const dro__gop *other = conv_of(q, op->base.index);
        int stored[2] = {p->values[op->base.in[0].value].stored,
                         other ? q->values[other->base.in[0].value].stored : -1};
        if (other && op->own == other->own && op->folded == other->folded && stored[0] == stored[1])
            continue;
        printf("  node %d of the two programs: own %d and %d, channels in memory %d and %d\n",
               op->base.index, op->own, other ? other->own : -1, stored[0], stored[1]);
        differ = true;
    }
    return differ;
}

/* What the programs made of the networks: a test that no longer meets a case has lost it. */
static void look(const dro__gprogram *p)
{
    for (int32_t i = 0; i < p->base.operation_count; i++) {
        const dro__gvalue *v = &p->values[p->ops[i].base.end];
        seen_own += p->ops[i].own;
        seen_deep += p->ops[i].base.op == DRO__OP_DEPTHWISE;
        seen_caps += v->base.tail >= 0 && !dro__conv3_knows(&p->tails[v->base.tail]);
        seen_folds += p->ops[i].folded;
        seen_lazy += v->lazy;
        seen_filled += v->filler >= 0;
        seen_slices += v->whole >= 0;
        seen_residuals += v->base.tail >= 0 && p->tails[v->base.tail].base.residual >= 0;
    }
}

/* One precision; `expected` is the reference's. */
static void check(uint64_t seed, const char *precision, const given *g, const outcome *expected)
{
    dro_context *ctx = NULL;
    drawn about;
    outcome got[CALLS] = {{.running = NULL}};
    bool adds = draw(&(uint64_t){seed * 3 + 1}, 2), late = seed % 2, wrong = false;
    stand_ins_begin(adds, late);
    dro_context_create("cuda", 1, &ctx);
    dro_net *net = draw_network(ctx, seed, precision, &about);
    if (!net) {
        say_status(precision, seed, ctx);
    } else if (run(net, net->live, g, &about, got) != DRO_OK) {
        say_status(precision, seed, ctx);
        printf("  %s\n", about.text);
    } else {
        const dro__cuda_network *live = net->live;
        for (int call = 0; call < CALLS; call++)
            if (outcome_off(net, g, call, &got[call], &expected[call])) {
                printf("  in a call of %d part%s and the evaluation after it\n", g->parts[call],
                       g->parts[call] == 1 ? "" : "s");
                wrong = true;
            }
        wrong |= programs_differ(live);
        look(&live->program[1]);
    }
    if (wrong) {
        failures++;
        printf("seed %llu, %s%s%s: see above\n  %s\n", (unsigned long long)seed, precision,
               adds ? ", cuDNN adds" : "", late ? ", late weight gradients" : "", about.text);
    }
    outcomes_free(got);
    dro_net_destroy(net);
    dro_context_destroy(ctx);
}

/* ---- two ranks ---- */

/* What the two ranks compute, in memory that both see: of each rank and call, the losses, the
 * gradients of both parts, the running statistics. */
typedef struct rank_call {
    float *losses, *grads[2], *running;
} rank_call;

static rank_call rank_call_at(const dro_net *net, float *bytes, int rank, int call)
{
    size_t dim = dro_net_dim(net), each = EXAMPLES_MOST + 2 * dim + dro_net_statistics_count(net);
    float *from = bytes + (size_t)(rank * CALLS + call) * each, *grads = from + EXAMPLES_MOST;
    return (rank_call){from, {grads, grads + dim}, grads + 2 * dim};
}

/* Which examples of a part of `count` are whose: an uneven cut where it can be. */
static void slice_of(int rank, size_t count, size_t *first, size_t *end)
{
    size_t middle = (count + 1) / 2;
    *first = rank ? middle : 0;
    *end = rank ? count : middle;
}

static dro_status run_rank(dro_net *net, const given *g, const drawn *about, int rank, float *bytes)
{
    size_t size = (size_t)about->channels * (size_t)about->height * (size_t)about->width;
    for (int call = 0; call < CALLS; call++) {
        rank_call out = rank_call_at(net, bytes, rank, call);
        dro_net_batch parts[2];
        float losses[EXAMPLES_MOST], coef[EXAMPLES_MOST];
        size_t at = 0, whole = 0, froms[2] = {0}, counts[2] = {0};
        parts_of(g, about, g->parts[call], parts);
        for (int k = 0; k < g->parts[call]; k++) {
            size_t first, end;
            slice_of(rank, parts[k].count, &first, &end);
            memcpy(coef + at, g->coef + whole + first, (end - first) * sizeof *coef);
            at += counts[k] = end - first;
            froms[k] = whole + first;
            whole += parts[k].count;
            parts[k].x += first * size, parts[k].labels += first, parts[k].keys += first;
            if (parts[k].targets)
                parts[k].targets += first * OUTPUTS;
            if (parts[k].mixes)
                parts[k].mixes += first;
            parts[k].count = end - first;
        }
        DRO_TRY(dro_net_forward(net, g->w, parts, g->parts[call], losses));
        DRO_TRY(dro_net_backward(net, g->w, coef, out.grads));
        dro_net_accept(net);
        DRO_TRY(dro_net_statistics(net, out.running));
        for (int k = 0, from = 0; k < g->parts[call]; from += (int)counts[k++])
            memcpy(out.losses + froms[k], losses + from, counts[k] * sizeof *losses);
    }
    return DRO_OK;
}

/* The sums of both ranks against the reference's. */
static bool ranks_off(const dro_net *net, const given *g, float *bytes, const outcome *expected)
{
    bool wrong = false;
    for (int call = 0; call < CALLS; call++) {
        rank_call a = rank_call_at(net, bytes, 0, call), b = rank_call_at(net, bytes, 1, call);
        for (size_t i = 0; i < g->count; i++)
            a.losses[i] += b.losses[i];
        for (size_t i = 0; i < 2 * dro_net_dim(net); i++)
            a.grads[0][i] += b.grads[0][i];
        wrong |= off("losses", g->count, a.losses, expected[call].losses, 1e-4, 1e-5);
        for (int part = 0; part < g->parts[call]; part++)
            wrong |= gradient_off(net, part, a.grads[part], expected[call].grads[part]);
        wrong |= statistics_off(net, a.running, expected[call].running);
        wrong |= statistics_off(net, b.running, expected[call].running);
    }
    return wrong;
}

/* on_device: the norms meet as NCCL's sums do, not on the host. */
static void check_ranks(uint64_t seed, bool on_device, const given *g, const outcome *expected)
{
    dro_context *ctx = NULL;
    drawn about;
    void *bytes = NULL;
    stand_ins_begin(false, seed % 2);
    dro_context_create("cuda", 1, &ctx);
    dro_net *net = draw_network(ctx, seed, "tf32", &about);
    size_t size = net ? sizeof(float) * 2 * CALLS *
                            (EXAMPLES_MOST + 2 * dro_net_dim(net) + dro_net_statistics_count(net))
                      : 0;
    int rank = net ? two_ranks_begin(size, &bytes) : -1;
    if (rank < 0) {
        say_status("two ranks", seed, ctx);
        return;
    }
    struct dro__device_comm *device = NULL;
    unsigned char id[DRO__DEVICE_ID];
    dro_status status = DRO_OK;
    if (on_device)
        status = dro__cuda_comms.name(ctx, id);
    if (on_device && status == DRO_OK)
        status = dro__cuda_comms.open(ctx, id, rank, 2, true, &device);
    net->sync.merge = two_ranks_merge;
    net->sync.device = device;
    if (status == DRO_OK)
        status = run_rank(net, g, &about, rank, bytes);
    if (status != DRO_OK)
        say_status("two ranks", seed, ctx);
    bool well = two_ranks_end(rank);
    if (!well || (status == DRO_OK && ranks_off(net, g, bytes, expected))) {
        failures++;
        printf("seed %llu, two ranks that meet on the %s: see above\n  %s\n",
               (unsigned long long)seed, on_device ? "device" : "host", about.text);
    }
    seen_ranks++;
    two_ranks_free(bytes, size);
    dro_net_destroy(net);
    dro_context_destroy(ctx);
}

static void check_seed(uint64_t seed, bool tell)
{
    dro_context *ctx = NULL;
    drawn about;
    outcome expected[CALLS] = {{.running = NULL}};
    dro_context_create("ref", 1, &ctx);
    dro_net *net = draw_network(ctx, seed, "tf32", &about);
    if (!net) {
        say_status("ref", seed, ctx);
        dro_context_destroy(ctx);
        return;
    }
    if (tell)
        printf("seed %llu: %s\n", (unsigned long long)seed, about.text);
    given g = give(net, &about);
    if (run(net, NULL, &g, &about, expected) == DRO_OK) {
        check(seed, "tf32", &g, expected);
        check(seed, "fp32", &g, expected);
        if (seed % 8 == 0)
            check_ranks(seed, seed % 16 == 0, &g, expected);
    } else {
        say_status("ref", seed, ctx);
    }
    outcomes_free(expected);
    free(g.w), free(g.x);
    dro_net_destroy(net);
    dro_context_destroy(ctx);
}

static volatile uint64_t now;

static void crashed(int signal_number)
{
    printf("FAILED: seed %llu ended with signal %d\n", (unsigned long long)now, signal_number);
    fflush(stdout);
    _Exit(1);
}

int main(int argc, char **argv)
{
    if (setenv("DRO_NCCL", FAKE_NCCL, 1) != 0 || dro__cuda_comms.missing()) {
        printf("FAILED: %s: %s\n", FAKE_NCCL, dro__cuda_comms.missing());
        return 1;
    }
    signal(SIGSEGV, crashed);
    signal(SIGABRT, crashed);
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 0,
             count = argc > 2   ? strtoull(argv[2], NULL, 10)
                     : argc > 1 ? 1
                                : SEEDS;
    for (now = first; now < first + count; now++)
        check_seed(now, argc > 1);
    printf(
        "%llu networks: %ld convolutions of our own, %ld folded, %ld lazy values, %ld filled by "
        "a reader, %ld slices, %ld residuals, %ld depthwise, %ld ReLU6; %ld of them on two ranks; "
        "%d failures\n",
        (unsigned long long)count, seen_own, seen_folds, seen_lazy, seen_filled, seen_slices,
        seen_residuals, seen_deep, seen_caps, seen_ranks, failures);
    if (argc == 1)
        failures += check_steps();
    bool all = seen_own && seen_folds && seen_lazy && seen_filled && seen_slices &&
               seen_residuals && seen_deep && seen_caps;
    if (argc == 1 && !all)
        printf("FAILED: the networks no longer have all of these\n");
    return failures > 0 || (argc == 1 && !all);
}
