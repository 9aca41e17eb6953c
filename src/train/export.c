/* The model of a weights file, for the exporters. */
#include "export.h"

static dro_status load(dro__export *e, const char *weights)
{
    const dro__weights_about *a = &e->about;
    if (a->sparse)
        return dro__fail(e->ctx, DRO_ERR_UNSUPPORTED,
                         "%s is for sparse rows: only networks are exported", weights);
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

dro_status dro__export_open(dro_context *ctx, const char *weights, dro__export *e)
{
    *e = (dro__export){.ctx = ctx};
    DRO_TRY(dro__weights_about_read(ctx, weights, &e->about));
    dro_status status = load(e, weights);
    if (status == DRO_OK)
        mark_needed(e);
    else
        dro__export_close(e);
    return status;
}

void dro__export_close(dro__export *e)
{
    dro__free(e->statistics);
    dro__free(e->needed);
    dro__free(e->shift);
    dro_net_destroy(e->net);
    dro__weights_about_free(&e->about);
    *e = (dro__export){0};
}
