/* A step without the host, its second half: gradients are checked, the direction and w move, the estimator observes. */
#include "step.cuh"

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

/* The first bad entry of a gradient refuses the step, and the estimator is again what it was before the step. */
static __device__ void refuse(const dro__gpu_step &k, unsigned long long found)
{
    EACH (g, k.plan.group_room)
        k.groups[g] = k.groups_before[g];
    EACH (i, (int)k.plan.batch)
        k.old_losses[i] = k.old_losses_before[i];
    ONE {
        dro__step_state *s = k.state;
        *s = *k.state_before;
        s->refused = DRO__REFUSED_GRADIENT;
        s->refused_part = (int)(found >> 62);
        s->refused_index = (int64_t)(found & ~(3ull << 62));
        s->refused_value = (double)k.grads[s->refused_part][s->refused_index];
    }
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
    __shared__ unsigned long long first;
    ONE {
        first = atomicExch(k.first, ~0ull);
        if (s->fresh)
            s->square = square;
    }
    __syncthreads();
    if (first != ~0ull)
        refuse(k, first);
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

/* By one thread. */
static __device__ void publish(const dro__gpu_step &k, uint64_t number)
{
    volatile dro__gpu_news *news = k.news;
    news->begun = number;
    __threadfence_system();
    k.news->state = *k.state;
    __threadfence_system();
    news->ended = number;
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
        publish(k, ++*k.turn);
    }
}

extern "C" void dro__gpu_step_move(cudaStream_t s, const dro__gpu_step *k)
{
    unsigned blocks = blocks_for(k->plan.dim), most = DRO__GPU_BLOCKS;
    blocks = blocks < most ? blocks : most;
    check_kernel<<<blocks, THREADS, 0, s>>>(*k);
    if (cudaPeekAtLastError() == cudaSuccess) /* what was not checked does not move */
        move_kernel<<<blocks, THREADS, 0, s>>>(*k);
}
