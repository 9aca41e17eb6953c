/* A whole step without the host: the estimator of opt/storm.c and opt/tilt.c, and SGD (opt/opt_sgd.c), with their
 * numbers in device memory. What is done here is written there; the tests hold the two against each other. */
#include "device.cuh"
#include "step.h"

enum { TILT_NONE, TILT_EXAMPLE, TILT_CLASS, TILT_GROUP };
enum { REG_NONE, REG_L2, REG_L1, REG_ELASTIC, REG_GROUP, REG_BOX };
enum { A_AUTO, A_FIXED, A_ETA2 };

#define EACH(i, n) for (int i = threadIdx.x; i < (n); i += THREADS)
#define ONE if (threadIdx.x == 0)

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

/* ---- sums over the one block that weighs, in all of its threads ---- */

static __device__ double all_sum(double x)
{
    __shared__ double room[THREADS / 32], total;
    x = block_sum(x, room);
    ONE
        total = x;
    __syncthreads();
    x = total;
    __syncthreads();
    return x;
}

static __device__ double all_max(double x)
{
    __shared__ double room[THREADS / 32];
    for (int o = 16; o; o >>= 1)
        x = fmax(x, __shfl_xor_sync(~0u, x, o));
    if (threadIdx.x % 32 == 0)
        room[threadIdx.x / 32] = x;
    __syncthreads();
    for (int k = 0; k < THREADS / 32; k++)
        x = fmax(x, room[k]);
    __syncthreads();
    return x;
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
        double over = x > k.plan.cap ? x - k.plan.cap : 0, slope = exp(x - over);
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

/* |G1 - G0|^2 as a multiple of |G0 - d|^2 */
static __device__ double drift_of(const dro__step_state *s)
{
    return s->observed && s->noise > 0 ? s->change / s->noise : 0;
}

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

static __global__ void weigh_kernel(const __grid_constant__ dro__gpu_step k)
{
    if (k.state->refused || refuse_losses(k)) {
        EACH (i, k.counts[0] + k.counts[1])
            k.coef[i] = 0;
        return;
    }
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

/* ---- the move ---- */

/* Whether this block is the last to come; the sums of all blocks are then in the partials. */
static __device__ bool come_last(const dro__gpu_step &k)
{
    __shared__ bool last;
    ONE {
        __threadfence();
        last = atomicAdd(k.counter, 1) == gridDim.x - 1;
        if (last)
            *k.counter = 0;
    }
    __syncthreads();
    if (last)
        __threadfence();
    return last;
}

static __device__ double gathered(const dro__gpu_step &k, int m)
{
    __shared__ double room[THREADS / 32];
    double x = 0;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += THREADS)
        x += ((volatile double *)k.partial)[b * 3 + m];
    return block_sum(x, room);
}

/* Gradients that are not finite refuse the step; and |G1|^2, for an estimator that starts afresh. */
static __global__ void check_kernel(const __grid_constant__ dro__gpu_step k)
{
    __shared__ double room[THREADS / 32];
    dro__step_state *s = k.state;
    if (s->refused)
        return;
    double square = 0;
    unsigned long long found = ~0ull;
    for (int p = 0; p < 2 && k.counts[p]; p++)
        for (size_t i = FIRST; i < k.plan.dim; i += STEP) {
            float g = k.grads[p][i];
            if (!isfinite(g)) {
                unsigned long long key = (unsigned long long)p << 62 | i;
                found = key < found ? key : found;
            }
            square += p == 0 ? (double)g * (double)g : 0;
        }
    if (found != ~0ull)
        atomicMin(k.first, found);
    square = block_sum(square, room);
    ONE
        k.partial[blockIdx.x * 3] = square;
    if (!come_last(k))
        return;
    square = gathered(k, 0);
    ONE {
        found = atomicExch(k.first, ~0ull);
        if (s->fresh)
            s->square = square;
        if (found != ~0ull) {
            s->refused = DRO__REFUSED_GRADIENT;
            s->refused_part = (int)(found >> 62);
            s->refused_index = (int64_t)(found & ~(3ull << 62));
            s->refused_value = (double)k.grads[s->refused_part][s->refused_index];
        }
    }
}

static __device__ double prox(const dro__step_plan &p, double x, double eta)
{
    double strength = eta * p.reg_strength, threshold = 0, scale = 1;
    if (p.reg == REG_BOX)
        return x < p.reg_low ? p.reg_low : x > p.reg_high ? p.reg_high : x;
    if (p.reg == REG_L2)
        scale = 1 / (1 + strength);
    else if (p.reg == REG_L1)
        threshold = strength;
    else if (p.reg == REG_ELASTIC)
        threshold = strength * p.reg_ratio, scale = 1 / (1 + strength * (1 - p.reg_ratio));
    double size = fabs(x) - threshold;
    return (size > 0 ? copysign(size, x) : 0) * scale;
}

/* d <- gain (G1 + keep (d - G0)),  w <- prox(w - eta (d + decay w)); the waiting gradient takes G0's place. */
static __device__ void move_storm(const dro__gpu_step &k, double eta, double (&norm)[3])
{
    const dro__step_state *s = k.state;
    const dro__step_plan &p = k.plan;
    double gain = s->gain, keep = s->keep * gain, decay = 1 - eta * p.weight_decay;
    bool fresh = s->fresh, next = k.counts[1] > 0;
    for (size_t i = FIRST; i < p.dim; i += STEP) {
        double g = (double)k.grads[0][i], w = (double)p.w[i], d = gain * g;
        if (!fresh) {
            double old = (double)p.g_old[i], was = (double)p.d[i];
            norm[1] += (g - old) * (g - old);
            norm[2] += (old - was) * (old - was);
            if (keep != 0)
                d += keep * (was - old);
        }
        norm[0] += d * d;
        p.d[i] = (float)d;
        double to = decay * w - eta * d;
        p.w[i] = (float)(p.reg ? prox(p, to, eta) : to);
        if (next)
            p.g_old[i] = k.grads[1][i];
    }
}

static __device__ void move_sgd(const dro__gpu_step &k, double eta)
{
    const dro__step_plan &p = k.plan;
    double mu = p.momentum;
    for (size_t i = FIRST; i < p.dim; i += STEP) {
        double w = (double)p.w[i], g = (double)k.grads[0][i] + p.weight_decay * w;
        double m = mu * (double)p.d[i] + g, along = p.nesterov ? g + mu * m : m;
        p.d[i] = (float)m;
        double to = w - eta * along;
        p.w[i] = (float)(p.reg ? prox(p, to, eta) : to);
    }
}

static __device__ void observe(const dro__gpu_step &k, double eta, const double *norm)
{
    dro__step_state *s = k.state;
    s->eta = eta;
    s->square = norm[0];
    s->fall = s->level == TILT_NONE ? 0 : eta * norm[0] / s->lambda;
    s->eta_before = eta;
    s->lambda_before = s->lambda;
    if (s->fresh) {
        s->spread = 1;
        return;
    }
    double a = s->a, keep = s->observed ? 0.9 : 0;
    s->spread = (1 - a) * (1 - a) * (s->spread + drift_of(s)) + a * a;
    s->change = keep * s->change + (1 - keep) * norm[1];
    s->noise = keep * s->noise + (1 - keep) * norm[2];
    s->observed = 1;
}

static __global__ void move_kernel(const __grid_constant__ dro__gpu_step k)
{
    __shared__ double room[THREADS / 32];
    dro__step_state *s = k.state;
    bool storm = k.plan.kind == DRO__STEP_STORM, refused = s->refused;
    double norm[3] = {0}, eta = s->eta, guard = k.plan.guard;
    if (storm && guard > 0 && s->level != TILT_NONE && s->square > 0)
        eta = fmin(eta, guard * s->lambda / s->square);
    if (!refused) {
        if (storm)
            move_storm(k, eta, norm);
        else
            move_sgd(k, eta);
        for (size_t i = FIRST; i < k.statistics_size; i += STEP)
            k.statistics[i] = k.taken[i];
    }
    for (int m = 0; storm && m < 3; m++) {
        double sum = block_sum(norm[m], room);
        ONE
            k.partial[blockIdx.x * 3 + m] = sum;
    }
    if (!come_last(k))
        return;
    for (int m = 0; storm && m < 3; m++)
        norm[m] = gathered(k, m);
    ONE {
        if (!refused) {
            if (storm)
                observe(k, eta, norm);
            s->done++;
        }
        *k.news = *s;
        ++*k.turn;
    }
}

extern "C" void dro__gpu_step_move(cudaStream_t s, const dro__gpu_step *k)
{
    unsigned blocks = blocks_for(k->plan.dim), most = DRO__GPU_BLOCKS;
    blocks = blocks < most ? blocks : most;
    check_kernel<<<blocks, THREADS, 0, s>>>(*k);
    move_kernel<<<blocks, THREADS, 0, s>>>(*k);
}
