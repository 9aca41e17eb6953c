/* What the tests of a backend's networks share: networks to try, and everything that one pass over
 * a fixed batch gives on a backend. */
#ifndef DRO_NETS_H
#define DRO_NETS_H

#include "check.h"

/* For main(): 77, after a line that says why, where the cuda backend does not work; else 0. */
static inline int without_gpu(void)
{
    dro_context *ctx;
    if (dro_context_create("cuda", 1, &ctx) == DRO_OK) {
        dro_context_destroy(ctx);
        return 0;
    }
    const char *why = dro_backend_missing("cuda");
    printf("skipped: %s\n", why ? why : "this build has no cuda backend");
    return 77;
}

static inline double noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 40) / (double)(1 << 24) - 0.5;
}

typedef void (*builder)(dro_net *net);

typedef struct subject {
    const char *model; /* or NULL and build */
    builder build;
    dro_model_shape shape;
    const char *loss, *trained, *precision, *convolutions;
    float lift; /* added to every bias: fewer inputs of ReLUs are near zero */
    /* only the last of so many passes counts; 0: one. A GPU queues the first, records the second
     * and replays that. */
    int passes;
} subject;

/* The place in w of what a convolution or a linear layer multiplies with. */
typedef struct piece {
    char name[64];
    size_t from, count;
} piece;

typedef struct outcome {
    size_t dim, outputs, total, statistics, piece_count;
    float *losses, *logits, *eval_losses, *grads[2], *running;
    piece *pieces;
} outcome;

static inline dro_net *make(dro_context *ctx, const subject *s)
{
    dro_net *net = NULL;
    if (s->model) {
        OK(ctx, dro_net_model(ctx, s->model, &s->shape, &net));
    } else {
        OK(ctx, dro_net_create(ctx, s->shape.channels, s->shape.height, s->shape.width, &net));
        s->build(net);
    }
    if (s->loss)
        OK(ctx, dro_net_set(net, "loss", s->loss));
    if (s->precision)
        OK(ctx, dro_net_set(net, "precision", s->precision));
    if (s->convolutions)
        OK(ctx, dro_net_set(net, "convolutions", s->convolutions));
    if (s->loss) {
        double share[64];
        for (int j = 0; j < s->shape.outputs; j++)
            share[j] = 1.0 / (1 + j);
        OK(ctx, dro_net_prior(net, share, (size_t)s->shape.outputs));
    }
    if (s->trained)
        OK(ctx, dro_net_train_only(net, s->trained));
    OK(ctx, dro_net_ready(net));
    OK(ctx, dro_net_init(net, 7));
    return net;
}

static inline void lift(const dro_net *net, float by, float *w)
{
    dro_tensor t;
    for (size_t k = 0; dro_net_tensor(net, k, &t) == DRO_OK; k++)
        for (int64_t j = 0; t.trained && strstr(t.name, ".bias") && j < t.shape[0]; j++)
            w[t.offset + j] += by;
}

static inline void find_pieces(const dro_net *net, outcome *o)
{
    dro_tensor t;
    o->pieces = malloc((dro_net_tensor_count(net) + 1) * sizeof *o->pieces);
    for (size_t k = 0; dro_net_tensor(net, k, &t) == DRO_OK; k++) {
        if (!t.trained || t.rank < 2)
            continue;
        piece *p = &o->pieces[o->piece_count++];
        snprintf(p->name, sizeof p->name, "%s", t.name);
        p->from = (size_t)t.offset, p->count = 1;
        for (int i = 0; i < t.rank; i++)
            p->count *= (size_t)t.shape[i];
    }
}

static inline outcome run_once(const char *backend, int threads, const subject *s,
                               const size_t *counts, int parts, uint64_t seed)
{
    dro_context *ctx;
    assert_int_equal(dro_context_create(backend, threads, &ctx), DRO_OK);
    dro_net *net = make(ctx, s);
    outcome o = {.dim = dro_net_dim(net),
                 .outputs = (size_t)s->shape.outputs,
                 .total = counts[0] + (parts > 1 ? counts[1] : 0),
                 .statistics = dro_net_statistics_count(net)};
    find_pieces(net, &o);
    size_t size = (size_t)s->shape.channels * (size_t)s->shape.height * (size_t)s->shape.width;
    float *x = malloc(o.total * size * sizeof *x), *coef = malloc(o.total * sizeof *coef);
    float *w = malloc(o.dim * sizeof *w);
    int32_t *labels = malloc(o.total * sizeof *labels);
    uint64_t state = seed;
    memcpy(w, dro_net_weights(net), o.dim * sizeof *w);
    for (size_t j = 0; j < o.dim; j++)
        w[j] += 0.02f * (float)noise(&state);
    lift(net, s->lift, w);
    for (size_t j = 0; j < o.total * size; j++)
        x[j] = 3 * (float)noise(&state);
    for (size_t i = 0; i < o.total; i++) {
        labels[i] = (int32_t)(i * 7 % (o.outputs > 1 ? o.outputs : 2));
        coef[i] = 0.2f + 0.1f * (float)i;
    }
    o.losses = malloc(o.total * sizeof(float));
    o.eval_losses = malloc(o.total * sizeof(float));
    o.logits = malloc(o.total * o.outputs * sizeof(float));
    o.running = malloc((o.statistics + 1) * sizeof(float));
    for (int k = 0; k < 2; k++)
        o.grads[k] = malloc(o.dim * sizeof(float));
    dro_net_batch batch[2] = {{.count = counts[0], .x = x, .labels = labels},
                              {.count = parts > 1 ? counts[1] : 0,
                               .x = x + counts[0] * size,
                               .labels = labels + counts[0]}};
    for (int pass = 0; pass == 0 || pass < s->passes; pass++) {
        OK(ctx, dro_net_forward(net, w, batch, parts, o.losses));
        OK(ctx, dro_net_backward(net, w, coef, o.grads));
    }
    dro_net_accept(net);
    OK(ctx, dro_net_statistics(net, o.running));
    dro_net_batch all = {.count = o.total, .x = x, .labels = labels};
    OK(ctx, dro_net_evaluate(net, w, &all, o.logits, o.eval_losses));
    free(x), free(coef), free(labels), free(w);
    dro_net_destroy(net);
    dro_context_destroy(ctx);
    return o;
}

static inline void outcome_free(outcome *o)
{
    free(o->losses), free(o->eval_losses), free(o->logits), free(o->running);
    free(o->grads[0]), free(o->grads[1]), free(o->pieces);
}

/* Other networks on a GPU, of which each takes a part then. */
enum { COMPANY = 3 };

typedef struct company {
    dro_context *ctx;
    dro_net *nets[COMPANY];
} company;

/* From now on there are so many. */
static inline void keep_company(company *c, int count)
{
    subject s = {.model = "linear", .shape = {4, 1, 1, 2}};
    if (!c->ctx)
        c->ctx = check_context("cuda", 1);
    for (int k = 0; k < COMPANY; k++) {
        if (k < count && !c->nets[k]) {
            c->nets[k] = make(c->ctx, &s);
        } else if (k >= count) {
            dro_net_destroy(c->nets[k]);
            c->nets[k] = NULL;
        }
    }
    if (count > 0)
        return;
    dro_context_destroy(c->ctx);
    c->ctx = NULL;
}

/* |a - b| / |b| */
static inline double distance(size_t n, const float *a, const float *b)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

static inline double length(size_t n, const float *a)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)a[i];
    return sqrt(sum);
}

/* The largest distance of a tensor of the gradient a from the same of b, and whose it is: the whole
 * is mostly the classifier, and would not miss a convolution. (Norms and biases are left out:
 * before another norm they hardly matter, and what is left of their gradients is rounding.) */
static inline double worst_piece(const outcome *x, const float *a, const float *b,
                                 const char **whose)
{
    double all = length(x->dim, b), worst = 0;
    *whose = "none";
    for (size_t k = 0; k < x->piece_count; k++) {
        const piece *p = &x->pieces[k];
        if (length(p->count, b + p->from) <= 1e-6 * all)
            continue; /* a norm behind it undoes all that it does */
        double off = distance(p->count, a + p->from, b + p->from);
        if (!(off <= worst))
            worst = off, *whose = p->name;
    }
    return worst;
}

/* Every layer, odd sizes, channels that do not fill a block, a residual without a norm, a norm
 * without a convolution, a value read many times, a sum without ReLU that only a concatenation
 * reads, depthwise convolutions before and behind ReLU6 and norms, an auxiliary head. */
static inline void zoo(dro_net *net)
{
    float scale[3] = {0.5f, 2, -1}, shift[3] = {1, 0, 0.25f};
    dro_window three = {{3, 3}, {2, 2}, {1, 1}}, flat = {{1, 5}, {1, 2}, {0, 2}},
               two = {{2, 2}, {1, 1}, {1, 1}}, odd = {{2, 3}, {1, 2}, {1, 0}},
               same = {{3, 3}, {1, 1}, {1, 1}};
    float six[20]; /* so that some values are above 6 */
    for (int c = 0; c < 20; c++)
        six[c] = 6;
    dro_node x = dro_net_affine(net, dro_net_input(net), scale, shift);
    x = dro_net_conv_window(net, "a", x, 10, &flat, true);
    x = dro_net_relu(net, dro_net_norm(net, "an", x));
    dro_node y = dro_net_conv(net, "b", x, 10, 3, 1, 1);
    x = dro_net_add(net, y, x); /* no norm */
    dro_node p = dro_net_max_pool(net, x, &three), q = dro_net_avg_pool(net, x, &three);
    dro_node r = dro_net_relu(net, dro_net_norm(net, "cn", dro_net_conv(net, "c", x, 20, 3, 2, 1)));
    dro_node s = dro_net_norm(net, "sn", dro_net_conv(net, "s", x, 20, 1, 2, 0));
    dro_node all[4] = {p, q, r, dro_net_add(net, s, dro_net_shortcut(net, x, 20, 2))};
    x = dro_net_concat(net, all, 4);
    r = dro_net_depthwise(net, "t", dro_net_affine(net, r, six, six), &same, true);
    r = dro_net_depthwise(net, "u", dro_net_relu6(net, r), &odd, false);
    s = dro_net_relu6(net, dro_net_affine(net, dro_net_norm(net, "un", r), six, six));
    r = dro_net_norm(net, "vn", dro_net_depthwise(net, "v", s, &same, false));
    r = dro_net_global_pool(net, dro_net_relu6(net, dro_net_add(net, s, r)));
    x = dro_net_norm(net, "dn", x); /* no convolution before it */
    dro_node left = dro_net_conv(net, "e", x, 48, 1, 1, 0);
    dro_node right = dro_net_norm(net, "fn", dro_net_conv(net, "f", x, 48, 3, 1, 1));
    left = dro_net_norm(net, "en", left);
    x = dro_net_relu(net, dro_net_add(net, left, right));
    dro_node aux = dro_net_linear(net, "aux", dro_net_max_pool(net, x, &two), 5);
    x = dro_net_add(net, dro_net_shortcut(net, x, 64, 2),
                    dro_net_norm(net, "gn", dro_net_conv(net, "g", x, 64, 3, 2, 1)));
    x = dro_net_relu(net, dro_net_add(net, x, x));
    dro_node ends[2] = {r, dro_net_global_pool(net, x)};
    x = dro_net_dropout(net, dro_net_concat(net, ends, 2), 0.3f);
    x = dro_net_relu(net, dro_net_linear(net, "h", x, 24));
    dro_net_output(net, dro_net_linear(net, "out", x, 5));
    dro_net_auxiliary(net, aux, 0.4f);
}

/* The same with cosines as outputs. */
static inline void zoo_cosine(dro_net *net)
{
    zoo(net);
    dro_net_set(net, "classifier", "cosine");
    dro_net_set(net, "classifier_scale", "5");
}

#endif
