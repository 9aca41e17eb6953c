/* Small helpers of the tests: a context, checked calls, settings in one line, repeatable
 * numbers. */
#ifndef DRO_CHECK_H
#define DRO_CHECK_H

#include "opt.h"

#include <dro/dro.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The call must succeed; its error text is shown when it does not. */
#define OK(ctx, call)                                                                              \
    do {                                                                                           \
        dro_status check_status_ = (call);                                                         \
        if (check_status_ != DRO_OK)                                                               \
            fail_msg("%s: %s: %s", #call, dro_status_text(check_status_), dro_context_error(ctx)); \
    } while (0)

/* The call must fail with this status and an error text that contains `part`. */
#define FAILS(ctx, call, status, part)                                                             \
    do {                                                                                           \
        dro_status check_status_ = (call);                                                         \
        if (check_status_ != (status) || !strstr(dro_context_error(ctx), part))                    \
            fail_msg("%s: %d (%s), expected %d and '%s'", #call, (int)check_status_,               \
                     dro_context_error(ctx), (int)(status), part);                                 \
    } while (0)

/* main() of a test program; the first argument is a filter on the tests' names. */
#define CHECK_MAIN(tests) CHECK_MAIN_WITH(tests, NULL, NULL)
/* The same with functions that run before the first test and after the last one. */
#define CHECK_MAIN_WITH(tests, setup, teardown)                                                    \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        if (argc > 1)                                                                              \
            cmocka_set_test_filter(argv[1]);                                                       \
        return cmocka_run_group_tests(tests, setup, teardown);                                     \
    }

static inline dro_context *check_context(const char *backend, int threads)
{
    dro_context *ctx;
    assert_int_equal(dro_context_create(backend, threads, &ctx), DRO_OK);
    return ctx;
}

/* "eta=0.1 batch=8 ?big=32": sets each; a name after ? may be unknown to the optimiser. */
static inline void check_set(dro_context *ctx, dro_optimizer *opt, const char *settings)
{
    char text[512], *rest = text, *word;
    assert_true(strlen(settings) < sizeof text);
    strcpy(text, settings);
    while ((word = strtok_r(rest, " ", &rest))) {
        bool optional = *word == '?';
        char *name = word + optional, *value = strchr(name, '=');
        assert_non_null(value);
        *value++ = '\0';
        dro_status status = dro_optimizer_set(opt, name, value);
        if (status != DRO_OK && !(optional && status == DRO_ERR_NAME))
            fail_msg("%s=%s: %s", name, value, dro_context_error(ctx));
    }
}

/* The saved state, *size bytes; free() it. */
static inline unsigned char *check_save(dro_context *ctx, const dro_optimizer *opt, size_t *size)
{
    *size = dro_optimizer_state_size(opt);
    unsigned char *bytes = malloc(*size);
    assert_non_null(bytes);
    memset(bytes, 0xa5, *size);
    OK(ctx, dro_optimizer_save(opt, bytes, *size));
    return bytes;
}

/* The k-th optimiser that takes steps of eta with batches (lbfgs and newton do not), or NULL. */
static inline const char *check_optimizer(int k)
{
    const char *name;
    for (int i = 0; (name = dro_optimizer_name(i)); i++)
        if (!dro__optimizer_exact(name) && k-- == 0)
            break;
    return name;
}

/* Repeatable numbers: the k-th of a stream, uniform in [low, high). */
static inline double check_uniform(uint64_t stream, uint64_t k, double low, double high)
{
    return low + (high - low) * dro__random_unit(20240607, stream, k);
}

static inline void check_near(const char *what, double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%s: %.17g, expected %.17g within %.3g", what, value, expected, tolerance);
}

/* ---- a toy problem with faults: loss_i = (<x_i, w> - y_i)^2 / 2 ---- */

enum { TOY_DIM = 6, TOY_N = 60, TOY_SLOTS = 4, TOY_BATCH = 64 };

typedef enum toy_fault {
    TOY_FINE,
    TOY_LOSS_NAN,
    TOY_LOSS_INF,
    TOY_GRADIENT_NAN, /* entry 3 */
    TOY_FORWARD_FAILS,
    TOY_BACKWARD_FAILS
} toy_fault;

typedef struct toy {
    toy_fault fault;       /* of the examples whose id % modulus is rest */
    int64_t modulus, rest; /* modulus 0: none */
    int64_t bad_index;     /* in its part, of the first bad example of the last call, and its id */
    int64_t bad_id;
    size_t most;  /* examples in the largest call */
    uint64_t end; /* examples in the stream of toy_draw */
    int64_t ids[TOY_SLOTS][TOY_BATCH];
    int next;
} toy;

static inline double toy_x(int64_t id, int j)
{
    return check_uniform(91, (uint64_t)(id * (TOY_DIM + 1) + j), -1, 1);
}

/* <x, w> - y */
static inline double toy_residual(const float *w, int64_t id)
{
    double r = -2 * toy_x(id, TOY_DIM);
    for (int j = 0; j < TOY_DIM; j++)
        r += toy_x(id, j) * (double)w[j];
    return r;
}

/* Whether a part holds a bad example; keeps the first. Counts the sizes of calls. */
static inline bool toy_bad(toy *t, const dro_batch *parts, int part_count)
{
    size_t total = 0;
    for (int k = 0; k < part_count; k++)
        total += parts[k].count;
    t->most = total > t->most ? total : t->most;
    for (int k = 0; k < part_count; k++)
        for (size_t i = 0; i < parts[k].count; i++)
            if (t->modulus && parts[k].ids[i] % t->modulus == t->rest) {
                t->bad_index = (int64_t)i;
                t->bad_id = parts[k].ids[i];
                return true;
            }
    return false;
}

static inline dro_status toy_forward(void *user, const float *w, const dro_batch *parts,
                                     int part_count, float *losses)
{
    toy *t = user;
    if (toy_bad(t, parts, part_count) && t->fault == TOY_FORWARD_FAILS)
        return DRO_ERR_CALLBACK;
    for (int k = 0; k < part_count; k++)
        for (size_t i = 0; i < parts[k].count; i++) {
            int64_t id = parts[k].ids[i];
            double r = toy_residual(w, id);
            *losses = (float)(r * r / 2);
            if (t->modulus && id % t->modulus == t->rest && t->fault == TOY_LOSS_NAN)
                *losses = (float)NAN;
            if (t->modulus && id % t->modulus == t->rest && t->fault == TOY_LOSS_INF)
                *losses = INFINITY;
            losses++;
        }
    return DRO_OK;
}

static inline dro_status toy_backward(void *user, const float *w, const dro_batch *parts,
                                      int part_count, const float *coef, float *const *grads)
{
    toy *t = user;
    if (toy_bad(t, parts, part_count) && t->fault == TOY_BACKWARD_FAILS)
        return DRO_ERR_CALLBACK;
    for (int k = 0; k < part_count; k++) {
        double sum[TOY_DIM] = {0};
        for (size_t i = 0; i < parts[k].count; i++, coef++)
            for (int j = 0; j < TOY_DIM; j++)
                sum[j] +=
                    (double)*coef * toy_residual(w, parts[k].ids[i]) * toy_x(parts[k].ids[i], j);
        for (int j = 0; j < TOY_DIM; j++)
            grads[k][j] = (float)sum[j];
        if (t->fault == TOY_GRADIENT_NAN && toy_bad(t, &parts[k], 1))
            grads[k][3] = (float)NAN;
    }
    return DRO_OK;
}

static inline dro_status toy_labels(void *user, const int64_t *ids, size_t count, int32_t *classes,
                                    int32_t *groups)
{
    (void)user;
    for (size_t i = 0; i < count; i++) {
        if (classes)
            classes[i] = (int32_t)(ids[i] % 2);
        if (groups)
            groups[i] = (int32_t)(ids[i] % 7 % 3);
    }
    return DRO_OK;
}

/* A stream of `end` examples; its ids go round. */
static inline dro_status toy_draw(void *user, uint64_t position, size_t count, dro_batch *batch)
{
    toy *t = user;
    if (position + count > t->end)
        return DRO_ERR_END;
    int64_t *ids = t->ids[t->next++ % TOY_SLOTS];
    assert_true(count <= TOY_BATCH);
    for (size_t i = 0; i < count; i++)
        ids[i] = (int64_t)((position + i) % TOY_N);
    batch->ids = ids;
    return DRO_OK;
}

/* As a compositional problem: g = (mean r, mean r^2) / 2 of the residuals. */
static inline dro_status toy_evaluate(void *user, const float *w, const dro_batch *parts,
                                      int part_count, double *g, float *const *jacobian)
{
    toy *t = user;
    if (toy_bad(t, parts, part_count) &&
        (t->fault == TOY_FORWARD_FAILS || t->fault == TOY_BACKWARD_FAILS))
        return DRO_ERR_CALLBACK;
    for (int k = 0; k < part_count; k++, g += 2) {
        double mean[2] = {0}, rows[2 * TOY_DIM] = {0}, b = 2 * (double)parts[k].count;
        for (size_t i = 0; i < parts[k].count; i++) {
            double r = toy_residual(w, parts[k].ids[i]);
            mean[0] += r / b;
            mean[1] += r * r / b;
            for (int j = 0; j < TOY_DIM; j++) {
                rows[j] += toy_x(parts[k].ids[i], j) / b;
                rows[TOY_DIM + j] += 2 * r * toy_x(parts[k].ids[i], j) / b;
            }
        }
        bool bad = toy_bad(t, &parts[k], 1);
        g[0] = mean[0];
        g[1] = bad && t->fault == TOY_LOSS_NAN ? (double)NAN : mean[1];
        g[1] = bad && t->fault == TOY_LOSS_INF ? HUGE_VAL : g[1];
        for (int j = 0; jacobian && j < 2 * TOY_DIM; j++)
            jacobian[k][j] = (float)rows[j];
        if (jacobian && bad && t->fault == TOY_GRADIENT_NAN)
            jacobian[k][3] = (float)NAN;
    }
    return DRO_OK;
}

/* f(u) = u_1 + u_0^2 */
static inline dro_status toy_outer(void *user, const double *u, double *value, double *gradient)
{
    (void)user;
    *value = u[1] + u[0] * u[0];
    gradient[0] = 2 * u[0];
    gradient[1] = 1;
    return DRO_OK;
}

static inline dro_problem toy_problem(toy *t)
{
    return (dro_problem){.size = sizeof(dro_problem),
                         .user = t,
                         .dim = TOY_DIM,
                         .n = TOY_N,
                         .forward = toy_forward,
                         .backward = toy_backward,
                         .labels = toy_labels,
                         .classes = 2,
                         .groups = 3};
}

static inline dro_composite toy_composite(toy *t)
{
    return (dro_composite){.size = sizeof(dro_composite),
                           .user = t,
                           .dim = TOY_DIM,
                           .inner = 2,
                           .n = TOY_N,
                           .evaluate = toy_evaluate,
                           .outer = toy_outer};
}

/* ---- all optimisers in all their forms ---- */

typedef struct instance {
    const char *name, *variant;
    bool composite;
    char text[80];
} instance;

static const char *const variants[] = {"",
                                       "form=two-point",
                                       "sampling=p",
                                       "tilt=group",
                                       "output=random",
                                       "reg=group",
                                       "precondition=adam",
                                       "objective=cvar:0.5",
                                       "objective=kl-radius:0.2",
                                       "objective=chi2:0.5 tilt=group"};
static const char quick[] = "batch=8 eta=0.02 seed=5 steps=60 ?lambda=3 ?warmup=0 ?big=20 ?inner=4 "
                            "?big_growth=1.3 ?stage_steps=5 ?dual_eta=0.001 reg_strength=0.01";

static inline bool has_param(const char *optimizer, const char *variant)
{
    dro_param p;
    for (int k = 0; dro_optimizer_param(optimizer, k, &p) == DRO_OK; k++)
        if (strncmp(p.name, variant, strlen(p.name)) == 0 && variant[strlen(p.name)] == '=')
            return true;
    return *variant == '\0';
}

/* Its weights are of groups; those without lambda are robust with an objective only. */
static inline bool weighs_groups(const instance *in)
{
    return strstr(in->variant, "tilt") &&
           (strstr(in->variant, "objective") || has_param(in->name, "lambda="));
}

/* Created and set, not started; NULL if this optimiser does not solve compositional problems. */
static inline dro_optimizer *create(dro_context *ctx, const instance *in, dro_problem p)
{
    dro_optimizer *opt;
    dro_composite c = toy_composite(p.user);
    c.n = p.n, c.draw = p.draw, c.max_batch = p.max_batch;
    dro_status status = in->composite ? dro_optimizer_create_composite(ctx, in->name, &c, &opt)
                                      : dro_optimizer_create(ctx, in->name, &p, &opt);
    if (in->composite && status == DRO_ERR_UNSUPPORTED)
        return NULL;
    OK(ctx, status);
    check_set(ctx, opt, quick);
    check_set(ctx, opt, in->variant);
    return opt;
}

static const float w0[TOY_DIM] = {0.5f, -0.25f, 0.125f, 1, -1, 0.75f};

static inline dro_optimizer *started(dro_context *ctx, const instance *in, toy *t)
{
    dro_optimizer *opt = create(ctx, in, toy_problem(t));
    OK(ctx, dro_optimizer_start(opt, w0));
    return opt;
}

/* Runs body for each. */
static inline void for_each(void (*body)(dro_context *, const instance *, int), int argument)
{
    int count = 0;
    dro_context *ctx = check_context("auto", 1);
    for (int k = 0; check_optimizer(k); k++)
        for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++)
            for (int composite = 0; composite < 2; composite++) {
                instance in = {check_optimizer(k), variants[v], composite, ""};
                toy t = {0};
                bool plain = strcmp(in.variant, "precondition=adam") == 0 ||
                             strncmp(in.variant, "objective", 9) == 0;
                if (!has_param(in.name, in.variant) || (composite && plain))
                    continue;
                snprintf(in.text, sizeof in.text, "%s%s %s", in.name,
                         composite ? " (composite)" : "", in.variant);
                dro_optimizer *opt = create(ctx, &in, toy_problem(&t));
                bool fits = opt && dro_optimizer_start(opt, w0) == DRO_OK;
                dro_optimizer_destroy(opt);
                if (!fits)
                    continue; /* groups and primal-dual or compositional */
                body(ctx, &in, argument);
                count++;
            }
    assert_true(count > 50);
    dro_context_destroy(ctx);
}

static inline void same_w(const instance *in, const char *when, const dro_optimizer *a,
                          const float *w)
{
    if (memcmp(dro_optimizer_w(a), w, TOY_DIM * sizeof *w) != 0)
        fail_msg("%s: %s: w differs", in->text, when);
}

#endif
