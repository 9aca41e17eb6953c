/* Caller-driven steps (dro/step.h, src/opt/lent.c), in host memory and on a stand-in for a device,
 * compared with the same steps with callbacks. This covers the host's part of what
 * python/tests/test_torch_cuda.py tests on a GPU. */
#include "check.h"
#include "opt.h"

#include <dro/step.h>

enum { BATCH = 5, STEPS = 40, GROUPS = 64 };

/* ---- a device whose memory is the host's, with the phases of ref ---- */

typedef struct device {
    dro__step k;
    dro__ticket ticket;
    dro__scalars before, reported;
    dro__group groups_before[GROUPS];
    float old_losses_before[BATCH];
    uint64_t ended;
    void *stream;
} device;

static size_t scratch_size(const dro__step *k)
{
    return 100 + (size_t)k->plan.group_capacity * sizeof *k->groups;
}

static const char *open_step(const dro__step *k, void *scratch, void **live)
{
    device *d = calloc(1, sizeof *d);
    assert_non_null(d);
    memset(scratch, 1, scratch_size(k)); /* it is memory */
    d->k = *k;
    d->k.ticket = &d->ticket;
    *live = d;
    return NULL;
}

static const char *begin_step(void *live, const dro__ticket *ticket, void *stream)
{
    device *d = live;
    d->ticket = *ticket;
    d->stream = stream;
    return stream == &begin_step ? "no such stream" : NULL;
}

/* What a refused step puts back. */
static void keep(device *d, bool back)
{
    dro__step *k = &d->k;
    size_t groups = (size_t)k->plan.group_capacity * sizeof *k->groups;
    assert_true(groups <= sizeof d->groups_before);
    memcpy(back ? k->s : &d->before, back ? &d->before : k->s, sizeof *k->s);
    if (groups)
        memcpy(back ? k->groups : d->groups_before, back ? d->groups_before : k->groups, groups);
    if (k->old_losses)
        memcpy(back ? k->old_losses : d->old_losses_before,
               back ? d->old_losses_before : k->old_losses, sizeof d->old_losses_before);
}

static void refuse(device *d, int what, int64_t index, float value)
{
    d->k.s->refused = what;
    d->k.s->refused_index = index;
    d->k.s->refused_value = (double)value;
}

static const char *weigh_step(void *live, dro__phase phase, int first, const dro__phase_batch *b)
{
    device *d = live;
    dro__step k = d->k;
    k.losses = (float *)b->losses;
    k.coef = b->coef;
    k.counts[0] = k.counts[1] = 0;
    k.counts[phase == DRO__PHASE_OLD] = d->k.counts[0] = b->count;
    for (int i = 0; i < b->count && !d->k.s->refused; i++) {
        if (!isfinite(b->losses[i]) && !first)
            keep(d, true);
        if (!isfinite(b->losses[i]))
            refuse(d, DRO__REFUSED_LOSS, i, b->losses[i]);
        if (b->labels && first)
            ((int32_t *)k.group_of)[i] = (int32_t)b->labels[i];
        if (b->labels && (b->labels[i] < 0 || b->labels[i] >= d->ticket.group_count))
            refuse(d, DRO__REFUSED_LABEL, i, (float)b->labels[i]);
    }
    memset(b->coef, 0, (size_t)b->count * sizeof *b->coef);
    if (d->k.s->refused)
        return NULL;
    if (first)
        keep(d, false);
    dro__backend_ref.weigh(&k, phase);
    return NULL;
}

static const char *move_step(void *live, float *left, int twice)
{
    device *d = live;
    const dro__backend *be = &dro__backend_ref;
    dro__step *k = &d->k;
    double sums[DRO__SUMS];
    for (size_t i = 0; i < (twice ? 2 : 1) * k->n && !k->s->refused; i++) {
        float x = k->v[i < k->n ? DRO__G : DRO__OLD][i % k->n];
        if (isfinite(x))
            continue;
        keep(d, true);
        refuse(d, DRO__REFUSED_GRADIENT, (int64_t)i, x);
    }
    if (!k->s->refused) {
        if (left)
            memcpy(left, k->v[DRO__W], k->n * sizeof *left);
        if (k->s->fresh) {
            k->v[DRO__X] = k->v[DRO__G];
            be->move(NULL, k, DRO__MOVE_norm, sums);
            k->s->square = sums[0];
        }
        be->move(NULL, k, k->plan.move, sums);
        be->settle(k, sums);
        be->move(NULL, k, k->plan.then, sums);
        if (k->v[DRO__AVERAGE])
            be->move(NULL, k, DRO__MOVE_average, sums);
        k->s->done++;
    }
    d->ended++;
    d->reported = *k->s;
    return NULL;
}

static const char *undo_step(void *live)
{
    device *d = live;
    if (!d->k.s->refused)
        keep(d, true);
    return NULL;
}

static const char *replace(void *live, const float *w, const void *changed, void *stream)
{
    device *d = live;
    d->stream = stream;
    if (changed && !*(const bool *)changed)
        return NULL;
    for (size_t i = 0; i < d->k.n; i++) {
        d->k.v[DRO__W][i] = w[i];
        for (int role = DRO__D; role <= DRO__SECOND; role++)
            if (d->k.v[role])
                d->k.v[role][i] = 0;
        if (d->k.v[DRO__AVERAGE])
            d->k.v[DRO__AVERAGE][i] = w[i];
    }
    if (d->k.groups)
        memset(d->k.groups, 0, (size_t)d->k.plan.group_capacity * sizeof *d->k.groups);
    *d->k.s = (dro__scalars){.done = d->k.s->done};
    return NULL;
}

static const char *copy(void *live, void *to, const void *from, size_t bytes)
{
    (void)live;
    memcpy(to, from, bytes);
    return NULL;
}

static uint64_t snapshot(void *live, dro__scalars *s)
{
    *s = ((device *)live)->reported;
    return ((device *)live)->ended;
}

static const dro__phases module = {.step_size = sizeof(dro__step),
                                   .ticket_size = sizeof(dro__ticket),
                                   .scratch_size = scratch_size,
                                   .open = open_step,
                                   .close = free,
                                   .begin = begin_step,
                                   .weigh = weigh_step,
                                   .move = move_step,
                                   .undo = undo_step,
                                   .replace = replace,
                                   .copy = copy,
                                   .snapshot = snapshot};

/* ---- a caller ---- */

typedef struct caller {
    dro_context *ctx;
    dro_optimizer *opt;
    dro_lent lent;
    uint64_t position;
    float spoil; /* added to a loss */
    bool zero;   /* a loss is 0 */
    int64_t label;
} caller;

static caller make(const char *name, const char *settings, toy *t, bool there)
{
    caller c = {.ctx = check_context("ref", 1), .lent = {.size = sizeof c.lent}};
    static const double shares[] = {0.7, 0.3};
    dro_problem p = toy_problem(t);
    p.class_share = shares;
    OK(c.ctx, dro_optimizer_create(c.ctx, name, &p, &c.opt));
    check_set(c.ctx, c.opt, settings);
    check_set(c.ctx, c.opt, "order=sequential"); /* position k is example k, here and there */
    OK(c.ctx, dro_optimizer_start(c.opt, w0));
    c.lent.module = there ? &module : NULL;
    OK(c.ctx, dro_step_lend(c.opt, &c.lent));
    if (there) {
        assert_null(c.lent.w);
        c.lent.memory = malloc(c.lent.bytes);
        assert_non_null(c.lent.memory);
        memset(c.lent.memory, 0xff, c.lent.bytes); /* floats that are not numbers */
        OK(c.ctx, dro_step_lend(c.opt, &c.lent));
    }
    assert_non_null(c.lent.w);
    return c;
}

static void drop(caller *c)
{
    dro_optimizer_destroy(c->opt);
    free(c->lent.memory);
    dro_context_destroy(c->ctx);
}

static dro_status evaluate(caller *c, toy *t, bool before)
{
    int64_t ids[BATCH], labels[BATCH];
    int32_t classes[BATCH], groups[BATCH];
    float losses[BATCH], coef[BATCH];
    const float *w = before ? c->lent.before : c->lent.w;
    float *gradient = before ? c->lent.gradient_before : c->lent.gradient;
    for (int i = 0; i < BATCH; i++)
        ids[i] = (int64_t)((c->position + (uint64_t)i) % TOY_N);
    dro_batch batch = {.position = c->position, .count = BATCH, .ids = ids};
    toy_labels(t, ids, BATCH, classes, groups);
    for (int i = 0; i < BATCH; i++)
        labels[i] = classes[i];
    labels[2] += c->label;
    assert_int_equal(toy_forward(t, w, &batch, 1, losses), DRO_OK);
    losses[1] = c->zero ? 0 : losses[1] + c->spoil;
    dro_step_batch b = {.count = BATCH, .losses = losses, .labels = labels, .coef = coef};
    DRO_TRY(dro_step_weigh(c->opt, before, &b));
    assert_int_equal(toy_backward(t, w, &batch, 1, coef, &gradient), DRO_OK);
    return DRO_OK;
}

static dro_status take(caller *c, toy *t)
{
    bool twice = true;
    DRO_TRY(dro_step_begin(c->opt, NULL, &twice));
    if (twice)
        DRO_TRY(evaluate(c, t, true));
    DRO_TRY(evaluate(c, t, false));
    DRO_TRY(dro_step_end(c->opt));
    c->position += BATCH;
    return DRO_OK;
}

static void compare(const caller *a, const caller *b)
{
    float wa[TOY_DIM], wb[TOY_DIM];
    dro_info ia, ib;
    OK(a->ctx, dro_optimizer_weights(a->opt, wa));
    OK(b->ctx, dro_optimizer_weights(b->opt, wb));
    OK(a->ctx, dro_optimizer_info(a->opt, &ia));
    OK(b->ctx, dro_optimizer_info(b->opt, &ib));
    for (int j = 0; j < TOY_DIM; j++)
        check_near("w", (double)wa[j], (double)wb[j], 0);
    check_near("log_u", ia.log_u, ib.log_u, 0);
    check_near("loss", ia.loss, ib.loss, 0);
    assert_int_equal(ia.step, ib.step);
    assert_int_equal(ia.examples, ib.examples);
    assert_int_equal(ia.evaluations, ib.evaluations);
}

static const struct {
    const char *name, *settings;
} all[] = {
    {"recover", "form=two-point eta=0.05 lambda=1 batch=5"},
    {"recover", "form=two-point eta=0.05 lambda=1 tilt=class batch=5 weight_decay=0.01"},
    {"recover", "form=two-point eta=0.02 lambda=1 batch=5 precondition=rms momentum=0.5 ema=0.9"},
    {"recover", "form=two-point eta=0.02 objective=cvar:0.4 batch=5 reg=l1 reg_strength=0.01"},
    {"cover", "form=two-point eta=0.05 lambda=2 batch=5 switch_step=20 switch_tilt=class"},
    {"recover", "form=two-point eta=0.05 lambda=1 tilt=class group_prior=data batch=5"},
    {"scent", "eta=0.02 lambda=1 batch=5"},
    {"sgd", "eta=0.05 momentum=0.9 batch=5"},
};

/* With callbacks, in host memory and on a device: the same to the bit; so is a state that was saved
 * and loaded half-way. */
static void check_same(const char *name, const char *settings)
{
    toy t = {0};
    caller plain = make(name, settings, &t, false), here = make(name, settings, &t, false);
    caller there = make(name, settings, &t, true), other = make(name, settings, &t, true);
    for (int k = 0; k < STEPS; k++) {
        OK(plain.ctx, dro_optimizer_step(plain.opt));
        OK(here.ctx, take(&here, &t));
        OK(there.ctx, take(&there, &t));
        if (k == STEPS / 2) {
            size_t size;
            unsigned char *saved = check_save(there.ctx, there.opt, &size);
            OK(other.ctx, dro_optimizer_load(other.opt, saved, size));
            other.position = there.position;
            free(saved);
        } else if (k > STEPS / 2) {
            OK(other.ctx, take(&other, &t));
        }
        compare(&plain, &here);
        compare(&plain, &there);
    }
    compare(&plain, &other);
    drop(&plain), drop(&here), drop(&there), drop(&other);
}

static void test_same(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        check_same(all[k].name, all[k].settings);
}

/* A step that is dropped or refused changes nothing; on a device that is reported by the next. */
static void check_refused(bool there)
{
    toy t = {0};
    caller good = make(all[1].name, all[1].settings, &t, false);
    caller c = make(all[1].name, all[1].settings, &t, there);
    for (int k = 0; k < 12; k++) {
        bool twice;
        if (k == 4) { /* the caller gives up */
            OK(c.ctx, dro_step_begin(c.opt, NULL, &twice));
            OK(c.ctx, evaluate(&c, &t, true));
            OK(c.ctx, dro_step_cancel(c.opt));
            assert_int_equal(dro_step_end(c.opt), DRO_ERR_STATE);
        }
        c.spoil = k == 6 ? NAN : 0;
        c.label = k == 9 ? 7 : 0;
        if (k == 6 || k == 9) {
            dro_status status = there ? DRO_OK : k == 6 ? DRO_ERR_NUMBER : DRO_ERR_CALLBACK;
            uint64_t position = c.position;
            assert_int_equal(take(&c, &t), status);
            c.position = position;
            c.spoil = 0, c.label = 0;
            if (there) {
                status = k == 6 ? DRO_ERR_NUMBER : DRO_ERR_DATA;
                assert_int_equal(take(&c, &t), status);
                const char *what = k == 6 ? "loss 1 is nan at step 6" : "label 2 is";
                assert_non_null(strstr(dro_context_error(c.ctx), what));
            }
        }
        OK(good.ctx, take(&good, &t));
        OK(c.ctx, take(&c, &t));
        assert_memory_equal(good.lent.w, c.lent.w, TOY_DIM * sizeof(float));
    }
    drop(&good), drop(&c);
}

static void test_refused(void **state)
{
    (void)state;
    check_refused(false);
    check_refused(true);
}

/* A state is loaded before the refusal of a step was reported: it is of no step of that state. */
static void test_loaded(void **state)
{
    (void)state;
    toy t = {0};
    size_t size;
    caller good = make(all[1].name, all[1].settings, &t, true);
    caller c = make(all[1].name, all[1].settings, &t, true);
    OK(good.ctx, take(&good, &t));
    OK(c.ctx, take(&c, &t));
    unsigned char *saved = check_save(c.ctx, c.opt, &size);
    uint64_t position = c.position;
    c.spoil = NAN;
    OK(c.ctx, take(&c, &t));
    c.spoil = 0;
    OK(c.ctx, dro_optimizer_load(c.opt, saved, size));
    c.position = position;
    free(saved);
    OK(good.ctx, take(&good, &t));
    OK(c.ctx, take(&c, &t));
    compare(&good, &c);
    drop(&good), drop(&c);
}

/* Other weights: everything begins again. */
static void test_replaced(void **state)
{
    (void)state;
    toy t = {0};
    static const float w[TOY_DIM] = {1, -1};
    static const bool no = false, yes = true;
    for (size_t k = 0; k < 3; k++) {
        caller here = make(all[k].name, all[k].settings, &t, false);
        caller there = make(all[k].name, all[k].settings, &t, true);
        for (int step = 0; step < 10; step++) {
            if (step == 5) {
                OK(here.ctx, dro_step_replace(here.opt, w, NULL, NULL));
                OK(there.ctx, dro_step_replace(there.opt, w, &no, NULL));
                OK(there.ctx, dro_step_replace(there.opt, w, &yes, NULL));
                assert_memory_equal(there.lent.w, w, sizeof w);
            }
            here.zero = there.zero = step == 5; /* of no influence on the fresh start */
            OK(here.ctx, take(&here, &t));
            OK(there.ctx, take(&there, &t));
        }
        assert_memory_equal(here.lent.w, there.lent.w, sizeof w);
        drop(&here), drop(&there);
    }
}

static void test_misuse(void **state)
{
    (void)state;
    toy t = {0};
    bool twice;
    caller c = make(all[0].name, all[0].settings, &t, true);
    float losses[6] = {0}, coef[6];
    dro_step_batch batch = {.count = 6, .losses = losses, .coef = coef};
    assert_int_equal(dro_step_weigh(c.opt, false, &batch), DRO_ERR_STATE);
    assert_int_equal(dro_optimizer_step(c.opt), DRO_ERR_STATE);
    assert_int_equal(dro_step_begin(c.opt, (void *)&begin_step, &twice), DRO_ERR_DEVICE);
    assert_non_null(strstr(dro_context_error(c.ctx), "no such stream"));
    OK(c.ctx, dro_step_begin(c.opt, NULL, &twice));
    assert_false(twice);
    assert_int_equal(dro_step_begin(c.opt, NULL, &twice), DRO_ERR_STATE);
    assert_int_equal(dro_step_weigh(c.opt, true, &batch), DRO_ERR_STATE);
    assert_int_equal(dro_step_end(c.opt), DRO_ERR_STATE);
    assert_int_equal(dro_optimizer_scale_eta(c.opt, 1), DRO_ERR_STATE);
    assert_int_equal(dro_step_weigh(c.opt, false, &batch), DRO_ERR_RANGE);
    OK(c.ctx, dro_step_cancel(c.opt));
    batch.count = BATCH;
    float some[BATCH] = {0}, shares[BATCH];
    batch.losses = some, batch.coef = shares;
    OK(c.ctx, dro_step_begin(c.opt, NULL, &twice));
    OK(c.ctx, dro_step_weigh(c.opt, false, &batch));
    assert_int_equal(dro_step_weigh(c.opt, false, &batch), DRO_ERR_STATE);
    OK(c.ctx, dro_step_cancel(c.opt));
    dro__phases other = module;
    other.step_size++;
    dro_lent lent = {.size = sizeof lent, .module = &other};
    assert_int_equal(dro_step_lend(c.opt, &lent), DRO_ERR_UNSUPPORTED);
    lent.module = &module;
    lent.memory = c.lent.memory;
    lent.bytes = 10;
    assert_int_equal(dro_step_lend(c.opt, &lent), DRO_ERR_RANGE);
    assert_int_equal(dro_step_begin(NULL, NULL, &twice), DRO_ERR_ARGUMENT);
    drop(&c);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_same),     cmocka_unit_test(test_refused), cmocka_unit_test(test_loaded),
    cmocka_unit_test(test_replaced), cmocka_unit_test(test_misuse),
};

CHECK_MAIN(tests)
