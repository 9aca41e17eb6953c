/* The losses of net_loss.c and their slopes, one block of threads for each example, in double. */
#include "device.cuh"

enum { LOSS_THREADS = 128, CROSS_ENTROPY = 0, FOCAL, LOGIT_ADJUSTED, SQUARED, LOGISTIC };

#define EACH(j) for (int j = threadIdx.x; j < a.outputs; j += blockDim.x)

static __device__ double log_sum_exp(const dro__loss_args &a, const float *z, const float *adjust)
{
    double top = -INFINITY, sum = 0;
    EACH (j)
        top = fmax(top, (double)z[j] + (adjust ? (double)adjust[j] : 0));
    top = all_max(top);
    EACH (j)
        sum += exp((double)z[j] + (adjust ? (double)adjust[j] : 0) - top);
    return top + log(all_sum(sum));
}

static __device__ double cross_entropy(const dro__loss_args &a, int label, const float *z,
                                       float *slopes)
{
    const float *adjust = a.kind == LOGIT_ADJUSTED ? a.adjust : NULL;
    double log_sum = log_sum_exp(a, z, adjust), rest = (double)a.smoothing / a.outputs, loss = 0;
    EACH (j) {
        double x = (double)z[j] + (adjust ? (double)adjust[j] : 0);
        double target = rest + (j == label ? 1 - (double)a.smoothing : 0);
        if (target > 0)
            loss += target * (log_sum - x);
        slopes[j] = (float)(a.weight * (exp(x - log_sum) - target));
    }
    return all_sum(loss);
}

static __device__ double focal(const dro__loss_args &a, int label, const float *z, float *slopes)
{
    double log_sum = log_sum_exp(a, z, NULL), gamma = (double)a.gamma, others = 0;
    bool known = (unsigned)label < (unsigned)a.outputs; /* nobody has checked it where only logits are wanted */
    double log_p = known ? (double)z[label] - log_sum : 0, p = exp(log_p);
    EACH (j)
        others += j == label ? 0 : exp((double)z[j] - log_sum);
    double rest = all_sum(others), power = pow(rest, gamma);
    double slope = -power + (rest > 0 ? gamma * pow(rest, gamma - 1) * p * log_p : 0);
    EACH (j)
        slopes[j] = (float)(a.weight * slope * ((j == label) - exp((double)z[j] - log_sum)));
    return -power * log_p;
}

static __device__ double target_of(const dro__loss_args &a, size_t n, int j)
{
    if (a.targets)
        return (double)a.targets[n * a.outputs + j];
    return a.outputs == 1 ? (double)a.labels[n] : (double)(a.labels[n] == j);
}

static __device__ double of_targets(const dro__loss_args &a, size_t n, const float *z,
                                    float *slopes)
{
    double loss = 0;
    EACH (j) {
        double t = target_of(a, n, j), x = (double)z[j], slope;
        if (a.kind == SQUARED) {
            slope = x - t;
            loss += slope * slope / 2;
        } else {
            double y = t > 0.5 ? 1 : -1, margin = y * x;
            loss += margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
            slope = -y / (1 + exp(margin));
        }
        slopes[j] = (float)(a.weight * slope);
    }
    return all_sum(loss);
}

static __global__ void loss_kernel(dro__loss_args a, const float *logits, int add, float *losses,
                                   float *slopes)
{
    size_t n = blockIdx.x;
    const float *z = logits + n * a.outputs;
    float *to = slopes + n * a.outputs;
    double loss = a.kind >= SQUARED  ? of_targets(a, n, z, to)
                  : a.kind == FOCAL ? focal(a, a.labels[n], z, to)
                                    : cross_entropy(a, a.labels[n], z, to);
    if (threadIdx.x == 0)
        losses[n] = (add ? losses[n] : 0) + (float)((double)a.weight * loss);
}

extern "C" void dro__gpu_loss(cudaStream_t s, int n, dro__loss_args a, const float *logits, int add,
                              float *losses, float *slopes)
{
    loss_kernel<<<n, a.outputs <= 32 ? 32 : LOSS_THREADS, 0, s>>>(a, logits, add, losses, slopes);
}

static __global__ void loss_back_kernel(size_t count, int outputs, const float *coef,
                                        const float *slopes, dro__typed add, dro__typed dx)
{
    for (size_t i = FIRST; i < count; i += STEP)
        write_at(dx, i, coef[i / outputs] * slopes[i] + read_or_0(add, i));
}

extern "C" void dro__gpu_loss_back(cudaStream_t s, int n, int outputs, const float *coef,
                                   const float *slopes, dro__typed add, dro__typed dx)
{
    size_t count = (size_t)n * outputs;
    loss_back_kernel<<<blocks_for(count), THREADS, 0, s>>>(count, outputs, coef, slopes, add, dx);
}
