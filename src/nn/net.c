/* A network after it was built: freezing, offsets, weights, and the contract with the
 * optimisers. */
#define _GNU_SOURCE /* strdup, strtok_r */
#include "nn.h"

#include <fnmatch.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERNS_SIZE = 4096 };

#define FIELD(field) offsetof(struct dro__net_settings, field)

#define LOSS_WORD(ID, id, name, of, link, settings, constants, proper, summary) "|" name
#define LOSS_ROW(name, fallback, low, high, meaning)                                               \
    {{#name, DRO_PARAM_REAL, fallback, low, high, NULL, meaning},                                  \
     FIELD(loss_set) + DRO__SET_##name * sizeof(double)},

const dro__param_row dro__params_net[] = {
    {{"loss", DRO_PARAM_CHOICE, "cross-entropy", 0, 0, DRO__LOSSES(LOSS_WORD) + 1,
      "the loss of one example"},
     FIELD(loss)},
    DRO__LOSS_SETTINGS(LOSS_ROW){
        {"classifier", DRO_PARAM_CHOICE, "linear", 0, 0, "linear|cosine",
         "the last layer; cosine: logits are scaled cosines of features and weights, no bias"},
        FIELD(classifier)},
    {{"classifier_scale", DRO_PARAM_REAL, "30", 1e-3, 1e6, NULL,
      "cosine: the largest possible logit"},
     FIELD(classifier_scale)},
    {{"precision", DRO_PARAM_CHOICE, "tf32", 0, 0, "tf32|fp32|bf16",
      "number format of products on a GPU; weights and sums are always float"},
     FIELD(precision)},
    {{"deterministic", DRO_PARAM_CHOICE, "no", 0, 0, "no|yes",
      "on a GPU: the same bits in every run, at some cost in time"},
     FIELD(deterministic)},
    {{"convolutions", DRO_PARAM_CHOICE, "own", 0, 0, "own|cudnn",
      "on a GPU: our own kernels where they fit (small images), or cuDNN's for all"},
     FIELD(convolutions)},
    {{0}, 0},
};

static const dro__param_row *const tables[DRO__TABLE_MAX] = {dro__params_net};

/* What dro_net_ready() makes; it may be called again after it failed. */
static void free_memory(dro_net *net)
{
    const dro__backend *be = net->ctx->backend;
    if (net->live)
        be->net->destroy(net->live);
    if (net->memory.frozen)
        be->free((void *)net->memory.frozen);
    if (net->memory.statistics)
        be->free(net->memory.statistics);
    dro__free(net->constants);
    dro__free(net->weights);
    dro__free(net->frozen);
    net->live = NULL;
    net->memory = (dro__net_memory){0};
    net->graph.constants = net->constants = net->weights = net->frozen = NULL;
}

void dro_net_destroy(dro_net *net)
{
    if (!net)
        return;
    if (net->twin) {
        net->ctx->backend->net->destroy(net->live);
        for (int k = 0; k < DRO__PARTS; k++)
            dro__free(net->keys[k]);
        dro__free(net);
        return;
    }
    free_memory(net);
    for (int32_t i = 0; net->graph.nodes && i < net->graph.count; i++)
        dro__free((void *)net->graph.nodes[i].scale);
    for (size_t k = 0; k < net->tensor_count; k++)
        dro__free(net->tensors[k].name);
    for (int k = 0; k < DRO__PARTS; k++)
        dro__free(net->keys[k]);
    dro__free(net->graph.nodes);
    dro__free(net->tensors);
    free(net->trained);
    dro__free(net->prior);
    dro__free(net);
}

/* ---- choose ---- */

static dro_status changeable(dro_net *net)
{
    if (!net)
        return DRO_ERR_ARGUMENT;
    if (net->ready)
        return dro__fail(net->ctx, DRO_ERR_STATE, "the network is ready: its settings are fixed");
    return DRO_OK;
}

dro_status dro_net_set(dro_net *net, const char *name, const char *value)
{
    DRO_TRY(changeable(net));
    dro__forget(net->ctx);
    if (!name || !value)
        return dro__fail(net->ctx, DRO_ERR_ARGUMENT, "a setting needs a name and a value");
    return dro__params_set(net->ctx, tables, &net->set, "the network", name, value);
}

dro_status dro_net_param(int index, dro_param *param)
{
    const dro__param_row *row = index < 0 ? NULL : dro__param_at(tables, index);
    if (!row || !param)
        return row ? DRO_ERR_ARGUMENT : DRO_ERR_END;
    *param = row->about;
    return DRO_OK;
}

const char *dro_loss_name(int index)
{
    return index >= 0 && index < DRO__NET_LOSSES ? dro__net_losses[index].name : NULL;
}

const char *dro_loss_summary(int index)
{
    return index >= 0 && index < DRO__NET_LOSSES ? dro__net_losses[index].summary : NULL;
}

static const dro__loss_about *find_loss(const char *name)
{
    for (int i = 0; name && i < DRO__NET_LOSSES; i++)
        if (strcmp(dro__net_losses[i].name, name) == 0)
            return &dro__net_losses[i];
    return NULL;
}

bool dro_loss_has(const char *loss, const char *setting)
{
    const dro__loss_about *about = find_loss(loss);
    for (int k = 0; setting && k < DRO__LOSS_SETTING_COUNT; k++)
        if (strcmp(dro__loss_settings[k], setting) == 0)
            return !loss || (about && (about->settings & (1u << k)));
    return false;
}

bool dro_loss_proper(const char *loss)
{
    const dro__loss_about *about = find_loss(loss);
    return about && about->proper;
}

dro_status dro_net_prior(dro_net *net, const double *share, size_t count)
{
    DRO_TRY(changeable(net));
    dro__forget(net->ctx);
    int32_t head = net->graph.heads[0];
    if (!share || head < 0 || count != (size_t)net->graph.nodes[head].channels)
        return dro__fail(net->ctx, DRO_ERR_ARGUMENT, "the prior needs one share for each output");
    double sum = 0;
    for (size_t j = 0; j < count; j++) {
        if (!(share[j] >= 0) || !isfinite(share[j]))
            return dro__fail(net->ctx, DRO_ERR_RANGE, "class %zu has a share of %g", j, share[j]);
        sum += share[j];
    }
    if (!(sum > 0))
        return dro__fail(net->ctx, DRO_ERR_RANGE, "the prior is all zero");
    double *prior = dro__alloc(count, sizeof *prior);
    if (!prior)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for the prior");
    for (size_t j = 0; j < count; j++)
        prior[j] = share[j] / sum;
    dro__free(net->prior);
    net->prior = prior;
    net->prior_count = count;
    return DRO_OK;
}

dro_status dro_net_train_only(dro_net *net, const char *patterns)
{
    DRO_TRY(changeable(net));
    dro__forget(net->ctx);
    if (patterns && strlen(patterns) >= PATTERNS_SIZE)
        return dro__fail(net->ctx, DRO_ERR_RANGE, "patterns of %zu characters: expected at most %d",
                         strlen(patterns), PATTERNS_SIZE - 1);
    char *copy = patterns ? strdup(patterns) : NULL;
    if (patterns && !copy)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for the patterns");
    free(net->trained);
    net->trained = copy;
    return DRO_OK;
}

/* ---- ready ---- */

/* The first pattern of a list, and what follows it. */
static const char *next_pattern(const char *at, char *one, size_t capacity)
{
    size_t length = strcspn(at, ",");
    snprintf(one, capacity, "%.*s", (int)length, at);
    return at + length + (at[length] == ',');
}

static bool matches(const char *patterns, const char *name)
{
    char one[PATTERNS_SIZE];
    for (const char *at = patterns; *at;) {
        at = next_pattern(at, one, sizeof one);
        if (fnmatch(one, name, 0) == 0)
            return true;
    }
    return false;
}

/* Every pattern must match a tensor: one that matches nothing is a mistake in its spelling. */
static dro_status check_patterns(const dro_net *net)
{
    char one[PATTERNS_SIZE];
    const char *at = net->trained;
    do {
        at = next_pattern(at, one, sizeof one);
        bool found = false;
        for (size_t k = 0; k < net->tensor_count && !found; k++)
            found = net->tensors[k].place != DRO__IN_STATISTICS &&
                    fnmatch(one, net->tensors[k].name, 0) == 0;
        if (!found)
            return dro__fail(net->ctx, DRO_ERR_NAME,
                             "no layer matches '%s': the first tensor is '%s', the last '%s'", one,
                             net->tensor_count ? net->tensors[0].name : "",
                             net->tensor_count ? net->tensors[net->tensor_count - 1].name : "");
    } while (*at);
    return DRO_OK;
}

/* Marks frozen layers; a layer's tensors are trained together or not at all. */
static dro_status freeze(dro_net *net)
{
    for (int32_t i = 0; i < net->graph.count; i++)
        net->graph.nodes[i].frozen = false;
    if (!net->trained)
        return DRO_OK;
    DRO_TRY(check_patterns(net));
    for (size_t k = 0; k < net->tensor_count; k++) {
        dro__net_entry *t = &net->tensors[k];
        if (t->place == DRO__IN_STATISTICS)
            continue;
        bool frozen = !matches(net->trained, t->name);
        bool first = k == 0 || net->tensors[k - 1].node != t->node;
        if (!first && net->graph.nodes[t->node].frozen != frozen)
            return dro__fail(
                net->ctx, DRO_ERR_UNSUPPORTED,
                "'%s' trains part of the layer of '%s': train all of a layer or nothing",
                net->trained, t->name);
        net->graph.nodes[t->node].frozen = frozen;
    }
    return DRO_OK;
}

/* Takes the bias of a layer out of the list. */
static void drop_bias(dro_net *net, int32_t index)
{
    for (size_t k = 0; k < net->tensor_count; k++) {
        dro__net_entry *t = &net->tensors[k];
        if (t->node != index || strcmp(strrchr(t->name, '.'), ".bias") != 0)
            continue;
        dro__free(t->name);
        memmove(t, t + 1, (net->tensor_count - k - 1) * sizeof *t);
        net->tensor_count--;
        return;
    }
}

/* classifier=cosine: the outputs' linear layers become cosines. */
static dro_status apply_classifier(dro_net *net)
{
    for (int k = 0; net->set.classifier && k < DRO__HEADS; k++) {
        int32_t head = net->graph.heads[k];
        dro__graph_node *node = head < 0 ? NULL : &net->graph.nodes[head];
        if (!node || node->op == DRO__OP_COSINE)
            continue;
        if (node->op != DRO__OP_LINEAR)
            return dro__fail(net->ctx, DRO_ERR_UNSUPPORTED,
                             "classifier=cosine: the output of this network is not a linear layer");
        node->op = DRO__OP_COSINE;
        node->gain = (float)net->set.classifier_scale;
        node->has_bias = false;
        node->bias = -1;
        drop_bias(net, head);
    }
    return DRO_OK;
}

/* Assigns every tensor its array and its offset in it, and records both in its node. */
static void place(dro_net *net)
{
    size_t used[3] = {0};
    for (size_t k = 0; k < net->tensor_count; k++) {
        dro__net_entry *t = &net->tensors[k];
        dro__graph_node *node = &net->graph.nodes[t->node];
        if (t->place != DRO__IN_STATISTICS)
            t->place = node->frozen ? DRO__IN_FROZEN : DRO__IN_WEIGHTS;
        t->offset = (int64_t)used[t->place];
        used[t->place] += t->count;
        const char *what = strrchr(t->name, '.') + 1;
        if (strcmp(what, "weight") == 0)
            node->weight = t->offset;
        else if (strcmp(what, "bias") == 0)
            node->bias = t->offset;
        else if (strcmp(what, "running_mean") == 0)
            node->running = t->offset;
    }
    net->graph.dim = used[DRO__IN_WEIGHTS];
    net->graph.frozen_size = used[DRO__IN_FROZEN];
    net->graph.statistics_size = used[DRO__IN_STATISTICS];
    for (int32_t i = 0; i < net->graph.count; i++) {
        dro__graph_node *node = &net->graph.nodes[i];
        node->grad = node->weight >= 0 && !node->frozen;
        for (int k = 0; k < node->input_count; k++)
            node->grad = node->grad || net->graph.nodes[node->inputs[k]].grad;
    }
}

/* The loss's number for each class, then its label smoothing. */
static void fill_constants(dro_net *net, size_t outputs)
{
    const dro__loss_about *loss = &dro__net_losses[net->graph.loss];
    const double *set = net->set.loss_set;
    double least = 1, most = 0;
    for (size_t j = 0; j < outputs; j++) {
        least = net->prior[j] > 0 ? fmin(least, net->prior[j]) : least;
        most = fmax(most, net->prior[j]);
    }
    for (size_t j = 0; j < outputs; j++) {
        net->constants[j] = loss->constant ? loss->constant(set, net->prior[j], least) : 0;
        net->constants[outputs + j] = dro__loss_smoothing(set, net->prior[j], least, most);
    }
}

static dro_status make_constants(dro_net *net, size_t outputs)
{
    if (!net->prior || net->prior_count != outputs)
        return dro__fail(net->ctx, DRO_ERR_STATE,
                         "the loss %s needs the share of each of the %zu classes: dro_net_prior()",
                         dro__net_losses[net->graph.loss].name, outputs);
    net->constants = dro__alloc(2 * outputs, sizeof *net->constants);
    if (!net->constants)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for the prior");
    fill_constants(net, outputs);
    net->graph.constants = net->constants;
    return DRO_OK;
}

dro_status dro__net_plain(dro_net *net, bool plain)
{
    static const int special[] = {DRO__SET_tau, DRO__SET_ldam_margin, DRO__SET_focal_gamma};
    const dro__net_backend *be = net->ctx->backend->net;
    double *set = net->set.loss_set;
    if (net->plain == plain)
        return DRO_OK;
    if (plain)
        memcpy(net->own_loss_set, set, sizeof net->own_loss_set);
    for (size_t k = 0; k < sizeof special / sizeof special[0]; k++) {
        set[special[k]] = plain ? 0 : net->own_loss_set[special[k]];
        net->graph.loss_set[special[k]] = (float)set[special[k]];
    }
    if (net->constants)
        fill_constants(net, (size_t)net->graph.nodes[net->graph.heads[0]].channels);
    net->plain = plain;
    return be->reset ? be->reset(net->live) : DRO_OK;
}

static dro_status prepare_loss(dro_net *net)
{
    dro__graph *g = &net->graph;
    size_t outputs = (size_t)g->nodes[g->heads[0]].channels;
    g->loss = (dro__net_loss)net->set.loss;
    for (int k = 0; k < DRO__LOSS_SETTING_COUNT; k++)
        g->loss_set[k] = (float)net->set.loss_set[k];
    g->precision = (dro__precision)net->set.precision;
    g->deterministic = net->set.deterministic;
    g->only_cudnn = net->set.convolutions;
    if (g->heads[1] == g->heads[0])
        return dro__fail(net->ctx, DRO_ERR_ARGUMENT, "the auxiliary head is the output itself");
    if (g->heads[1] >= 0 && (size_t)g->nodes[g->heads[1]].channels != outputs)
        return dro__fail(net->ctx, DRO_ERR_RANGE, "the two heads have %zu and %d outputs", outputs,
                         g->nodes[g->heads[1]].channels);
    if (outputs < 2 && dro__net_losses[g->loss].of == DRO__OF_CLASS)
        return dro__fail(net->ctx, DRO_ERR_RANGE,
                         "this loss needs at least 2 outputs, the network has 1");
    const dro__loss_about *loss = &dro__net_losses[g->loss];
    bool aware =
        loss->settings & DRO__SET(smoothing_head) && net->set.loss_set[DRO__SET_smoothing_head] > 0;
    return loss->constant || aware ? make_constants(net, outputs) : DRO_OK;
}

static dro_status make_memory(dro_net *net)
{
    const dro__backend *be = net->ctx->backend;
    net->weights = dro__alloc(net->graph.dim + 1, sizeof *net->weights);
    net->frozen = dro__alloc(net->graph.frozen_size + 1, sizeof *net->frozen);
    net->memory.frozen = be->alloc(net->graph.frozen_size + 1, sizeof(float));
    net->memory.statistics = be->alloc(net->graph.statistics_size + 1, sizeof(float));
    if (!net->weights || !net->frozen || !net->memory.frozen || !net->memory.statistics)
        return dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for %zu parameters",
                         net->graph.dim + net->graph.frozen_size);
    net->memory.sync = &net->sync;
    return be->net->create(net->ctx, &net->graph, &net->memory, &net->live);
}

dro_status dro__net_twin(dro_net *net, dro_context *ctx, dro_net **twin)
{
    dro_net *made = dro__alloc(1, sizeof *made);
    if (!made)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a network");
    *made = *net;
    made->ctx = ctx;
    made->twin = true;
    made->forwarded = false;
    made->sync = (dro__net_sync){0};
    made->memory.sync = &made->sync;
    made->key_capacity = 0;
    memset(made->keys, 0, sizeof made->keys);
    dro_status status = ctx->backend->net->create(ctx, &net->graph, &made->memory, &made->live);
    if (status != DRO_OK) {
        dro__free(made);
        return status;
    }
    *twin = made;
    return DRO_OK;
}

dro_status dro_net_ready(dro_net *net)
{
    if (!net)
        return DRO_ERR_ARGUMENT;
    dro__forget(net->ctx);
    if (net->failed != DRO_OK)
        return dro__fail(net->ctx, net->failed, "%s", net->error);
    if (net->ready)
        return DRO_OK;
    if (net->graph.heads[0] < 0)
        return dro__fail(net->ctx, DRO_ERR_STATE,
                         "the network has no output: call dro_net_output()");
    if (!net->ctx->backend->net)
        return dro__fail(net->ctx, DRO_ERR_UNSUPPORTED,
                         "the backend '%s' has no networks in this build", net->ctx->backend->name);
    free_memory(net);
    DRO_TRY(apply_classifier(net));
    DRO_TRY(freeze(net));
    place(net);
    if (net->graph.dim == 0)
        return dro__fail(net->ctx, DRO_ERR_STATE, "the network has nothing to train");
    DRO_TRY(prepare_loss(net));
    DRO_TRY(make_memory(net));
    net->ready = true;
    return dro_net_init(net, 0);
}

/* ---- the contract ---- */

static dro_status check_call(dro_net *net, const void *w, const dro_net_batch *parts,
                             int part_count)
{
    if (!net || !w || !parts || part_count < 1 || part_count > DRO__PARTS)
        return DRO_ERR_ARGUMENT;
    if (!net->ready)
        return dro__fail(net->ctx, DRO_ERR_STATE, "call dro_net_ready first");
    for (int k = 0; k < part_count; k++)
        if (parts[k].count == 0 || (!parts[k].x && !parts[k].images))
            return dro__fail(net->ctx, DRO_ERR_ARGUMENT, "part %d of a batch is empty", k);
        else if (!parts[k].x && (!net->ctx->backend->net->images || !parts[k].ids ||
                                 net->graph.nodes[0].channels > DRO__IMAGE_COLOURS))
            return dro__fail(
                net->ctx, DRO_ERR_UNSUPPORTED,
                "a batch of images in the backend's memory: expected the backend cuda, "
                "ids, and at most %d channels",
                DRO__IMAGE_COLOURS);
    return DRO_OK;
}

/* Labels are in host memory for the host backends, where they can be checked. */
static dro_status check_labels(dro_net *net, const dro_net_batch *parts, int part_count)
{
    const dro__graph *g = &net->graph;
    int32_t outputs = g->nodes[g->heads[0]].channels, top = outputs > 1 ? outputs : 2;
    bool any_target = dro__net_losses[g->loss].of == DRO__OF_TARGETS;
    for (int k = 0; k < part_count; k++) {
        if (parts[k].mixes && parts[k].targets)
            return dro__fail(net->ctx, DRO_ERR_ARGUMENT,
                             "part %d of a batch is mixed: expected labels, not targets", k);
        if (any_target && parts[k].targets)
            continue;
        if (!parts[k].labels)
            return dro__fail(net->ctx, DRO_ERR_ARGUMENT, "part %d of a batch has no labels", k);
        for (size_t i = 0; i < parts[k].count; i++)
            if (parts[k].labels[i] < 0 || parts[k].labels[i] >= top)
                return dro__fail(net->ctx, DRO_ERR_RANGE,
                                 "an example has label %d: expected 0 to %d", parts[k].labels[i],
                                 top - 1);
            else if (parts[k].mixes &&
                     (parts[k].mixes[i].label < 0 || parts[k].mixes[i].label >= top))
                return dro__fail(net->ctx, DRO_ERR_RANGE,
                                 "an example is mixed with label %d: expected 0 to %d",
                                 parts[k].mixes[i].label, top - 1);
    }
    return DRO_OK;
}

dro_status dro__net_check(dro_net *net, const dro_net_batch *parts, int part_count)
{
    DRO_TRY(check_call(net, net, parts, part_count));
    return check_labels(net, parts, part_count);
}

dro_status dro_net_forward(dro_net *net, const float *w, const dro_net_batch *parts, int part_count,
                           float *losses)
{
    DRO_TRY(check_call(net, w, parts, part_count));
    if (!losses)
        return DRO_ERR_ARGUMENT;
    dro__forget(net->ctx);
    DRO_TRY(check_labels(net, parts, part_count));
    net->forwarded = false;
    DRO_TRY(net->ctx->backend->net->forward(net->live, w, parts, part_count, losses));
    net->forwarded = true;
    return DRO_OK;
}

dro_status dro_net_backward(dro_net *net, const float *w, const float *coef, float *const *grads)
{
    if (!net || !w || !coef || !grads)
        return DRO_ERR_ARGUMENT;
    dro__forget(net->ctx);
    if (!net->forwarded)
        return dro__fail(net->ctx, DRO_ERR_STATE, "a backward must follow a forward");
    net->forwarded = false; /* its values are overwritten by gradients */
    return net->ctx->backend->net->backward(net->live, w, coef, grads);
}

void dro_net_accept(dro_net *net)
{
    if (net && net->ready)
        net->ctx->backend->net->accept(net->live);
}

dro_status dro_net_evaluate(dro_net *net, const float *w, const dro_net_batch *batch, float *logits,
                            float *losses)
{
    DRO_TRY(check_call(net, w, batch, 1));
    dro__forget(net->ctx);
    if (losses)
        DRO_TRY(check_labels(net, batch, 1));
    net->forwarded = false;
    return net->ctx->backend->net->evaluate(net->live, w, batch, logits, losses);
}
