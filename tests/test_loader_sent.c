/* What readers copy to a backend's memory (dro_loader_options.sent), on a backend that is the
 * reference with memory of its own: the same pixels at every place of the ring, all batches there
 * or none, and a copy that fails is reported and can be tried again. */
#include "check.h"

#include "backend.h"

#include <dro/dro.h>
#include <dro/loader.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 50, IMAGE = 3 * 16 * 16 };

static atomic_int made, freed, copies, room, failing; /* failing: the copies that do */

static void *host_alloc(size_t bytes)
{
    return malloc(bytes);
}

static void *make(size_t count, size_t size)
{
    if (atomic_fetch_sub(&room, 1) <= 0)
        return NULL;
    atomic_fetch_add(&made, 1);
    return calloc(count, size);
}

static void unmake(void *memory)
{
    atomic_fetch_add(&freed, memory != NULL);
    free(memory);
}

static const char *copy(void *to, const void *from, size_t bytes)
{
    if (atomic_fetch_add(&copies, 1) < atomic_load(&failing))
        return "the cable is out";
    memcpy(to, from, bytes);
    return NULL;
}

typedef struct fixture {
    dro__backend backend;
    dro_context *ctx;
    dro_data *data;
} fixture;

static dro_loader *loader_with(fixture *f, int batches, int fail)
{
    dro_loader_options o = dro_loader_options_default();
    dro_loader *loader = NULL;
    made = 0;
    freed = 0;
    copies = 0;
    room = batches;
    failing = fail;
    o.batch = BATCH, o.threads = 3, o.ahead = 4, o.augment = true, o.sent = true;
    OK(f->ctx, dro_loader_create(f->data, DRO_TRAIN, &o, &loader));
    return loader;
}

static void test_sent(void **state)
{
    dro_loader *loader = loader_with(*state, 100, 0);
    dro_loaded b;
    fixture *f = *state;
    for (uint64_t k = 0; k < 40; k++) {
        OK(f->ctx, dro_loader_draw(loader, k * BATCH, &b));
        assert_non_null(b.device_pixels);
        assert_ptr_not_equal(b.device_pixels, b.pixels);
        assert_memory_equal(b.device_pixels, b.pixels, BATCH * IMAGE * sizeof(float));
    }
    OK(f->ctx, dro_loader_gather(loader, (const int64_t[]){7, 3}, 2, &b));
    assert_memory_equal(b.device_pixels, b.pixels, 2 * IMAGE * sizeof(float));
    assert_true(copies > 40);
    dro_loader_destroy(loader);
    assert_int_equal(made, 8 + 3); /* ahead, those that stay whole, and gathers */
    assert_int_equal(freed, made);
}

/* Room for a part of them is given back. */
static void test_no_room(void **state)
{
    fixture *f = *state;
    dro_loaded b;
    dro_loader *loader = loader_with(f, 10, 0);
    assert_int_equal(made, 10);
    assert_int_equal(freed, 10);
    for (uint64_t k = 0; k < 10; k++) {
        OK(f->ctx, dro_loader_draw(loader, k * BATCH, &b));
        assert_null(b.device_pixels);
    }
    assert_int_equal(copies, 0);
    dro_loader_destroy(loader);
    assert_int_equal(freed, 10);
}

static void test_copy_fails(void **state)
{
    fixture *f = *state;
    dro_loaded b;
    dro_loader *loader = loader_with(f, 100, 1000);
    FAILS(f->ctx, dro_loader_draw(loader, 0, &b), DRO_ERR_DEVICE, "the cable is out");
    FAILS(f->ctx, dro_loader_gather(loader, (const int64_t[]){1}, 1, &b), DRO_ERR_DEVICE,
          "the cable is out");
    failing = 0;
    OK(f->ctx, dro_loader_draw(loader, 0, &b));
    assert_memory_equal(b.device_pixels, b.pixels, BATCH * IMAGE * sizeof(float));
    OK(f->ctx, dro_loader_gather(loader, (const int64_t[]){1}, 1, &b));
    dro_loader_destroy(loader);
    assert_int_equal(freed, made);
}

static int open_all(void **state)
{
    static fixture f;
    f.ctx = check_context("ref", 1);
    f.backend = *f.ctx->backend;
    f.backend.host_alloc = host_alloc, f.backend.host_free = free;
    f.backend.alloc = make, f.backend.free = unmake, f.backend.copy_in = copy;
    f.ctx->backend = &f.backend;
    *state = &f;
    return dro_data_open(f.ctx, "synth:glyphs,n=1000,test=10,size=16", &f.data) != DRO_OK;
}

static int close_all(void **state)
{
    fixture *f = *state;
    dro_data_close(f->data);
    dro_context_destroy(f->ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sent),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_copy_fails),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
