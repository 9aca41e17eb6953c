/* The list of backends, and the context that chooses one. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "backend.h"

#include <math.h>
#include <string.h>

#include <sched.h>

static const dro__backend *const list[] = {
#define BACKEND(name) &dro__backend_##name,
#include "backends.def"
#undef BACKEND
};

enum { LIST_COUNT = sizeof list / sizeof list[0] };

const char *dro_backend_name(int index)
{
    return index >= 0 && index < LIST_COUNT ? list[index]->name : NULL;
}

const char *dro_backend_summary(int index)
{
    return index >= 0 && index < LIST_COUNT ? list[index]->summary : NULL;
}

static const dro__backend *find(const char *name)
{
    for (int i = 0; i < LIST_COUNT; i++)
        if (strcmp(name, list[i]->name) == 0)
            return list[i];
    return NULL;
}

const char *dro_backend_missing(const char *name)
{
    const dro__backend *be = name ? find(name) : NULL;
    if (!be || be->works())
        return NULL;
    const char *why = be->missing ? be->missing() : NULL;
    return why ? why : "this machine cannot run it";
}

const char *dro_backend_device(const char *name)
{
    const dro__backend *be = name ? find(name) : NULL;
    return be && be->device ? be->device() : NULL;
}

/* The processors this process may use. */
static int default_threads(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return count > 0 ? count : 1;
}

dro_status dro_context_create(const char *backend, int threads, dro_context **ctx)
{
    if (!ctx)
        return DRO_ERR_ARGUMENT;
    *ctx = NULL;
    if (threads < 0 || threads > 4096)
        return DRO_ERR_RANGE;
    bool any = !backend || strcmp(backend, "auto") == 0;
    const dro__backend *found = NULL;
    for (int i = 0; i < LIST_COUNT && !found; i++)
        if ((any || strcmp(backend, list[i]->name) == 0) && list[i]->works())
            found = list[i];
    if (!found)
        return !any && find(backend) ? DRO_ERR_DEVICE : DRO_ERR_NAME;
    dro_context *made = dro__alloc(1, sizeof *made);
    if (!made)
        return DRO_ERR_MEMORY;
    made->backend = found;
    made->threads = threads ? threads : default_threads();
    if (dro__pool_create(made->threads, &made->pool) != DRO_OK) {
        dro__free(made);
        return DRO_ERR_MEMORY;
    }
    *ctx = made;
    return DRO_OK;
}

void dro_context_destroy(dro_context *ctx)
{
    if (!ctx)
        return;
    dro__pool_destroy(ctx->pool);
    if (ctx->lent_free)
        ctx->lent_free(ctx->lent);
    dro__free(ctx);
}

const char *dro_context_backend(const dro_context *ctx)
{
    return ctx ? ctx->backend->name : NULL;
}

const dro__backend *dro__backend_for(const dro_context *ctx, bool on_host)
{
    const dro__backend *found = ctx->backend;
    for (int i = 0; on_host && !found->on_host && i < LIST_COUNT; i++)
        if (list[i]->on_host && list[i]->works())
            found = list[i];
    return found;
}

dro_status dro__copied(dro_context *ctx, const dro__backend *be, const char *trouble)
{
    if (!trouble)
        return DRO_OK;
    return dro__fail(ctx, DRO_ERR_DEVICE, "a copy to or from the memory of %s: %s", be->name,
                     trouble);
}

dro_status dro__copy_in(dro_context *ctx, void *to, const void *host_from, size_t bytes)
{
    return dro__copied(ctx, ctx->backend, ctx->backend->copy_in(to, host_from, bytes));
}

dro_status dro__copy_out(dro_context *ctx, void *host_to, const void *from, size_t bytes)
{
    return dro__copied(ctx, ctx->backend, ctx->backend->copy_out(host_to, from, bytes));
}

double dro__norm2(const dro__backend *be, dro__pool *pool, size_t n, const float *x)
{
    double sums[DRO__SUMS];
    dro__step k = {.n = n};
    k.v[DRO__X] = (float *)x;
    be->move(pool, &k, DRO__MOVE_norm, sums);
    return sums[0];
}

void dro__add(const dro__backend *be, dro__pool *pool, size_t n, float *to, const float *from)
{
    double sums[DRO__SUMS];
    dro__ticket ticket = {.c = {0, 1}, .plus = 1};
    dro__step k = {.n = n, .ticket = &ticket};
    k.v[DRO__OUT] = k.v[DRO__X] = to;
    k.v[DRO__X + 1] = (float *)from;
    be->move(pool, &k, DRO__MOVE_combine, sums);
}
