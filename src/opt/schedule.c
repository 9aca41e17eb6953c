/* Schedules of eta, a and lambda, and where stages and runs end.
 *
 *   constant  v
 *   poly      v / (1 + t/t0)^p               Theorem 1: eta_t = k / (w + sigma^2 t)^(1/3), so p =
 *                                            1/3, t0 = w / sigma^2, v = k / w^(1/3)
 *   step      v / factor^k                   k = stages that ended before t
 *   theory    v / 2^(k/2)                    Theorem 2, below
 *   cosine    end + (v - end) (1 + cos(pi t / T)) / 2
 *   auto      cosine where the number of steps is known, else poly
 *
 * a goes as eta^2, so for it poly and theory take twice the power. Warm-up: for the first `warmup`
 * steps the value is start + (v_t - start) (t + 1) / warmup.
 *
 * Theorem 2. With eps_1 = c^2 sigma^2 / (64 mu L^4) everything but L and mu cancels:
 *   eta_k = min( sqrt(mu eps_k) L / (2 c sigma), 1/(16 L) ) = 1/(16 L) / 2^((k-1)/2)
 *   T_k   = max( 96 c sigma / (mu^1.5 sqrt(eps_k) L), 16 c^2 sigma^2 / (mu L^2 eps_k) )
 *         = max( 768 (L/mu) 2^((k-1)/2), 1024 L^2 2^(k-1) )
 * and with eta = 1/(16 L):  T_k = max( 48/(eta mu) 2^((k-1)/2), 4/eta^2 2^(k-1) ), times
 * theory_factor, because the constants of the proof are far too large to run.
 *
 * output=random: the length of every stage is drawn from 1..T_k before it begins, so that the stage
 * hands on (w, u, v) of a random iterate, as Algorithms 1 and 2 say, and nothing needs to be
 * kept. */
#include "opt.h"

#include <math.h>

enum { STREAM_TAU = 0x7a75 };

double dro__as_steps(const dro__optimizer_settings *set, double value)
{
    return value > 0 && value < 1 ? floor(value * (double)set->steps) : value;
}

/* The length of stage k, planned to be `planned` steps. */
static double drawn(const dro__optimizer_settings *set, int k, double planned)
{
    if (set->output == DRO__OUTPUT_LAST || planned < 1)
        return planned;
    return 1 + (double)dro__random_below((uint64_t)set->seed, STREAM_TAU, (uint64_t)k,
                                         (uint64_t)fmin(planned, 0x1p62));
}

void dro__clock_start(dro_optimizer *o)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    double planned = 0, at = 0;
    o->boundary_count = 0;
    for (int k = 0; k < set->stages.count; k++) {
        double end = dro__as_steps(set, set->stages.values[k]);
        if (end <= planned || (set->steps && end >= (double)set->steps))
            continue;
        at += drawn(set, k, end - planned);
        planned = end;
        o->boundaries[o->boundary_count++] = (uint64_t)at;
    }
    o->ends = UINT64_MAX;
    if (set->steps)
        o->ends = (uint64_t)(at + drawn(set, DRO__LIST_MAX, fmax(1, (double)set->steps - planned)));
    o->second_begins = o->ends;
    o->ends += set->steps ? o->second.steps : 0;
}

/* Whether step t is one of the second stage. */
static bool is_second(const dro_optimizer *o, uint64_t t)
{
    return o->second.steps && t >= o->second_begins;
}

/* How many stages ended before step t. */
static int stage_at(const dro_optimizer *o, uint64_t t)
{
    int k = 0;
    while (k < o->boundary_count && o->boundaries[k] <= t)
        k++;
    return k;
}

/* How many of Theorem 2's stages ended before t. */
static int theory_stage(const dro_optimizer *o, uint64_t t)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    double eta = set->eta.value > 0 ? set->eta.value : 1, at = 0;
    for (int k = 0; k < 120; k++) {
        double slow = 48 / (eta * set->theory_mu) * pow(2, 0.5 * k);
        double fast = 4 / (eta * eta) * pow(2, k);
        at += drawn(set, 100 + k, ceil(set->theory_factor * fmax(slow, fast)));
        if ((double)t < at)
            return k;
    }
    return 120;
}

/* The value of a schedule at step t; power 2 for a, 1 otherwise (a goes as eta^2). */
static double schedule_at(const dro_optimizer *o, const dro__schedule *s, uint64_t t, int power)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    double value = s->value, time = (double)t;
    int32_t known = set->steps ? DRO__SCHEDULE_COSINE : DRO__SCHEDULE_POLY;
    switch (s->kind == DRO__SCHEDULE_AUTO ? known : s->kind) {
    case DRO__SCHEDULE_POLY:
        value /= pow(1 + time / set->poly_start, power * set->poly_power);
        break;
    case DRO__SCHEDULE_STEP:
        value /= pow(s->factor, stage_at(o, t));
        break;
    case DRO__SCHEDULE_THEORY:
        value /= pow(2, 0.5 * power * theory_stage(o, t));
        break;
    case DRO__SCHEDULE_COSINE: {
        double span = set->steps > 1 ? (double)set->steps - 1 : 1;
        double turn = fmin(time / span, 1);
        value = s->end + (value - s->end) * 0.5 * (1 + cos(3.141592653589793 * turn));
        break;
    }
    default:
        break;
    }
    double warmup = dro__as_steps(set, s->warmup);
    if (time < warmup)
        value = s->start + (value - s->start) * fmin(1, (time + 1) / warmup);
    return value;
}

/* The eta of the present step. */
static double eta_of(const dro_optimizer *o)
{
    const dro__schedule *eta = &dro__settings_of(o)->eta;
    double value = schedule_at(o, eta, o->run.step, 1);
    if (is_second(o, o->run.step)) {
        double turn = (double)(o->run.step - o->second_begins) / (double)o->second.steps;
        value = 0.5 * eta->value * (1 + cos(3.141592653589793 * turn));
    }
    return o->run.eta_scale * o->stretch * value;
}

static bool switched(const dro_optimizer *o, uint64_t t)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    return set->switch_step > 0 && (double)t >= dro__as_steps(set, set->switch_step);
}

double dro__lambda_at(const dro_optimizer *o, uint64_t t)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    if (switched(o, t) && set->switch_lambda > 0)
        return set->switch_lambda;
    return schedule_at(o, &set->lambda, t, 1);
}

dro__tilt_level dro__level_at(const dro_optimizer *o, uint64_t t)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    if (dro__is_mean(o) || is_second(o, t))
        return DRO__TILT_NONE;
    if (switched(o, t) && set->switch_tilt != DRO__SWITCH_SAME)
        return set->switch_tilt - DRO__SWITCH_FIRST;
    return set->tilt;
}

double dro__lambda(const dro_optimizer *o)
{
    return dro__lambda_at(o, o->run.step);
}

dro__tilt_level dro__level(const dro_optimizer *o)
{
    return dro__level_at(o, o->run.step);
}

bool dro__last_step(const dro_optimizer *o)
{
    return o->run.step + 1 >= o->ends;
}

void dro__begin_step(dro_optimizer *o)
{
    const dro__optimizer_settings *set = dro__settings_of(o);
    double t = (double)o->run.step;
    bool second = is_second(o, o->run.step);
    o->ticket = (dro__ticket){
        .eta = eta_of(o), .second = second, .average_keep = fmin(set->ema, (1 + t) / (10 + t))};
    if (!o->cls->robust)
        return;
    o->ticket.lambda = dro__lambda(o);
    o->ticket.a = schedule_at(o, &set->a, o->run.step, 2);
    if (o->is_composite)
        o->ticket.level = dro__level(o);
    else
        dro__tilt_ticket(o);
}
