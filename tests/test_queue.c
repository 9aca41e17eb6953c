/* The host's side of steps that nobody waits for (src/opt/device.c), without a device: a queue that takes SGD's steps
 * late, in plain C, against the same steps taken at once. What test_cuda_queue tests on a GPU, as far as it is the host's:
 * errors that come late, the way back from them, the state there and back again. */
#include "check.h"
#include "storm.h"

enum { LATE = 4, BATCH = 5, GROUPS = 64 };

typedef struct one {
    dro_batch batch;
    int64_t ids[BATCH];
    double eta;
} one;

/* Steps wait until there are LATE of them, or somebody does. */
typedef struct late {
    dro__queue queue;
    dro_problem problem;
    dro__step_plan plan;
    dro__step_state state, heard;
    one waiting[LATE];
    int count;
    bool broken; /* no step can be queued */
    dro__group groups[GROUPS];
    float old_losses[BATCH];
} late;

static void refuse(late *q, int what, int64_t index, float value)
{
    q->state.refused = what;
    q->state.refused_index = index;
    q->state.refused_value = (double)value;
}

static void take_one(late *q, const one *s)
{
    float losses[BATCH], coef[BATCH], grad[TOY_DIM], *grads = grad, *w = q->plan.w, *m = q->plan.d;
    double sum = 0;
    assert_int_equal(q->problem.forward(q->problem.user, w, &s->batch, 1, losses), DRO_OK);
    for (int i = 0; i < BATCH; i++) {
        if (!isfinite(losses[i])) {
            refuse(q, DRO__REFUSED_LOSS, i, losses[i]);
            return;
        }
        sum += (double)losses[i];
        coef[i] = 1.0f / BATCH;
    }
    assert_int_equal(q->problem.backward(q->problem.user, w, &s->batch, 1, coef, &grads), DRO_OK);
    for (int j = 0; j < TOY_DIM; j++)
        if (!isfinite(grad[j])) {
            refuse(q, DRO__REFUSED_GRADIENT, j, grad[j]);
            return;
        }
    for (int j = 0; j < TOY_DIM; j++) {
        m[j] = (float)(q->plan.momentum * (double)m[j] + (double)grad[j]);
        w[j] = (float)((double)w[j] - s->eta * (double)m[j]);
    }
    q->state.eta = s->eta;
    q->state.loss = sum / BATCH;
    q->state.largest_weight = q->state.effective = 1;
    q->state.done++;
}

static const float *owner(void *user)
{
    return ((late *)user)->plan.w;
}

static dro_status wait(void *user)
{
    late *q = user;
    for (int k = 0; k < q->count && !q->state.refused; k++)
        take_one(q, &q->waiting[k]);
    q->count = 0;
    q->heard = q->state;
    return DRO_OK;
}

static dro_status open(void *user, const dro__step_plan *plan)
{
    late *q = user;
    assert_int_equal(plan->batch, BATCH);
    assert_true(plan->group_room <= GROUPS);
    q->plan = *plan;
    return DRO_OK;
}

static dro_status step(void *user, const dro_batch *parts, int count,
                       const dro__step_ticket *ticket)
{
    late *q = user;
    if (q->broken)
        return DRO_ERR_DEVICE;
    assert_int_equal(count, 1);
    if (q->count == LATE)
        wait(q);
    one *s = &q->waiting[q->count++];
    *s = (one){.batch = *parts, .eta = ticket->eta};
    memcpy(s->ids, parts->ids, sizeof s->ids);
    s->batch.ids = s->ids;
    return DRO_OK;
}

static void news(void *user, dro__step_state *state)
{
    *state = ((late *)user)->heard;
}

static dro_status pull(void *user, dro__step_state *state, dro__group *groups, float *old_losses)
{
    late *q = user;
    wait(q);
    *state = q->state;
    if (groups)
        memcpy(groups, q->groups, (size_t)q->plan.group_room * sizeof *groups);
    if (old_losses)
        memcpy(old_losses, q->old_losses, sizeof q->old_losses);
    return DRO_OK;
}

static dro_status push(void *user, const dro__step_state *state, const dro__group *groups,
                       const float *old_losses, const double *shares, int32_t share_count)
{
    late *q = user;
    assert_true(!share_count == !shares);
    q->state = q->heard = *state;
    if (groups)
        memcpy(q->groups, groups, (size_t)q->plan.group_room * sizeof *groups);
    if (old_losses)
        memcpy(q->old_losses, old_losses, sizeof q->old_losses);
    return DRO_OK;
}

/* q NULL: every step at once. */
static dro_optimizer *start(dro_context *ctx, toy *t, late *q, const char *name,
                            const char *settings)
{
    static const double half[] = {0.5, 0.5};
    dro_optimizer *opt;
    dro_problem p = toy_problem(t);
    p.class_share = half;
    if (q) {
        *q = (late){.problem = p};
        q->queue = (dro__queue){.user = q,
                                .open = open,
                                .step = step,
                                .news = news,
                                .owner = owner,
                                .wait = wait,
                                .pull = pull,
                                .push = push};
        p.queue = &q->queue;
    }
    OK(ctx, dro_optimizer_create(ctx, name, &p, &opt));
    check_set(ctx, opt, settings);
    OK(ctx, dro_optimizer_start(opt, w0));
    assert_true(!opt->queue == !q);
    return opt;
}

/* To the last planned step, passing over what is refused; the places of that. */
static int run_to_end(dro_context *ctx, dro_optimizer *opt, uint64_t steps, uint64_t places[20])
{
    int count = 0;
    dro_info info = {0};
    for (int tries = 0; info.step < steps; tries++) {
        assert_true(tries < 1000);
        dro_status status = dro_optimizer_step(opt);
        if (status == DRO_ERR_NUMBER) {
            assert_true(count < 20);
            assert_non_null(strstr(dro_context_error(ctx), "is refused, nothing has changed"));
            places[count++] = opt->refused_position;
            OK(ctx, dro_optimizer_skip(opt));
        } else if (status == DRO_ERR_END) {
            OK(ctx, dro_optimizer_info(opt, &info)); /* the last ones may turn out to be refused */
        } else {
            OK(ctx, status);
        }
    }
    return count;
}

static void compare(dro_context *ctx, const dro_optimizer *a, const dro_optimizer *b)
{
    float wa[TOY_DIM], wb[TOY_DIM];
    dro_info ia, ib;
    OK(ctx, dro_optimizer_weights(a, wa));
    OK(ctx, dro_optimizer_weights(b, wb));
    OK(ctx, dro_optimizer_info(a, &ia));
    OK(ctx, dro_optimizer_info(b, &ib));
    for (int j = 0; j < TOY_DIM; j++)
        check_near("w", (double)wa[j], (double)wb[j], 1e-5);
    check_near("loss", ia.loss, ib.loss, 1e-5);
    assert_int_equal(ia.step, ib.step);
    assert_int_equal(ia.examples, ib.examples);
}

static const char sgd[] = "eta=0.05 momentum=0.9 batch=5 steps=40 eta_schedule=cosine";

/* Late steps are the same steps, also when somebody looks, saves and goes on in between. */
static void test_same(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    toy t = {0};
    late q, q2;
    uint64_t none[20];
    dro_optimizer *plain = start(ctx, &t, NULL, "sgd", sgd);
    dro_optimizer *queued = start(ctx, &t, &q, "sgd", sgd);
    dro_optimizer *other = start(ctx, &t, &q2, "sgd", sgd);
    for (int k = 0; k < 14; k++) {
        OK(ctx, dro_optimizer_step(plain));
        OK(ctx, dro_optimizer_step(queued));
    }
    assert_true(q.count > 0 && queued->away);
    size_t size;
    unsigned char *saved = check_save(ctx, queued, &size);
    assert_true(q.count == 0 && !queued->away);
    OK(ctx, dro_optimizer_load(other, saved, size));
    compare(ctx, plain, queued);
    compare(ctx, plain, other);
    assert_int_equal(run_to_end(ctx, plain, 40, none), 0);
    assert_int_equal(run_to_end(ctx, queued, 40, none), 0);
    assert_int_equal(run_to_end(ctx, other, 40, none), 0);
    compare(ctx, plain, queued);
    compare(ctx, plain, other);
    free(saved);
    dro_optimizer_destroy(plain), dro_optimizer_destroy(queued), dro_optimizer_destroy(other);
    dro_context_destroy(ctx);
}

/* What is refused is told some steps late, at the same place, and the run is as if it had been told at once. */
static void test_refused(void **state)
{
    (void)state;
    static const toy_fault faults[] = {TOY_LOSS_NAN, TOY_LOSS_INF, TOY_GRADIENT_NAN};
    for (int k = 0; k < 3; k++) {
        dro_context *ctx = check_context("ref", 1);
        toy t = {.fault = faults[k], .modulus = TOY_N, .rest = 13};
        late q;
        uint64_t at[2][20];
        dro_optimizer *plain = start(ctx, &t, NULL, "sgd", sgd);
        dro_optimizer *queued = start(ctx, &t, &q, "sgd", sgd);
        int count = run_to_end(ctx, plain, 40, at[0]);
        assert_true(count > 1); /* once in each pass */
        assert_int_equal(run_to_end(ctx, queued, 40, at[1]), count);
        assert_memory_equal(at[0], at[1], (size_t)count * sizeof at[0][0]);
        compare(ctx, plain, queued);
        dro_optimizer_destroy(plain), dro_optimizer_destroy(queued);
        dro_context_destroy(ctx);
    }
}

/* A step that cannot be queued is an error and changes nothing: RECOVER's whole state has been to the device and back. */
static void there_and_back(const char *settings)
{
    dro_context *ctx = check_context("ref", 1);
    toy t = {0};
    late q;
    size_t size, again;
    dro_optimizer *plain = start(ctx, &t, NULL, "recover", settings);
    dro_optimizer *queued = start(ctx, &t, &q, "recover", settings);
    for (int k = 0; k < 10; k++)
        OK(ctx, dro_optimizer_step(plain));
    unsigned char *before = check_save(ctx, plain, &size);
    OK(ctx, dro_optimizer_load(queued, before, size));
    q.broken = true;
    assert_int_equal(dro_optimizer_step(queued), DRO_ERR_DEVICE);
    assert_true(queued->away);
    /* What is here is not what counts now. */
    memset(((dro__storm *)queued->state)->old_losses, 0xff, sizeof q.old_losses);
    ((dro__storm *)queued->state)->tilt.log_u = 99;
    unsigned char *after = check_save(ctx, queued, &again);
    assert_false(queued->away);
    assert_int_equal(size, again);
    assert_memory_equal(before, after, size);
    free(before), free(after);
    dro_optimizer_destroy(plain), dro_optimizer_destroy(queued);
    dro_context_destroy(ctx);
}

/* Who was started last has the queue; the other says so, and what it had there is lost. */
static void test_one_at_a_time(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    toy t = {0};
    late q;
    dro_optimizer *first = start(ctx, &t, &q, "sgd", sgd), *second;
    OK(ctx, dro_optimizer_step(first));
    dro_problem p = q.problem;
    p.queue = &q.queue;
    OK(ctx, dro_optimizer_create(ctx, "sgd", &p, &second));
    check_set(ctx, second, sgd);
    OK(ctx, dro_optimizer_start(second, w0));
    OK(ctx, dro_optimizer_step(second));
    FAILS(ctx, dro_optimizer_step(first), DRO_ERR_STATE, "another optimiser was started");
    dro_info info;
    FAILS(ctx, dro_optimizer_info(first, &info), DRO_ERR_STATE, "another optimiser was started");
    dro_optimizer_destroy(first);
    OK(ctx, dro_optimizer_step(second));
    dro_optimizer_destroy(second);
    dro_context_destroy(ctx);
}

static void test_there_and_back(void **state)
{
    (void)state;
    there_and_back("eta=0.02 lambda=2 batch=5");
    there_and_back("eta=0.02 lambda=1 tilt=class batch=5");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_same),
    cmocka_unit_test(test_refused),
    cmocka_unit_test(test_there_and_back),
    cmocka_unit_test(test_one_at_a_time),
};

CHECK_MAIN(tests)
