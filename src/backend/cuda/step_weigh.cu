/* A step without the host, its first half: what was drawn comes in, losses become weights of the gradient. One block. */
#include "step.cuh"

/* ---- what was drawn ---- */

static __global__ void take_kernel(const __grid_constant__ dro__gpu_step k)
{
    size_t slot = *k.turn % DRO__TICKETS, from = slot * k.room;
    int count = k.counts[0] + k.counts[1];
    EACH (i, count) {
        k.cuts[i] = k.ticket_cuts[from + i];
        k.labels[i] = k.ticket_labels[from + i];
        k.group_of[i] = k.ticket_groups[from + i];
        k.keys[i] = k.ticket_keys[from + i];
    }
    ONE
        *k.ticket = k.tickets[slot];
}

extern "C" void dro__gpu_step_take(cudaStream_t s, const dro__gpu_step *k)
{
    take_kernel<<<1, THREADS, 0, s>>>(*k);
}

/* ---- examples ---- */

static __device__ double inverse(const dro__gpu_ticket &t)
{
    return t.level == TILT_NONE ? 0 : 1 / t.lambda;
}

/* Slopes / n of the capped exponential relative to log_u; the mean value. */
static __device__ double relative(const dro__gpu_step &k, int n, const float *losses, double scale,
                                  double log_u, float *coef)
{
    double mean = 0, caps = 0;
    EACH (i, n) {
        double x = (double)losses[i] * scale - log_u;
        double over = x > k.plan.cap ? x - k.plan.cap : 0, slope = exp(x > k.plan.cap ? k.plan.cap : x);
        caps += x > k.plan.cap;
        mean += slope * (1 + over);
        coef[i] = (float)(slope / n);
    }
    mean = all_sum(mean) / n;
    caps = all_sum(caps);
    ONE
        k.state->caps += (uint64_t)caps;
    return mean;
}

static __device__ void start_afresh(const dro__gpu_step &k, int n, double scale)
{
    double top = -INFINITY, sum = 0;
    EACH (i, n)
        top = fmax(top, (double)k.losses[i]);
    top = all_max(top);
    EACH (i, n)
        sum += exp(((double)k.losses[i] - top) * scale);
    double log_u = top * scale + log(all_sum(sum) / n);
    EACH (i, n)
        k.coef[i] = (float)(exp((double)k.losses[i] * scale - log_u) / n);
    ONE {
        k.state->log_u = log_u;
        k.state->fresh = 1;
        k.state->gain = 1;
        k.state->keep = 0;
    }
}

static __device__ void update_examples(const dro__gpu_step &k, int n, bool have, double a)
{
    dro__step_state *s = k.state;
    double scale = inverse(*k.ticket), mean = 0, ratio = 0;
    if (have) {
        double log_u = s->log_u;
        mean = relative(k, n, k.losses, scale, log_u, k.coef);
        ratio = mean + (1 - a) * (1 - s->mean_old);
    }
    bool good = have && ratio >= 0.1 && ratio <= 10;
    __syncthreads(); /* all have read the state */
    if (!good) {
        ONE if (have) {
            s->fresh_starts++;
            s->floors += !(ratio >= 0.1);
        }
        start_afresh(k, n, scale);
    } else {
        ONE {
            s->fresh = 0;
            s->log_u += log(ratio);
            s->gain = 1 / ratio;
            s->keep = 1 - a;
        }
    }
    __syncthreads();
}

/* ---- groups: a thread has some of them, and adds up its groups' examples in their order ---- */

static __device__ void sum_groups(const dro__gpu_step &k, int first, int n, int groups)
{
    EACH (g, groups) {
        double sum = 0;
        int64_t count = 0;
        for (int i = 0; i < n; i++)
            if (k.group_of[first + i] == g)
                sum += (double)k.losses[first + i], count++;
        k.groups[g].sum = sum;
        k.groups[g].count = count;
    }
    __syncthreads();
}

static __device__ double prior(const dro__gpu_step &k, int g, int groups)
{
    return k.plan.group_prior ? k.shares[g] : 1.0 / groups;
}

static __device__ void refresh_q(const dro__gpu_step &k, int groups)
{
    double scale = inverse(*k.ticket), top = -INFINITY, sum = 0, mass = 0;
    EACH (g, groups)
        if (k.groups[g].seen)
            top = fmax(top, k.groups[g].u * scale);
    top = all_max(top);
    EACH (g, groups) {
        dro__group *group = &k.groups[g];
        group->q_before = group->q;
        group->q = group->seen ? prior(k, g, groups) * exp(group->u * scale - top) : 0;
        mass += group->seen ? prior(k, g, groups) : 0;
        sum += group->q;
    }
    sum = all_sum(sum);
    mass = all_sum(mass);
    EACH (g, groups)
        k.groups[g].q /= sum;
    ONE
        k.state->log_u = top + log(sum / mass);
    __syncthreads();
}

enum { AVERAGE, CORRECT, EXTRAPOLATE };

static __device__ void move_groups(const dro__gpu_step &k, int groups, double a, int kind)
{
    EACH (g, groups) {
        dro__group *group = &k.groups[g];
        double steps = (double)++group->away;
        if (!group->count)
            continue;
        group->away = 0;
        double mean = group->sum / (double)group->count;
        double old = group->old_sum / (double)group->old_count;
        if (!group->seen)
            group->u = mean;
        else if (kind == CORRECT)
            group->u = mean + (1 - a) * (group->u - old);
        else if (kind == EXTRAPOLATE)
            group->u = mean + pow(1 - a, steps) * (group->u - mean + steps * (mean - old));
        else
            group->u = (1 - a) * group->u + a * mean;
        group->seen++;
    }
    __syncthreads();
}

static __device__ void group_coef(const dro__gpu_step &k, int first, int n, bool before)
{
    EACH (i, n) {
        int g = k.group_of[first + i];
        double q = before ? k.groups[g].q_before : k.groups[g].q;
        k.coef[first + i] = (float)(q / (n * k.shares[g]));
    }
    __syncthreads();
}

static __device__ void update_groups(const dro__gpu_step &k, int n, bool have, double a)
{
    int groups = k.ticket->group_count;
    sum_groups(k, 0, n, groups);
    ONE {
        k.state->fresh = !have;
        k.state->gain = 1;
        k.state->keep = have ? 1 - a : 0;
        k.state->group_count = groups;
    }
    if (!have) {
        move_groups(k, groups, 1, AVERAGE);
        refresh_q(k, groups);
        group_coef(k, 0, n, false);
        EACH (g, groups)
            k.groups[g].q_before = k.groups[g].q;
        __syncthreads();
        return;
    }
    group_coef(k, 0, n, false);
    move_groups(k, groups, a, k.plan.automatic && a > 0 ? EXTRAPOLATE : CORRECT);
    refresh_q(k, groups);
}

static __device__ void old_groups(const dro__gpu_step &k, int first, int n)
{
    int groups = k.ticket->group_count;
    sum_groups(k, first, n, groups);
    EACH (g, groups) {
        k.groups[g].old_sum = k.groups[g].sum;
        k.groups[g].old_count = k.groups[g].count;
    }
    __syncthreads();
    group_coef(k, first, n, true);
}

/* ---- the numbers of a step ---- */

static __device__ double a_of(const dro__gpu_step &k)
{
    const dro__step_state *s = k.state;
    if (k.plan.a_rule == A_FIXED)
        return fmin(1.0, k.ticket->a);
    if (k.plan.a_rule == A_ETA2)
        return fmin(1.0, k.plan.a_c * s->eta_before * s->eta_before);
    double drift = drift_of(s), known = s->spread + drift;
    double best = fmax(known / (1 + known), sqrt(drift));
    return fmin(1.0, fmax(best, fmax(k.plan.a_min, 1 - exp(-s->fall))));
}

static __device__ double movement(const dro__gpu_step &k, int n, bool groups)
{
    double scale = inverse(*k.ticket), sum = 0, mass = 0;
    if (groups)
        EACH (g, k.ticket->group_count) {
            const dro__group *group = &k.groups[g];
            double q = group->count ? group->q : 0;
            double moved = q > 0 ? (group->sum - group->old_sum) / (double)group->count : 0;
            sum += q * moved * moved;
            mass += q;
        }
    else
        EACH (i, n) {
            double moved = (double)k.losses[i] - (double)k.old_losses[i], c = (double)k.coef[i];
            sum += c * moved * moved;
            mass += c;
        }
    sum = all_sum(sum);
    mass = all_sum(mass);
    return mass > 0 ? sum / mass * scale * scale : 0;
}

static __device__ void limit_eta(const dro__gpu_step &k, int n, bool groups, bool twice)
{
    dro__step_state *s = k.state;
    double guard = k.plan.guard;
    if (guard <= 0)
        return;
    double before = s->eta_before, moved = twice && before > 0 ? movement(k, n, groups) : 0;
    ONE {
        if (twice && before > 0) {
            double pace = moved / (before * before);
            s->pace = fmax(pace, 0.9 * s->pace + 0.1 * pace);
        }
        if (s->pace > 0)
            s->eta = fmin(s->eta, guard / sqrt(s->pace));
    }
}

static __device__ void report(const dro__gpu_step &k, int n)
{
    double loss = 0, sum = 0, squares = 0, top = 0;
    EACH (i, n) {
        double c = (double)k.coef[i];
        loss += (double)k.losses[i];
        sum += c;
        squares += c * c;
        top = c > top ? c : top;
    }
    loss = all_sum(loss), sum = all_sum(sum), squares = all_sum(squares), top = all_max(top);
    ONE {
        k.state->loss = loss / n;
        k.state->largest_weight = sum > 0 ? top * n / sum : 0;
        k.state->effective = squares > 0 ? sum * sum / (squares * n) : 0;
    }
}

/* A loss that is not finite refuses the step. */
static __device__ bool refuse_losses(const dro__gpu_step &k)
{
    __shared__ int first;
    ONE
        first = INT_MAX;
    __syncthreads();
    EACH (i, k.counts[0] + k.counts[1])
        if (!isfinite(k.losses[i]))
            atomicMin(&first, i);
    __syncthreads();
    if (first == INT_MAX)
        return false;
    ONE {
        dro__step_state *s = k.state;
        s->refused = DRO__REFUSED_LOSS;
        s->refused_part = first >= k.counts[0];
        s->refused_index = first - (s->refused_part ? k.counts[0] : 0);
        s->refused_value = (double)k.losses[first];
    }
    return true;
}

static __device__ void weigh_storm(const dro__gpu_step &k)
{
    dro__step_state *s = k.state;
    const dro__gpu_ticket t = *k.ticket;
    bool groups = t.level >= TILT_CLASS, changed = t.level != s->level;
    bool restarted = changed && s->have, have = s->have && !changed && !t.drawn;
    double a = a_of(k);
    __syncthreads(); /* all have read the state */
    ONE {
        s->level = t.level;
        s->eta = t.eta;
        s->lambda = t.lambda;
    }
    if (changed)
        EACH (g, k.plan.group_room)
            k.groups[g] = (dro__group){};
    __syncthreads();
    if (groups)
        update_groups(k, k.counts[0], have, a);
    else
        update_examples(k, k.counts[0], have, a);
    ONE {
        s->have = 1;
        s->a = s->fresh ? 1 : a;
    }
    report(k, k.counts[0]);
    limit_eta(k, k.counts[0], groups, !t.drawn && !restarted);
    __syncthreads();
    if (!k.counts[1])
        return;
    int first = k.counts[0], n = k.counts[1];
    if (groups) {
        old_groups(k, first, n);
    } else {
        double mean = relative(k, n, k.losses + first, inverse(t), s->log_u, k.coef + first);
        ONE
            s->mean_old = mean;
    }
    EACH (i, n)
        k.old_losses[i] = k.losses[first + i];
}

/* The gradients are not known yet: what the weighing writes may have to be taken back (step_move.cu). */
static __device__ void keep_before(const dro__gpu_step &k)
{
    EACH (g, k.plan.group_room)
        k.groups_before[g] = k.groups[g];
    EACH (i, (int)k.plan.batch)
        k.old_losses_before[i] = k.old_losses[i];
    ONE
        *k.state_before = *k.state;
    __syncthreads();
}

static __global__ void weigh_kernel(const __grid_constant__ dro__gpu_step k)
{
    if (k.state->refused || refuse_losses(k)) {
        EACH (i, k.counts[0] + k.counts[1])
            k.coef[i] = 0;
        return;
    }
    keep_before(k);
    if (k.plan.kind == DRO__STEP_STORM) {
        weigh_storm(k);
        return;
    }
    double loss = 0;
    EACH (i, k.counts[0]) {
        loss += (double)k.losses[i];
        k.coef[i] = 1 / (float)k.counts[0];
    }
    loss = all_sum(loss);
    ONE {
        k.state->loss = loss / k.counts[0];
        k.state->largest_weight = k.state->effective = 1;
        k.state->eta = k.ticket->eta;
    }
}

extern "C" void dro__gpu_step_weigh(cudaStream_t s, const dro__gpu_step *k)
{
    weigh_kernel<<<1, THREADS, 0, s>>>(*k);
}
