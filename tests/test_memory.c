/* What a run will take is known before it is taken: each optimiser's number of vectors. */
#include "check.h"
#include "backend.h"
#include "opt.h"

static const dro__backend *real_backend;
static size_t vectors, reached;

static void *counting_alloc(size_t count, size_t size)
{
    vectors += count == TOY_DIM && size == sizeof(float);
    return real_backend->alloc(count, size);
}

/* Never more than the class says, and one of its forms takes as many. */
static void count(dro_context *ctx, const instance *in, int which)
{
    size_t says = dro__optimizer_vectors(in->name);
    toy t = {0};
    if (in->composite)
        return;
    dro__backend counting = *ctx->backend;
    real_backend = ctx->backend;
    counting.alloc = counting_alloc;
    ctx->backend = &counting;
    vectors = 0;
    dro_optimizer *opt = started(ctx, in, &t);
    for (int step = 0; step < 6; step++)
        dro_optimizer_step(opt);
    dro_optimizer_destroy(opt);
    ctx->backend = real_backend;
    if (vectors > says)
        fail_msg("%s: %zu vectors, its class says %zu", in->text, vectors, says);
    reached += which >= 0 && strcmp(in->name, check_optimizer(which)) == 0 && vectors == says;
}

static void test_vectors(void **state)
{
    (void)state;
    for (int k = 0; check_optimizer(k); k++) {
        reached = 0;
        for_each(count, k);
        if (!reached)
            fail_msg("%s: its class says more vectors than it takes", check_optimizer(k));
    }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors)};

CHECK_MAIN(tests)
