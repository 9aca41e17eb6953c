/* The host's side of asynchronous steps (src/opt/async.c), without a device: a queue that takes
 * its steps late, by the same phases, against the same steps taken at once. What test_cuda_queue
 * tests on a GPU, as far as it is the host's: errors that come late, the way back from them, the
 * state there and back again. */
#include "check.h"
#include "opt.h"

enum { LATE = 4, BATCH = 5, GROUPS = 64 };

typedef struct one {
    int64_t ids[2][BATCH];
    int32_t group_of[2 * BATCH];
    dro_batch parts[2];
    int count;
    dro__ticket ticket;
} one;

/* Steps wait until there are LATE of them, or somebody does. */
typedef struct late {
    dro__async async;
    dro__abilities able;
    dro_problem problem;
    dro__step k;
    dro__scalars state, reported;
    dro__ticket ticket;
    one waiting[LATE];
    int count;
    bool broken; /* no step can be queued */
    int scarce;  /* from this step on the device has no memory, 0: it has */
    int begun;
    dro__group groups[GROUPS];
    double shares[GROUPS];
    float old_losses[BATCH], losses[2 * BATCH], coef[2 * BATCH];
} late;

static bool refuse(late *q, int what, int part, int64_t index, float value)
{
    q->state.refused = what;
    q->state.refused_part = part;
    q->state.refused_index = index;
    q->state.refused_value = (double)value;
    return false;
}

static bool forward(late *q, const float *w, const one *s, int count)
{
    assert_int_equal(q->problem.forward(q->problem.user, w, s->parts, count, q->losses), DRO_OK);
    for (int i = 0; i < count * BATCH; i++)
        if (!isfinite(q->losses[i]))
            return refuse(q, DRO__REFUSED_LOSS, i / BATCH, i % BATCH, q->losses[i]);
    return true;
}

static bool backward(late *q, const float *w, const one *s)
{
    float *grads[2] = {q->k.v[DRO__G], q->k.v[DRO__NEXT]};
    assert_int_equal(q->problem.backward(q->problem.user, w, s->parts, s->count, q->coef, grads),
                     DRO_OK);
    for (int k = 0; k < s->count; k++)
        for (int j = 0; j < TOY_DIM; j++)
            if (!isfinite(grads[k][j]))
                return refuse(q, DRO__REFUSED_GRADIENT, k, j, grads[k][j]);
    return true;
}

/* sam, of all parts, as a device does it. */
static bool ascend(late *q, const one *s)
{
    const dro__backend *be = &dro__backend_ref;
    dro__step *k = &q->k;
    double sums[DRO__SUMS];
    if (!forward(q, k->v[DRO__W], s, s->count))
        return false;
    be->weigh(k, DRO__PHASE_ASCENT);
    if (!backward(q, k->v[DRO__W], s))
        return false;
    k->v[DRO__X] = k->v[DRO__G];
    be->move(NULL, k, DRO__MOVE_norm, sums);
    q->state.ascent = sums[0] > 0 ? 1 / sqrt(sums[0]) : 0;
    be->move(NULL, k, DRO__MOVE_ascend, sums);
    return true;
}

/* As a device does it: the state is put back when a gradient is refused. */
static void take_one(late *q, const one *s)
{
    const dro__backend *be = &dro__backend_ref;
    dro__step *k = &q->k;
    late before = *q;
    double sums[DRO__SUMS];
    q->ticket = s->ticket;
    k->group_of = s->group_of;
    k->counts[0] = BATCH, k->counts[1] = s->count == 2 ? BATCH : 0;
    if (s->ticket.ahead) {
        if (!forward(q, k->v[DRO__Z], s, 1))
            return;
        be->weigh(k, k->plan.ahead);
    }
    bool good = !(k->plan.sam > 0) || ascend(q, s);
    good = good && forward(q, k->v[k->plan.sam > 0 ? DRO__Z : DRO__W], s, s->count);
    if (good) {
        be->weigh(k, k->plan.weigh);
        good = backward(q, k->v[k->plan.sam > 0 ? DRO__Z : DRO__W], s);
    }
    if (!good) {
        before.state.refused = q->state.refused;
        before.state.refused_part = q->state.refused_part;
        before.state.refused_index = q->state.refused_index;
        before.state.refused_value = q->state.refused_value;
        q->state = before.state;
        memcpy(q->groups, before.groups, sizeof q->groups);
        memcpy(q->old_losses, before.old_losses, sizeof q->old_losses);
        return;
    }
    if (q->state.fresh) {
        q->ticket.plus = 1;
        k->v[DRO__X] = k->v[DRO__G];
        be->move(NULL, k, DRO__MOVE_norm, sums);
        q->state.square = sums[0];
    }
    be->move(NULL, k, k->plan.move, sums);
    be->settle(k, sums);
    be->move(NULL, k, k->plan.then, sums);
    if (s->count == 2)
        memcpy(k->v[DRO__OLD], k->v[DRO__NEXT], TOY_DIM * sizeof(float));
    if (k->v[DRO__AVERAGE])
        be->move(NULL, k, DRO__MOVE_average, sums);
    q->state.done++;
}

static const float *owner(void *user)
{
    return ((late *)user)->k.v[DRO__W];
}

static dro_status wait(void *user)
{
    late *q = user;
    for (int k = 0; k < q->count && !q->state.refused; k++)
        take_one(q, &q->waiting[k]);
    q->count = 0;
    q->reported = q->state;
    return DRO_OK;
}

static dro_status open(void *user, const dro__step *host)
{
    late *q = user;
    assert_int_equal(host->plan.batch, BATCH);
    assert_true(host->plan.group_capacity <= GROUPS);
    q->k = *host;
    q->k.s = &q->state;
    q->k.ticket = &q->ticket;
    q->k.groups = q->groups;
    q->k.shares = q->shares;
    q->k.losses = q->losses;
    q->k.coef = q->coef;
    q->k.old_losses = q->old_losses;
    return DRO_OK;
}

static dro_status step(void *user, const dro__fetched *f, const dro__ticket *ticket,
                       const int32_t *const *group_of)
{
    late *q = user;
    if (q->broken)
        return DRO_ERR_DEVICE;
    if (q->scarce && q->begun++ >= q->scarce)
        return DRO_ERR_MEMORY;
    if (q->count == LATE)
        wait(q);
    one *s = &q->waiting[q->count++];
    *s = (one){.count = f->part_count, .ticket = *ticket};
    for (int p = 0; p < f->part_count; p++) {
        assert_int_equal(f->parts[p].count, BATCH);
        memcpy(s->ids[p], f->parts[p].ids, sizeof s->ids[p]);
        if (group_of[p])
            memcpy(s->group_of + p * BATCH, group_of[p], BATCH * sizeof *s->group_of);
        s->parts[p] = (dro_batch){.count = BATCH, .ids = s->ids[p]};
    }
    return DRO_OK;
}

static void snapshot(void *user, dro__scalars *state)
{
    *state = ((late *)user)->reported;
}

/* The state without what the host alone sets: the groups, the losses and the shares. */
static void exchange(late *q, const dro__step *host, bool push)
{
    size_t groups = (size_t)host->plan.group_capacity * sizeof *host->groups;
    dro__scalars *s = &q->state;
    memcpy(push ? s : host->s, push ? host->s : s, sizeof *s);
    if (groups)
        memcpy(push ? q->groups : host->groups, push ? host->groups : q->groups, groups);
    if (host->old_losses)
        memcpy(push ? q->old_losses : host->old_losses, push ? host->old_losses : q->old_losses,
               sizeof q->old_losses);
}

static dro_status pull(void *user, const dro__step *host)
{
    late *q = user;
    wait(q);
    exchange(q, host, false);
    return DRO_OK;
}

static dro_status push(void *user, const dro__step *host)
{
    late *q = user;
    exchange(q, host, true);
    q->reported = q->state;
    if (host->shares)
        memcpy(q->shares, host->shares, (size_t)host->ticket->group_count * sizeof *host->shares);
    return DRO_OK;
}

static dro_status fetch(void *user, const dro_batch *parts, int count, dro__fetched *fetched)
{
    (void)user;
    for (int k = 0; k < count; k++)
        fetched->parts[k] = (dro_net_batch){.count = parts[k].count, .ids = parts[k].ids};
    fetched->part_count = count;
    return DRO_OK;
}

static const dro__queue queue = {.open = open,
                                 .step = step,
                                 .snapshot = snapshot,
                                 .owner = owner,
                                 .wait = wait,
                                 .pull = pull,
                                 .push = push};

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
        q->async = (dro__async){.queue = &queue, .net = q, .user = q, .fetch = fetch};
        q->able.async = &q->async;
        p.library = &q->able;
    }
    OK(ctx, dro_optimizer_create(ctx, name, &p, &opt));
    check_set(ctx, opt, settings);
    OK(ctx, dro_optimizer_start(opt, w0));
    assert_true(!opt->async == !q);
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
            assert_non_null(strstr(dro_context_error(ctx), "is refused and changes nothing"));
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
    assert_int_equal(ia.evaluations, ib.evaluations);
    check_near("log_u", ia.log_u, ib.log_u, 1e-5);
}

static const char sgd[] = "eta=0.05 momentum=0.9 batch=5 steps=40 eta_schedule=cosine";

/* Every optimiser whose steps can be asynchronous. */
static const struct {
    const char *name, *settings;
} all[] = {
    {"sgd", sgd},
    {"adamw", "eta=0.02 batch=5 steps=40 eta_schedule=cosine reg=l1 reg_strength=0.01"},
    {"adamw", "eta=0.02 batch=5 steps=40 ema=0.9"},
    {"absgd", "eta=0.05 lambda=2 batch=5 steps=40"},
    {"absgd", "eta=0.05 lambda=2 tilt=class batch=5 steps=40"},
    {"cover", "eta=0.05 lambda=1 batch=5 steps=40 a_rule=fixed a=0.3"},
    {"recover", "eta=0.05 lambda=1 batch=5 steps=40 weight_decay=0.01"},
    {"recover", "eta=0.05 lambda=1 tilt=class batch=5 steps=40"},
    {"recover", "eta=0.02 lambda=1 batch=5 steps=40 precondition=rms"},
    {"recover", "eta=0.05 lambda=1 batch=5 steps=40 ema=0.7"},
    {"recover", "eta=0.05 lambda=1 batch=5 steps=40 sam=0.1"},
    {"recover", "eta=0.05 lambda=1 tilt=class batch=5 steps=40 sam=0.1 sam_over=class"},
    {"sgd", "eta=0.05 batch=5 steps=40 sam=0.2 sam_over=class ema=0.9"},
    {"scent", "eta=0.02 lambda=1 batch=5 steps=40"},
    {"scent", "eta=0.05 lambda=1 tilt=class batch=5 steps=40 precondition=none momentum=0.9"},
    {"ascpg", "eta=0.1 lambda=2 batch=5 steps=40"},
    {"ascpg", "eta=0.1 lambda=2 tilt=class switch_step=20 switch_tilt=example batch=5 steps=40"},
};

enum { ALL = sizeof all / sizeof all[0] };

/* Asynchronous steps give the same results, also if the state is read, saved and loaded in
 * between. */
static void check_same(const char *name, const char *settings)
{
    dro_context *ctx = check_context("ref", 1);
    toy t = {0};
    late q, q2;
    uint64_t none[20];
    dro_optimizer *plain = start(ctx, &t, NULL, name, settings);
    dro_optimizer *queued = start(ctx, &t, &q, name, settings);
    dro_optimizer *other = start(ctx, &t, &q2, name, settings);
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

static void test_same(void **state)
{
    (void)state;
    for (int k = 0; k < ALL; k++)
        check_same(all[k].name, all[k].settings);
}

/* What is refused is reported some steps late, at the same place, and the run is as if it had
 * been reported at once. */
static void test_refused(void **state)
{
    (void)state;
    static const toy_fault faults[] = {TOY_LOSS_NAN, TOY_LOSS_INF, TOY_GRADIENT_NAN};
    for (int k = 0; k < 3 * ALL; k++) {
        dro_context *ctx = check_context("ref", 1);
        toy t = {.fault = faults[k % 3], .modulus = TOY_N, .rest = 13};
        late q;
        uint64_t at[2][20];
        dro_optimizer *plain = start(ctx, &t, NULL, all[k / 3].name, all[k / 3].settings);
        dro_optimizer *queued = start(ctx, &t, &q, all[k / 3].name, all[k / 3].settings);
        int count = run_to_end(ctx, plain, 40, at[0]);
        assert_true(count > 1); /* once in each pass */
        assert_int_equal(run_to_end(ctx, queued, 40, at[1]), count);
        assert_memory_equal(at[0], at[1], (size_t)count * sizeof at[0][0]);
        compare(ctx, plain, queued);
        dro_optimizer_destroy(plain), dro_optimizer_destroy(queued);
        dro_context_destroy(ctx);
    }
}

/* A step that cannot be queued is an error and changes nothing: RECOVER's whole state has been to
 * the device and back. */
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
    memset(queued->k.old_losses, 0xff, sizeof q.old_losses);
    queued->s.log_u = 99;
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
    p.library = &q.able;
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

/* Without memory on the device the run continues from the host, where a batch can be evaluated in
 * pieces; steps that are still in the queue are taken first, and refused ones reported. */
static void test_scarce(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    for (int k = 0; k < ALL; k++)
        for (int bad = 0; bad < 2; bad++) {
            toy t = {.fault = TOY_LOSS_NAN, .modulus = bad ? TOY_N : 0, .rest = 17};
            late q;
            uint64_t places[2][20];
            dro_optimizer *plain = start(ctx, &t, NULL, all[k].name, all[k].settings);
            dro_optimizer *queued = start(ctx, &t, &q, all[k].name, all[k].settings);
            q.scarce = 1 + k % 7;
            int count = run_to_end(ctx, plain, 40, places[0]);
            assert_int_equal(run_to_end(ctx, queued, 40, places[1]), count);
            assert_memory_equal(places[0], places[1], (size_t)count * sizeof places[0][0]);
            assert_null(queued->async);
            compare(ctx, plain, queued);
            dro_optimizer_destroy(plain), dro_optimizer_destroy(queued);
        }
    dro_context_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_same),          cmocka_unit_test(test_scarce),
    cmocka_unit_test(test_refused),       cmocka_unit_test(test_there_and_back),
    cmocka_unit_test(test_one_at_a_time),
};

CHECK_MAIN(tests)
