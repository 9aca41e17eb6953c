/* Every optimiser, every form of it: steps that are refused and leave no trace, batches that are
 * skipped, states that are saved and loaded, streams that end, limits on the size of a call. */
#include "check.h"

#include "backend.h"

/* ---- refusal ---- */

static void expected_text(const instance *in, toy_fault fault, const toy *t, char *text, size_t n)
{
    if (fault == TOY_FORWARD_FAILS || fault == TOY_BACKWARD_FAILS)
        snprintf(text, n, "callback failed");
    else if (fault == TOY_GRADIENT_NAN)
        snprintf(text, n, "gradient entry 3 is");
    else if (in->composite)
        snprintf(text, n, "g[1] is");
    else
        snprintf(text, n, "loss %d of the batch (example id %d) is", (int)t->bad_index,
                 (int)t->bad_id);
}

/* A step that may meet a bad example: all as before if it is refused. Returns whether it was. */
static bool try_step(dro_context *ctx, const instance *in, dro_optimizer *opt, toy *t)
{
    char text[100];
    float w[TOY_DIM];
    size_t size, size_after;
    unsigned char *before = check_save(ctx, opt, &size);
    OK(ctx, dro_optimizer_weights(opt, w));
    dro_status status = dro_optimizer_step(opt);
    if (status != DRO_OK) {
        bool callback = t->fault == TOY_FORWARD_FAILS || t->fault == TOY_BACKWARD_FAILS;
        expected_text(in, t->fault, t, text, sizeof text);
        if (status != (callback ? DRO_ERR_CALLBACK : DRO_ERR_NUMBER) ||
            !strstr(dro_context_error(ctx), text))
            fail_msg("%s: status %d, '%s', expected '%s'", in->text, (int)status,
                     dro_context_error(ctx), text);
        same_w(in, "refused", opt, w);
        unsigned char *after = check_save(ctx, opt, &size_after);
        if (size != size_after || memcmp(before, after, size) != 0)
            fail_msg("%s: fault %d: a refused step changed the state", in->text, (int)t->fault);
        free(after);
    }
    free(before);
    return status != DRO_OK;
}

/* Next to a run that never sees a fault. */
static void refuse(dro_context *ctx, const instance *in, int fault)
{
    toy good = {0}, bad = {.fault = (toy_fault)fault};
    dro_optimizer *a = started(ctx, in, &good), *b = started(ctx, in, &bad);
    int refused = 0;
    dro_info of_a, of_b;
    for (int t = 0; t < 22; t++) {
        if (dro_optimizer_step(a) == DRO_ERR_END)
            break; /* output=random */
        bad.modulus = t == 0 || t > 5 ? 13 : 0;
        bad.rest = t % 13;
        if (try_step(ctx, in, b, &bad)) {
            refused++;
            assert_true(try_step(ctx, in, b, &bad)); /* again, and again without a trace */
            bad.modulus = 0;
            OK(ctx, dro_optimizer_step(b));
        }
        same_w(in, "after a refusal", a, dro_optimizer_w(b));
    }
    if (!refused)
        fail_msg("%s: fault %d was not seen", in->text, fault);
    OK(ctx, dro_optimizer_info(a, &of_a));
    OK(ctx, dro_optimizer_info(b, &of_b));
    assert_memory_equal(&of_a, &of_b, sizeof of_a);
    dro_optimizer_destroy(a);
    dro_optimizer_destroy(b);
}

static void test_refuse_nan_loss(void **state)
{
    (void)state;
    for_each(refuse, TOY_LOSS_NAN);
    for_each(refuse, TOY_LOSS_INF);
}

static void test_refuse_nan_gradient(void **state)
{
    (void)state;
    for_each(refuse, TOY_GRADIENT_NAN);
}

static void test_refuse_callback_error(void **state)
{
    (void)state;
    for_each(refuse, TOY_FORWARD_FAILS);
    for_each(refuse, TOY_BACKWARD_FAILS);
}

/* One example always fails: skip() leaves it out, and the run continues. */
static void pass_over(dro_context *ctx, const instance *in, int fault)
{
    toy t = {.fault = (toy_fault)fault, .modulus = TOY_N, .rest = 13};
    dro_optimizer *opt = started(ctx, in, &t);
    dro_info info = {0};
    int skipped = 0, attempts = 0;
    dro_status status = DRO_OK;
    FAILS(ctx, dro_optimizer_skip(opt), DRO_ERR_STATE, "no batch has been refused");
    for (; attempts < 300 && status != DRO_ERR_END && info.step < 40; attempts++) {
        status = dro_optimizer_step(opt);
        if (status == DRO_OK) {
            OK(ctx, dro_optimizer_info(opt, &info));
        } else if (status != DRO_ERR_END) {
            OK(ctx, dro_optimizer_skip(opt));
            FAILS(ctx, dro_optimizer_skip(opt), DRO_ERR_STATE, "no batch has been refused");
            skipped++;
        }
    }
    if (!(status == DRO_ERR_END || info.step == 40))
        fail_msg("%s: stuck at step %d after %d skips", in->text, (int)info.step, skipped);
    for (int j = 0; j < TOY_DIM; j++)
        assert_true(isfinite(dro_optimizer_w(opt)[j]));
    assert_true(skipped > 0 || status == DRO_ERR_END);
    dro_optimizer_destroy(opt);
}

static void test_skip_number(void **state)
{
    (void)state;
    for_each(pass_over, TOY_LOSS_NAN);
    for_each(pass_over, TOY_GRADIENT_NAN);
}

static void test_skip_callback_error(void **state)
{
    (void)state;
    for_each(pass_over, TOY_FORWARD_FAILS);
}

/* ---- saved states ---- */

static void resume(dro_context *ctx, const instance *in, int unused)
{
    (void)unused;
    enum { STEPS = 24 };
    static const int at[] = {0, 1, 2, 7, 16};
    toy t = {0};
    for (size_t k = 0; k < sizeof at / sizeof at[0]; k++) {
        dro_optimizer *a = started(ctx, in, &t), *b = started(ctx, in, &t);
        dro_info of_a, of_b;
        size_t size;
        for (int s = 0; s < at[k]; s++)
            dro_optimizer_step(a);
        for (int s = 0; s < 3; s++)
            OK(ctx, dro_optimizer_step(b)); /* b has been elsewhere */
        unsigned char *bytes = check_save(ctx, a, &size);
        OK(ctx, dro_optimizer_load(b, bytes, size));
        for (int s = at[k]; s < STEPS; s++) {
            same_w(in, "loaded", a, dro_optimizer_w(b));
            assert_int_equal(dro_optimizer_step(a), dro_optimizer_step(b));
        }
        same_w(in, "loaded", a, dro_optimizer_w(b));
        OK(ctx, dro_optimizer_info(a, &of_a));
        OK(ctx, dro_optimizer_info(b, &of_b));
        assert_memory_equal(&of_a, &of_b, sizeof of_a);
        free(bytes);
        dro_optimizer_destroy(a);
        dro_optimizer_destroy(b);
    }
}

static void test_resume(void **state)
{
    (void)state;
    for_each(resume, 0);
}

/* Damaged and cut states are refused, and change nothing. */
static void damage(dro_context *ctx, const instance *in, int unused)
{
    (void)unused;
    toy t = {0};
    dro_optimizer *a = started(ctx, in, &t), *b = started(ctx, in, &t);
    size_t size;
    for (int s = 0; s < 3; s++)
        OK(ctx, dro_optimizer_step(a));
    unsigned char *bytes = check_save(ctx, a, &size);
    assert_int_equal(dro_optimizer_save(a, bytes, size - 1), DRO_ERR_RANGE);
    for (size_t i = 0; i < size; i += 1 + size / 400) {
        bytes[i] ^= 0x10;
        if (dro_optimizer_load(b, bytes, size) != DRO_ERR_FORMAT)
            fail_msg("%s: byte %d was damaged and the state taken", in->text, (int)i);
        assert_int_equal(dro_optimizer_load(b, bytes, i), DRO_ERR_FORMAT);
        bytes[i] ^= 0x10;
    }
    unsigned char *longer = calloc(size + 1, 1);
    assert_non_null(longer);
    memcpy(longer, bytes, size);
    assert_int_equal(dro_optimizer_load(b, longer, size + 1), DRO_ERR_FORMAT);
    same_w(in, "a refused load", b, w0);
    OK(ctx, dro_optimizer_load(b, bytes, size));
    same_w(in, "a good load", b, dro_optimizer_w(a));
    free(longer);
    free(bytes);
    dro_optimizer_destroy(a);
    dro_optimizer_destroy(b);
}

static void test_damaged_states(void **state)
{
    (void)state;
    for_each(damage, 0);
}

/* A state of something else: another method, dim, n, setting. */
static void test_foreign_states(void **state)
{
    (void)state;
    static const struct {
        const char *name, *settings, *text;
        size_t dim;
        int64_t n;
    } others[] = {{"cover", "batch=8", "saved by recover, this is cover", TOY_DIM, TOY_N},
                  {"recover", "batch=8", "6 weights", 5, TOY_N},
                  {"recover", "batch=8", "n = 60", TOY_DIM, 61},
                  {"recover", "batch=8 eta=0.1001", "other settings", TOY_DIM, TOY_N},
                  {"recover", "batch=8 stages=5", "other settings", TOY_DIM, TOY_N}};
    dro_context *ctx = check_context("auto", 1);
    toy t = {0};
    dro_problem p = toy_problem(&t);
    dro_optimizer *opt, *other;
    size_t size;
    OK(ctx, dro_optimizer_create(ctx, "recover", &p, &opt));
    check_set(ctx, opt, "batch=8");
    OK(ctx, dro_optimizer_start(opt, NULL));
    OK(ctx, dro_optimizer_step(opt));
    unsigned char *bytes = check_save(ctx, opt, &size);
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++) {
        p.dim = others[k].dim, p.n = others[k].n;
        OK(ctx, dro_optimizer_create(ctx, others[k].name, &p, &other));
        check_set(ctx, other, others[k].settings);
        assert_int_equal(dro_optimizer_load(other, bytes, size), DRO_ERR_STATE);
        OK(ctx, dro_optimizer_start(other, NULL));
        FAILS(ctx, dro_optimizer_load(other, bytes, size), DRO_ERR_FORMAT, others[k].text);
        dro_optimizer_destroy(other);
    }
    free(bytes);
    dro_optimizer_destroy(opt);
    dro_context_destroy(ctx);
}

/* ---- limits and ends ---- */

/* No call takes more examples than the problem allows, both parts together, or start() says so. */
static void limited(dro_context *ctx, const instance *in, int batch)
{
    static const size_t limits[] = {7, 8, 15, 16, 20};
    for (size_t k = 0; k < sizeof limits / sizeof limits[0]; k++) {
        toy t = {0};
        dro_problem p = toy_problem(&t);
        char text[40];
        p.max_batch = limits[k];
        dro_optimizer *opt = create(ctx, in, p);
        if (batch == 0 && dro_optimizer_set(opt, "batch", "0") != DRO_OK) {
            dro_optimizer_destroy(opt);
            continue;
        }
        dro_status status = dro_optimizer_start(opt, w0);
        snprintf(text, sizeof text, "%d", (int)limits[k]);
        if (status != DRO_OK && (limits[k] >= 16 || batch == 0 || status != DRO_ERR_RANGE ||
                                 !strstr(dro_context_error(ctx), text)))
            fail_msg("%s: max_batch %s: %s", in->text, text, dro_context_error(ctx));
        for (int s = 0; status == DRO_OK && s < 25; s++)
            status = dro_optimizer_step(opt);
        if (t.most > limits[k])
            fail_msg("%s: a call of %d examples, at most %s", in->text, (int)t.most, text);
        dro_optimizer_destroy(opt);
    }
}

static void test_max_batch(void **state)
{
    (void)state;
    for_each(limited, 8);
    for_each(limited, 0); /* civr, rcivr: the inner batch follows big */
}

/* A stream of 100 examples: full batches only, then END again and again, and w stays. When more
 * arrives, the run goes on. */
static void ends(dro_context *ctx, const instance *in, int unused)
{
    (void)unused;
    toy t = {.end = 100};
    dro_problem p = toy_problem(&t);
    p.n = 0, p.draw = toy_draw, p.max_batch = TOY_BATCH;
    float w[TOY_DIM];
    dro_info info;
    dro_optimizer *opt = create(ctx, in, p);
    dro_status status = dro_optimizer_start(opt, w0);
    if (status != DRO_OK) { /* they must know n; toy_draw gives no groups */
        assert_true(status == DRO_ERR_UNSUPPORTED || weighs_groups(in));
        dro_optimizer_destroy(opt);
        return;
    }
    while ((status = dro_optimizer_step(opt)) == DRO_OK)
        ;
    if (weighs_groups(in)) {
        assert_int_equal(status, DRO_ERR_CALLBACK);
    } else {
        assert_int_equal(status, DRO_ERR_END);
        OK(ctx, dro_optimizer_weights(opt, w));
        assert_int_equal(dro_optimizer_step(opt), DRO_ERR_END);
        same_w(in, "after the end", opt, w);
        OK(ctx, dro_optimizer_info(opt, &info));
        if (!strstr(in->name, "civr") && !*in->variant)
            assert_true(info.step == 12 && info.examples == 96);
    }
    dro_optimizer_destroy(opt);
}

static void test_stream_ends(void **state)
{
    (void)state;
    for_each(ends, 0);
}

/* ---- problems that break their word ---- */

/* Shares that are no shares: at the start where it shows, else when the group appears. */
static void test_wrong_shares(void **state)
{
    (void)state;
    static const double shares[][3] = {
        {0.5, 0.6, -0.1}, {0.5, NAN, 0.5}, {0.5, 0.4, 0.4}, {0.5, 0.5, 0}};
    dro_context *ctx = check_context("auto", 1);
    for (int k = 0; k < 4; k++) {
        toy t = {0};
        dro_problem p = toy_problem(&t);
        dro_optimizer *opt;
        p.group_share = shares[k];
        OK(ctx, dro_optimizer_create(ctx, "recover", &p, &opt));
        check_set(ctx, opt, "tilt=group");
        if (k < 3) {
            FAILS(ctx, dro_optimizer_start(opt, w0), DRO_ERR_ARGUMENT, "group_share[");
        } else {
            OK(ctx, dro_optimizer_start(opt, w0));
            FAILS(ctx, dro_optimizer_step(opt), DRO_ERR_CALLBACK, "share");
        }
        dro_optimizer_destroy(opt);
    }
    dro_context_destroy(ctx);
}

static int64_t wrong_id;

static dro_status draw_wrong(void *user, uint64_t position, size_t count, dro_batch *batch)
{
    toy *t = user;
    dro_status status = toy_draw(user, position, count, batch);
    if (wrong_id == 0)
        batch->ids = NULL;
    else if (batch->ids)
        t->ids[(t->next - 1) % TOY_SLOTS][count - 1] = wrong_id;
    return status;
}

/* The primal-dual methods use ids as indices: they must be there and in range. */
static void test_wrong_ids(void **state)
{
    (void)state;
    static const char *const names[] = {"stoc-agda", "pg-smd2", "pes-sgda"};
    static const int64_t wrong[] = {-1, TOY_N, INT64_MAX, 0};
    dro_context *ctx = check_context("auto", 1);
    for (int k = 0; k < 12; k++) {
        toy t = {.end = 1000};
        dro_problem p = toy_problem(&t);
        dro_optimizer *opt;
        p.draw = draw_wrong;
        wrong_id = wrong[k / 3];
        OK(ctx, dro_optimizer_create(ctx, names[k % 3], &p, &opt));
        check_set(ctx, opt, "batch=8 sampling=uniform");
        OK(ctx, dro_optimizer_start(opt, w0));
        FAILS(ctx, dro_optimizer_step(opt), DRO_ERR_CALLBACK, "id");
        dro_optimizer_destroy(opt);
    }
    dro_context_destroy(ctx);
}

/* A state whose waiting batch is larger than this problem takes must not be loaded. */
static void test_load_larger_batch(void **state)
{
    (void)state;
    dro_context *ctx = check_context("auto", 1);
    toy t = {0};
    dro_composite c = toy_composite(&t);
    dro_optimizer *a, *b;
    size_t size;
    OK(ctx, dro_optimizer_create_composite(ctx, "civr", &c, &a));
    c.max_batch = 8;
    OK(ctx, dro_optimizer_create_composite(ctx, "civr", &c, &b));
    check_set(ctx, a, "big=1024 eta=0.001");
    check_set(ctx, b, "big=1024 eta=0.001");
    OK(ctx, dro_optimizer_start(a, w0));
    OK(ctx, dro_optimizer_start(b, w0));
    OK(ctx, dro_optimizer_step(a));
    unsigned char *bytes = check_save(ctx, a, &size);
    t.most = 0;
    if (dro_optimizer_load(b, bytes, size) == DRO_OK)
        OK(ctx, dro_optimizer_step(b));
    assert_true(t.most <= 8);
    free(bytes);
    dro_optimizer_destroy(a);
    dro_optimizer_destroy(b);
    dro_context_destroy(ctx);
}

/* A stream ends and later has more: the estimator cannot be corrected over the gap, so that the
 * next direction must be the newest batch's own. */
static void test_stream_goes_on(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    for (int k = 0; k < 2; k++) {
        toy t = {.end = 32};
        dro_problem p = toy_problem(&t);
        dro_optimizer *opt;
        float w[TOY_DIM], after[TOY_DIM];
        p.n = 0, p.draw = toy_draw;
        OK(ctx, dro_optimizer_create(ctx, k ? "recover" : "cover", &p, &opt));
        check_set(ctx, opt, "batch=8 eta=0.1 eta_schedule=constant warmup=0 tilt=none ?guard=0");
        OK(ctx, dro_optimizer_start(opt, w0));
        while (dro_optimizer_step(opt) == DRO_OK)
            ;
        OK(ctx, dro_optimizer_weights(opt, w));
        t.end = 60;
        OK(ctx, dro_optimizer_step(opt));
        OK(ctx, dro_optimizer_weights(opt, after));
        for (int j = 0; j < TOY_DIM; j++) {
            double g = 0;
            for (int64_t id = 32; id < 40; id++)
                g += toy_residual(w, id) * toy_x(id, j) / 8;
            check_near("w after the gap", (double)after[j], (double)w[j] - 0.1 * g, 1e-6);
        }
        dro_optimizer_destroy(opt);
    }
    dro_context_destroy(ctx);
}

/* A schedule of your own is the same as the built-in one, and continues after a load. */
static void test_scale_eta(void **state)
{
    (void)state;
    dro_context *ctx = check_context("auto", 1);
    toy t = {0};
    dro_problem p = toy_problem(&t);
    dro_optimizer *built_in, *scaled, *loaded, **of[] = {&built_in, &scaled, &loaded};
    for (int k = 0; k < 3; k++) {
        OK(ctx, dro_optimizer_create(ctx, "recover", &p, of[k]));
        check_set(ctx, *of[k], "eta=0.5 steps=20 stages=0.5 stage_factor=2 batch=8 warmup=0");
        if (k > 0)
            check_set(ctx, *of[k], "eta_schedule=constant");
        else
            check_set(ctx, *of[k], "eta_schedule=step");
        OK(ctx, dro_optimizer_start(*of[k], w0));
    }
    for (int s = 0; s < 20; s++) {
        OK(ctx, dro_optimizer_scale_eta(scaled, s < 10 ? 1 : 0.5));
        OK(ctx, dro_optimizer_step(built_in));
        OK(ctx, dro_optimizer_step(scaled));
        if (s == 15) {
            size_t size;
            unsigned char *saved = check_save(ctx, scaled, &size);
            OK(ctx, dro_optimizer_load(loaded, saved, size));
            free(saved);
        } else if (s > 15) {
            OK(ctx, dro_optimizer_step(loaded));
        }
    }
    assert_memory_equal(dro_optimizer_w(built_in), dro_optimizer_w(scaled), TOY_DIM * sizeof *w0);
    assert_memory_equal(dro_optimizer_w(built_in), dro_optimizer_w(loaded), TOY_DIM * sizeof *w0);
    assert_int_equal(dro_optimizer_scale_eta(scaled, -1), DRO_ERR_RANGE);
    assert_int_equal(dro_optimizer_scale_eta(scaled, NAN), DRO_ERR_RANGE);
    for (int k = 0; k < 3; k++)
        dro_optimizer_destroy(*of[k]);
    dro_context_destroy(ctx);
}

/* info describes the step that was taken, also right before the tilt changes. */
static void test_info_at_switch(void **state)
{
    (void)state;
    dro_context *ctx = check_context("auto", 1);
    toy t = {0};
    dro_problem p = toy_problem(&t);
    dro_optimizer *opt;
    dro_info info;
    OK(ctx, dro_optimizer_create(ctx, "recover", &p, &opt));
    check_set(ctx, opt, "tilt=none switch_tilt=example switch_step=4 batch=8");
    OK(ctx, dro_optimizer_start(opt, w0));
    for (int s = 0; s < 8; s++) {
        OK(ctx, dro_optimizer_step(opt));
        OK(ctx, dro_optimizer_info(opt, &info));
        double expected = s < 4 ? info.loss : info.lambda * info.log_u;
        check_near("objective", info.objective, expected, 1e-12);
        assert_true(info.objective > 0);
    }
    dro_optimizer_destroy(opt);
    dro_context_destroy(ctx);
}

/* The first step of Adam is eta long in every element, whatever the gradient: the decays of the
 * moments and what takes their bias away cancel, in the backend's own numbers. */
static void test_first_step_of_adam(void **state)
{
    (void)state;
    static const struct {
        const char *name, *settings;
    } cases[] = {{"adamw", "weight_decay=0"},
                 {"adamw", "weight_decay=0 beta2=0.9999"},
                 {"scent", "precondition=adam beta2=0.999 warmup=0 guard=0 lambda=1e9"}};
    for (int b = 0; b < 2; b++)
        for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
            dro_context *ctx = check_context(b ? "ref" : "auto", 1);
            toy t = {0};
            dro_problem p = toy_problem(&t);
            dro_optimizer *opt;
            OK(ctx, dro_optimizer_create(ctx, cases[k].name, &p, &opt));
            check_set(ctx, opt, cases[k].settings);
            check_set(ctx, opt, "eta=1 epsilon=0 batch=8");
            OK(ctx, dro_optimizer_start(opt, (const float[TOY_DIM]){0}));
            OK(ctx, dro_optimizer_step(opt));
            for (int j = 0; j < TOY_DIM; j++)
                check_near(cases[k].settings, fabs((double)dro_optimizer_w(opt)[j]), 1, 5e-7);
            dro_optimizer_destroy(opt);
            dro_context_destroy(ctx);
        }
}

static dro_status even_forward(void *user, const float *w, const dro_batch *parts, int count,
                               float *losses)
{
    (void)user, (void)w, (void)count;
    for (size_t i = 0; i < parts[0].count; i++)
        losses[i] = 1;
    return DRO_OK;
}

static dro_status even_backward(void *user, const float *w, const dro_batch *parts, int count,
                                const float *coef, float *const *grads)
{
    (void)user, (void)w, (void)count;
    grads[0][0] = 0;
    for (size_t i = 0; i < parts[0].count; i++)
        grads[0][0] += coef[i];
    return DRO_OK;
}

/* With a gradient that stays the same every step of Adam is eta long, also when the products of
 * the decays have underflowed to 0. */
static void test_long_run_of_adam(void **state)
{
    (void)state;
    enum { STEPS = 2000 };
    for (int b = 0; b < 2; b++) {
        dro_context *ctx = check_context(b ? "ref" : "auto", 1);
        dro_problem p = {
            .size = sizeof p, .dim = 1, .forward = even_forward, .backward = even_backward};
        dro_optimizer *opt;
        OK(ctx, dro_optimizer_create(ctx, "adamw", &p, &opt));
        check_set(ctx, opt,
                  "eta=1 epsilon=0 weight_decay=0 batch=2 eta_schedule=constant warmup=0");
        check_set(ctx, opt, "beta1=0.3 beta2=0.4");
        OK(ctx, dro_optimizer_start(opt, NULL));
        for (int k = 0; k < STEPS; k++)
            OK(ctx, dro_optimizer_step(opt));
        check_near("w", (double)dro_optimizer_w(opt)[0], -STEPS, 1e-2);
        dro_optimizer_destroy(opt);
        dro_context_destroy(ctx);
    }
}

/* A callback may not save, load or change the optimiser that calls it. */
static dro_status meddling_forward(void *user, const float *w, const dro_batch *parts, int count,
                                   float *losses)
{
    dro_optimizer *opt = *(dro_optimizer **)user;
    char bytes[8];
    assert_int_equal(dro_optimizer_save(opt, bytes, sizeof bytes), DRO_ERR_STATE);
    assert_int_equal(dro_optimizer_load(opt, bytes, sizeof bytes), DRO_ERR_STATE);
    assert_int_equal(dro_optimizer_scale_eta(opt, 2), DRO_ERR_STATE);
    assert_int_equal(dro_optimizer_step(opt), DRO_ERR_STATE);
    return even_forward(user, w, parts, count, losses);
}

static void test_meddling_callback(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro_optimizer *opt;
    dro_problem p = {.size = sizeof p,
                     .user = &opt,
                     .dim = 1,
                     .forward = meddling_forward,
                     .backward = even_backward};
    OK(ctx, dro_optimizer_create(ctx, "sgd", &p, &opt));
    OK(ctx, dro_optimizer_start(opt, NULL));
    OK(ctx, dro_optimizer_step(opt));
    OK(ctx, dro_optimizer_scale_eta(opt, 1));
    dro_optimizer_destroy(opt);
    dro_context_destroy(ctx);
}

/* The automatic a: an estimate remembers at most one shuffled epoch. w hardly moves here, so that
 * without epochs its memory grows with the run. */
static void test_memory_of_an_epoch(void **state)
{
    (void)state;
    static const struct {
        const char *order;
        double least, most;
    } cases[] = {{"order=shuffle", 6.0 / TOY_N, 6.0 / TOY_N},
                 {"order=shuffle a_min=0.3", 0.3, 0.3},
                 {"order=uniform", 0, 2.0 / TOY_N}};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        dro_context *ctx = check_context("auto", 1);
        toy t = {0};
        dro_problem p = toy_problem(&t);
        dro_optimizer *opt;
        dro_info info;
        OK(ctx, dro_optimizer_create(ctx, "recover", &p, &opt));
        check_set(ctx, opt, "eta=1e-6 eta_schedule=constant warmup=0 batch=6");
        check_set(ctx, opt, cases[k].order);
        OK(ctx, dro_optimizer_start(opt, w0));
        for (int s = 0; s < 100; s++)
            OK(ctx, dro_optimizer_step(opt));
        OK(ctx, dro_optimizer_info(opt, &info));
        if (info.a < cases[k].least || info.a > cases[k].most)
            fail_msg("%s: a is %g", cases[k].order, info.a);
        dro_optimizer_destroy(opt);
        dro_context_destroy(ctx);
    }
}

/* ---- callbacks in host memory, a context of a device ---- */

/* The steps are those of a context without a device. The device's backend has no functions: it is
 * not used. */
static void steps_beside_a_device(dro_context *ctx, const instance *in, int steps)
{
    static const dro__backend device = {.name = "device"};
    dro_context *away = check_context("auto", 1);
    away->backend = &device;
    toy t[2] = {{0}};
    dro_optimizer *here = started(ctx, in, &t[0]), *there = started(away, in, &t[1]);
    float w[TOY_DIM];
    for (int k = 0; k < steps; k++) {
        OK(ctx, dro_optimizer_step(here));
        OK(away, dro_optimizer_step(there));
    }
    OK(away, dro_optimizer_weights(there, w));
    same_w(in, "beside a device", here, w);
    dro_optimizer_destroy(here);
    dro_optimizer_destroy(there);
    dro_context_destroy(away);
}

static void test_beside_a_device(void **state)
{
    (void)state;
    for_each(steps_beside_a_device, 12);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_refuse_nan_loss),
    cmocka_unit_test(test_refuse_nan_gradient),
    cmocka_unit_test(test_refuse_callback_error),
    cmocka_unit_test(test_skip_number),
    cmocka_unit_test(test_skip_callback_error),
    cmocka_unit_test(test_resume),
    cmocka_unit_test(test_damaged_states),
    cmocka_unit_test(test_foreign_states),
    cmocka_unit_test(test_max_batch),
    cmocka_unit_test(test_stream_ends),
    cmocka_unit_test(test_stream_goes_on),
    cmocka_unit_test(test_info_at_switch),
    cmocka_unit_test(test_scale_eta),
    cmocka_unit_test(test_first_step_of_adam),
    cmocka_unit_test(test_long_run_of_adam),
    cmocka_unit_test(test_meddling_callback),
    cmocka_unit_test(test_memory_of_an_epoch),
    cmocka_unit_test(test_wrong_shares),
    cmocka_unit_test(test_load_larger_batch),
    cmocka_unit_test(test_wrong_ids),
    cmocka_unit_test(test_beside_a_device),
};

CHECK_MAIN(tests)
