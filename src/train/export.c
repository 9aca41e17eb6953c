/* The model of a weights file, for the exporters. */
#include "export.h"

#include <string.h>

/* The linear model on the sparse rows of a table; other rows have no columns to read. */
static dro_status load_rows(dro__export *e, const char *weights, bool rows)
{
    const dro__weights_about *a = &e->about;
    bool table = a->encoding && strncmp(a->encoding, "csv ", 4) == 0;
    if (!table || !rows || a->shape.channels < 1)
        return dro__fail(e->ctx, DRO_ERR_UNSUPPORTED,
                         table ? "%s: a linear model of sparse rows (a csv stream, or a csv of "
                                 "more than 4096 features) has no PyTorch module: use --onnx"
                               : "%s: a linear model of the sparse rows of libsvm cannot be "
                                 "exported: only networks and models of csv",
                         weights);
    e->heads = a->classes > 2 ? (size_t)a->classes : 1;
    size_t count = e->heads * (size_t)a->shape.channels;
    e->rows = dro__alloc(count, sizeof *e->rows);
    e->shift = dro__alloc((size_t)a->classes + 1, sizeof *e->shift);
    if (!e->rows || !e->shift)
        return dro__fail(e->ctx, DRO_ERR_MEMORY, "no memory to export a model");
    dro__weights_shift(a, NULL, e->shift);
    return dro__weights_rows(e->ctx, weights, e->rows, count);
}

static dro_status load(dro__export *e, const char *weights)
{
    const dro__weights_about *a = &e->about;
    DRO_TRY(dro_net_model(e->ctx, a->model, &a->shape, &e->net));
    DRO_TRY(dro__weights_loss(a, e->net));
    DRO_TRY(dro_net_ready(e->net));
    DRO_TRY(dro_net_load(e->net, weights, NULL));
    e->statistics = dro__alloc(dro_net_statistics_count(e->net) + 1, sizeof *e->statistics);
    e->needed = dro__alloc((size_t)e->net->graph.count, sizeof *e->needed);
    e->shift = dro__alloc((size_t)a->classes + 1, sizeof *e->shift);
    if (!e->statistics || !e->needed || !e->shift)
        return dro__fail(e->ctx, DRO_ERR_MEMORY, "no memory to export a model");
    if (a->classes)
        dro__weights_shift(a, e->net, e->shift);
    return dro_net_statistics(e->net, e->statistics);
}

static void mark_needed(dro__export *e)
{
    const dro__graph *g = &e->net->graph;
    e->needed[g->heads[0]] = true;
    for (int32_t k = g->count - 1; k >= 0; k--)
        for (int i = 0; e->needed[k] && i < g->nodes[k].input_count; i++)
            e->needed[g->nodes[k].inputs[i]] = true;
}

dro_status dro__export_open(dro_context *ctx, const char *weights, bool rows, dro__export *e)
{
    *e = (dro__export){.ctx = ctx};
    DRO_TRY(dro__weights_about_read(ctx, weights, &e->about));
    dro_status status = e->about.sparse ? load_rows(e, weights, rows) : load(e, weights);
    if (status == DRO_OK && e->net)
        mark_needed(e);
    if (status != DRO_OK)
        dro__export_close(e);
    return status;
}

void dro__export_close(dro__export *e)
{
    dro__free(e->rows);
    dro__free(e->statistics);
    dro__free(e->needed);
    dro__free(e->shift);
    dro_net_destroy(e->net);
    dro__weights_about_free(&e->about);
    *e = (dro__export){0};
}
