/* Worst-case weights (objective.h). None needs memory besides q: thresholds are found by passes
 * over the losses.
 *
 * kl-radius: Newton's method for log KL as a function of log lambda, which is nearly a line (KL is
 * about variance / (2 lambda^2)), inside a bracket. cvar: bisection over the floating-point
 * numbers between the smallest and the largest loss. chi2: q_i = p_i (loss_i - eta)+ / E (loss -
 * eta)+. On the set A of the losses above eta, with mass m, mean mu and variance v, the radius
 * gives (mu - eta)^2 = v / (m (1 + 2 rho) - 1). Beginning with all losses, this eta is never above
 * the solution and rises until A stays as it is. */
#include "objective.h"

#include <dro/optimizer.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- names ---- */

#define ROW(name, low, high, meaning)                                                              \
    {                                                                                              \
        {name, DRO_PARAM_REAL, "1", low, high, NULL, meaning}, 0                                   \
    }

/* After the mean, in the order of the kinds. */
static const dro__param_row arguments[] = {
    ROW("kl", 1e-9, 1e12, "lambda"),
    ROW("kl-radius", 0, 1e12, "rho"),
    ROW("cvar", 1e-12, 1, "alpha"),
    ROW("chi2", 0, 1e12, "rho"),
    {{NULL, DRO_PARAM_REAL, NULL, 0, 0, NULL, NULL}, 0},
};

dro_status dro__objective_parse(dro_context *ctx, const char *text, dro__objective *o)
{
    static const dro__param_row *const tables[DRO__TABLE_MAX] = {arguments};
    const char *colon = strchr(text, ':');
    char name[16];
    double value = 0;
    snprintf(name, sizeof name, "%.*s", (int)(colon ? colon - text : 0), text);
    const dro__param_row *row = colon ? dro__param_find(tables, name) : NULL;
    if (row && dro__params_set(ctx, tables, &value, NULL, name, colon + 1) != DRO_OK)
        return dro__fail(ctx, DRO_ERR_RANGE, "objective %s:%.60s: expected a number from %g to %g",
                         name, colon + 1, row->about.low, row->about.high);
    if (!row && strcmp(text, "mean") != 0)
        return dro__fail(ctx, DRO_ERR_NAME,
                         "objective '%.40s': expected kl:LAMBDA, kl-radius:RHO, cvar:ALPHA, "
                         "chi2:RHO or mean",
                         text);
    int kind = row ? DRO__OBJECTIVE_KL + (int)(row - arguments) : DRO__OBJECTIVE_MEAN;
    *o = (dro__objective){.kind = (dro__objective_kind)kind, .argument = value};
    return DRO_OK;
}

void dro__objective_print(const dro__objective *o, char *text, size_t size)
{
    if (o->kind == DRO__OBJECTIVE_MEAN)
        snprintf(text, size, "mean");
    else
        snprintf(text, size, "%s:%.10g", arguments[o->kind - DRO__OBJECTIVE_KL].about.name,
                 o->argument);
}

double dro__objective_slack(const dro__objective *o)
{
    bool cvar = o->kind == DRO__OBJECTIVE_CVAR;
    return o->smoothing * (cvar ? (1 / o->argument - 1) / 2 : o->argument);
}

/* ---- sums ---- */

typedef struct sample {
    size_t n;
    const double *losses, *prior; /* prior NULL: 1/n each */
    double *q;
    double low, high; /* the smallest and the largest loss */
} sample;

static inline double prior_of(const sample *s, size_t i)
{
    return s->prior ? s->prior[i] : 1 / (double)s->n;
}

static sample look(size_t n, const double *losses, const double *prior, double *q)
{
    sample s = {n, losses, prior, q, losses[0], losses[0]};
    for (size_t i = 1; i < n; i++) {
        s.low = losses[i] < s.low ? losses[i] : s.low;
        s.high = losses[i] > s.high ? losses[i] : s.high;
    }
    return s;
}

/* The prior mass of the losses of at least t. */
static double mass_from(const sample *s, double t)
{
    double mass = 0;
    for (size_t i = 0; i < s->n; i++)
        mass += s->losses[i] >= t ? prior_of(s, i) : 0;
    return mass;
}

/* Puts all weight on the largest losses. */
static void take_top(const sample *s, dro__worst_case *worst)
{
    double mass = mass_from(s, s->high);
    for (size_t i = 0; i < s->n; i++)
        s->q[i] = s->losses[i] == s->high ? prior_of(s, i) / mass : 0;
    worst->value = s->high;
}

/* ---- kl ---- */

/* q of the tilt by lambda; *spread is its variance of the losses. Returns log E exp((loss -
 * high)/lambda). The sum of what the exponentials lack of 1 is right for a large lambda too, where
 * all of them are nearly 1. */
static double tilt(const sample *s, double lambda, double *mean, double *spread)
{
    const double nearly_one = -0.01;
    double less = 0, sum, first = 0, second = 0;
    for (size_t i = 0; i < s->n; i++) {
        double x = (s->losses[i] - s->high) / lambda, p = prior_of(s, i);
        double lack = x > nearly_one ? expm1(x) : exp(x) - 1;
        s->q[i] = p * (1 + lack);
        less += p * lack;
    }
    sum = 1 + less;
    for (size_t i = 0; i < s->n; i++)
        first += (s->q[i] /= sum) * (s->losses[i] - s->high);
    for (size_t i = 0; spread && i < s->n; i++) {
        double off = s->losses[i] - s->high - first;
        second += s->q[i] * off * off;
    }
    *mean = s->high + first;
    if (spread)
        *spread = second;
    return log1p(less);
}

static void weigh_kl(const sample *s, double lambda, dro__worst_case *worst)
{
    double mean, log_sum = tilt(s, lambda, &mean, NULL);
    worst->value = s->high + lambda * log_sum;
    worst->lambda = lambda;
}

static void weigh_radius(const sample *s, double rho, double least, dro__worst_case *worst)
{
    enum { PASSES = 200 };
    double top = mass_from(s, s->high), range = s->high - s->low, mean = 0, spread = 0;
    if (least > 0) { /* is the multiplier above it? */
        weigh_kl(s, least, worst);
        dro__worst_case_measure(&(dro__objective){0}, s->n, s->prior, s->q, worst);
        worst->value += least * rho;
        worst->smoothed = worst->divergence <= rho;
        if (worst->smoothed)
            return;
    }
    worst->lambda = 0;
    if (range == 0 || rho >= -log(top)) {
        take_top(s, worst);
        return;
    }
    /* KL(q|p) falls with lambda, from -log(top) to 0 */
    double low = -HUGE_VAL, high = HUGE_VAL, x = log(range), best = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        double lambda = exp(x), log_sum = tilt(s, lambda, &mean, &spread);
        double kl = fmax((mean - s->high) / lambda - log_sum, 0), error = log(kl / rho);
        best = lambda;
        if (fabs(error) < 1e-12 || high - low < 1e-15 * fmax(1, fabs(x)))
            break;
        *(error > 0 ? &low : &high) = x;
        double slope = -spread / (lambda * lambda * kl), next = x - error / slope;
        bool inside = next > low && next < high && fabs(next - x) < 5;
        bool bounded = isfinite(low) && isfinite(high);
        if (!inside)
            next = bounded ? (low + high) / 2 : x + (error > 0 ? 2 : -2);
        x = next;
    }
    worst->value = mean; /* q has the radius: no penalty is left */
    worst->lambda = best;
}

/* ---- cvar ---- */

/* q_i = p_i clip((loss_i - eta) / tau, 0, most): the worst case with a penalty of tau/2 sum_i p_i
 * (q_i/p_i - 1)^2. eta by Newton's method for the sum, which is made of straight pieces and falls,
 * inside a bracket. */
static void weigh_squares(const sample *s, double most, double tau, dro__worst_case *worst)
{
    enum { PASSES = 200 };
    double low = s->low - tau * fmin(most, 1), high = s->high, eta = s->high - tau, sum = 0;
    double square = 0, mean = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        double slope = 0;
        sum = 0;
        for (size_t i = 0; i < s->n; i++) {
            double ratio = (s->losses[i] - eta) / tau, p = prior_of(s, i);
            slope += ratio > 0 && ratio < most ? p / tau : 0;
            s->q[i] = p * fmin(fmax(ratio, 0), most);
            sum += s->q[i];
        }
        *(sum > 1 ? &low : &high) = eta;
        double next = slope > 0 ? eta + (sum - 1) / slope : NAN;
        if (fabs(sum - 1) < 1e-15 || high - low < 1e-15 * fmax(tau, fabs(eta)))
            break;
        eta = next > low && next < high ? next : (low + high) / 2;
    }
    for (size_t i = 0; i < s->n; i++) {
        s->q[i] /= sum;
        mean += s->q[i] * s->losses[i];
        square += s->q[i] > 0 ? s->q[i] * s->q[i] / prior_of(s, i) : 0;
    }
    worst->value = mean - tau / 2 * (square - 1);
    worst->eta = eta;
}

/* Doubles as integers in the same order, and back. */
static int64_t order_of(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits < 0 ? INT64_MIN - bits : bits;
}

static double number_of(int64_t order)
{
    int64_t bits = order < 0 ? INT64_MIN - order : order;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void weigh_cvar(const sample *s, double alpha, dro__worst_case *worst)
{
    /* the largest loss with a mass of alpha at or above it */
    int64_t low = order_of(s->low), high = order_of(s->high);
    while (low < high) {
        int64_t middle = low + (high - low) / 2 + (high - low) % 2;
        if (mass_from(s, number_of(middle)) >= alpha)
            low = middle;
        else
            high = middle - 1;
    }
    double eta = number_of(low), above = 0, at = 0;
    for (size_t i = 0; i < s->n; i++) {
        above += s->losses[i] > eta ? prior_of(s, i) : 0;
        at += s->losses[i] == eta ? prior_of(s, i) : 0;
    }
    double rest = fmax(0, alpha - above); /* shared by those at eta */
    double mass = above + fmin(rest, at); /* alpha, up to rounding */
    worst->value = 0;
    for (size_t i = 0; i < s->n; i++) {
        double share = s->losses[i] > eta ? 1 : 0;
        if (s->losses[i] == eta)
            share = fmin(1, rest / at);
        s->q[i] = prior_of(s, i) * share / mass;
        worst->value += s->q[i] * s->losses[i];
    }
    worst->eta = eta;
}

/* ---- chi-square ---- */

static void weigh_chi2(const sample *s, double rho, double least, dro__worst_case *worst)
{
    double c = 1 + 2 * rho, eta = -HUGE_VAL, sum = 0;
    if (least > 0) { /* is the multiplier above it? */
        weigh_squares(s, HUGE_VAL, least, worst);
        dro__worst_case_measure(&(dro__objective){.kind = DRO__OBJECTIVE_CHI2}, s->n, s->prior,
                                s->q, worst);
        worst->value += least * rho;
        worst->lambda = least;
        worst->smoothed = worst->divergence <= rho;
        if (worst->smoothed)
            return;
    }
    worst->eta = s->high;
    worst->lambda = 0;
    if (s->low == s->high || mass_from(s, s->high) * c >= 1) {
        take_top(s, worst);
        return;
    }
    for (size_t count = s->n + 1, now;; count = now) {
        double mass = 0, mean = 0, spread = 0;
        now = 0;
        for (size_t i = 0; i < s->n; i++)
            if (s->losses[i] > eta) {
                mass += prior_of(s, i);
                mean += prior_of(s, i) * (s->losses[i] - s->high);
                now++;
            }
        mean /= mass;
        for (size_t i = 0; i < s->n; i++) {
            double off = s->losses[i] - s->high - mean;
            spread += s->losses[i] > eta ? prior_of(s, i) * off * off / mass : 0;
        }
        if (now == count || !(mass * c > 1))
            break;
        eta = s->high + mean - sqrt(spread / (mass * c - 1));
    }
    worst->value = 0;
    for (size_t i = 0; i < s->n; i++) {
        double over = s->losses[i] - eta;
        s->q[i] = over > 0 ? prior_of(s, i) * over : 0;
        sum += s->q[i];
    }
    for (size_t i = 0; i < s->n; i++)
        worst->value += (s->q[i] /= sum) * s->losses[i];
    worst->eta = eta;
    worst->lambda = sum;
}

/* ---- all of them ---- */

static void weigh_mean(const sample *s, dro__worst_case *worst)
{
    worst->value = 0;
    for (size_t i = 0; i < s->n; i++)
        worst->value += (s->q[i] = prior_of(s, i)) * s->losses[i];
}

void dro__objective_weigh(const dro__objective *o, size_t n, const double *losses,
                          const double *prior, double *weights, dro__worst_case *worst)
{
    sample s = look(n, losses, prior, weights);
    *worst = (dro__worst_case){.lambda = NAN, .eta = NAN};
    bool radius = o->kind == DRO__OBJECTIVE_KL_RADIUS || o->kind == DRO__OBJECTIVE_CHI2;
    switch (radius && o->argument == 0 ? DRO__OBJECTIVE_MEAN : o->kind) {
    case DRO__OBJECTIVE_MEAN:
        weigh_mean(&s, worst);
        break;
    case DRO__OBJECTIVE_KL:
        weigh_kl(&s, o->argument, worst);
        break;
    case DRO__OBJECTIVE_KL_RADIUS:
        weigh_radius(&s, o->argument, o->smoothing, worst);
        break;
    case DRO__OBJECTIVE_CVAR:
        worst->smoothed = o->smoothing > 0 && o->argument < 1;
        if (worst->smoothed)
            weigh_squares(&s, 1 / o->argument, o->smoothing, worst);
        else
            weigh_cvar(&s, o->argument, worst);
        break;
    case DRO__OBJECTIVE_CHI2:
        weigh_chi2(&s, o->argument, o->smoothing, worst);
        break;
    }
}

void dro__worst_case_measure(const dro__objective *o, size_t n, const double *prior,
                             const double *weights, dro__worst_case *worst)
{
    double kl = 0, square = 0;
    for (size_t i = 0; i < n; i++) {
        double p = prior ? prior[i] : 1 / (double)n;
        if (!(weights[i] > 0))
            continue;
        kl += weights[i] * log(weights[i] / p);
        square += weights[i] * weights[i] / p;
    }
    worst->divergence = o->kind == DRO__OBJECTIVE_CHI2 ? (square - 1) / 2 : kl;
    worst->effective = 1 / square;
}

/* ---- groups ---- */

static double mass_of(const dro__groups *g, size_t i)
{
    return g->example_prior ? g->example_prior[i] : 1 / (double)g->n;
}

dro_status dro__groups_create(dro_context *ctx, dro__groups *g, bool uniform)
{
    size_t count = (size_t)g->count;
    g->mean = dro__alloc(count, sizeof(double));
    g->prior = dro__alloc(count, sizeof(double));
    g->q = dro__alloc(count, sizeof(double));
    g->mass = dro__alloc(count, sizeof(double));
    if (!g->mean || !g->prior || !g->q || !g->mass) {
        dro__groups_free(g);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %zu groups", count);
    }
    int32_t present = 0;
    for (size_t i = 0; i < g->n; i++)
        g->mass[g->of[i]] += mass_of(g, i);
    for (size_t k = 0; k < count; k++)
        present += g->mass[k] > 0;
    for (size_t k = 0; k < count; k++)
        if (g->mass[k] > 0)
            g->prior[k] = uniform ? 1 / (double)present : g->mass[k];
    return DRO_OK;
}

void dro__groups_free(dro__groups *g)
{
    dro__free(g->mean);
    dro__free(g->prior);
    dro__free(g->q);
    dro__free(g->mass);
    *g = (dro__groups){0};
}

void dro__objective_weigh_groups(const dro__objective *o, dro__groups *g, const double *losses,
                                 double *weights, dro__worst_case *worst)
{
    size_t count = (size_t)g->count;
    double least = HUGE_VAL;
    memset(g->mean, 0, count * sizeof *g->mean);
    for (size_t i = 0; i < g->n; i++)
        g->mean[g->of[i]] += mass_of(g, i) * losses[i];
    for (size_t k = 0; k < count; k++)
        if (g->mass[k] > 0) {
            g->mean[k] /= g->mass[k];
            least = fmin(least, g->mean[k]);
        }
    for (size_t k = 0; k < count; k++)
        g->mean[k] = g->mass[k] > 0 ? g->mean[k] : least;
    dro__objective_weigh(o, count, g->mean, g->prior, g->q, worst);
    for (size_t i = 0; i < g->n; i++)
        weights[i] = g->mass[g->of[i]] > 0 ? g->q[g->of[i]] * mass_of(g, i) / g->mass[g->of[i]] : 0;
}

/* ---- the public call ---- */

dro_status dro_objective_value(dro_context *ctx, const char *objective, const double *losses,
                               size_t n, double *weights, double *value)
{
    dro__objective o;
    dro__worst_case worst;
    if (!ctx)
        return DRO_ERR_ARGUMENT;
    if (!objective || !losses || !weights || !value || n == 0)
        return dro__fail(ctx, DRO_ERR_ARGUMENT,
                         "dro_objective_value: expected an objective, losses, weights and value");
    DRO_TRY(dro__objective_parse(ctx, objective, &o));
    for (size_t i = 0; i < n; i++)
        if (!isfinite(losses[i]))
            return dro__fail(ctx, DRO_ERR_NUMBER, "loss %zu is not finite", i);
    dro__objective_weigh(&o, n, losses, NULL, weights, &worst);
    *value = worst.value;
    return DRO_OK;
}
