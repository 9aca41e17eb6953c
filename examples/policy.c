/* Policy evaluation by the Bellman residual as a compositional problem: find the value V(s) =
 * <phi_s, w> of a policy whose transitions can only be sampled,
 *
 *     min_w  sum_s ( <phi_s, w> - E[ reward + gamma <phi_s', w> | s ] )^2 / S
 *
 * Inside the square is an expectation, so a plain stochastic gradient is biased; g(w) in R^S holds
 * the S residuals and f is the mean of their squares. With one feature per state the residual can
 * be zero and the answer is known: V = (I - gamma P)^-1 R. CIVR or RECOVER see sampled transitions
 * only. Build: cc policy.c $(pkg-config --cflags --libs libdro) -lm */
#include <dro/dro.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STATES = 6 };
static const double DISCOUNT = 0.8;

/* From state s: to s+1 with probability 0.7 (reward s), else back to 0 (reward -1). */
static int next_state(int s, double u)
{
    return u < 0.7 ? (s + 1) % STATES : 0;
}

static double reward(int s, double u)
{
    return u < 0.7 ? s : -1;
}

/* A draw is a transition from every state; it is a pure function of its id. */
static double luck(int64_t id, int s)
{
    uint64_t x = (uint64_t)id * STATES + (uint64_t)s + 1;
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return (double)((x ^ x >> 32) >> 11) * 0x1p-53;
}

static dro_status evaluate(void *user, const float *w, const dro_batch *parts, int count, double *g,
                           float *const *jacobian)
{
    (void)user;
    for (int k = 0; k < count; k++) {
        double n = (double)parts[k].count, slope[STATES][STATES] = {{0}}, *mean = g + k * STATES;
        memset(mean, 0, STATES * sizeof *mean);
        for (size_t i = 0; i < parts[k].count; i++)
            for (int s = 0; s < STATES; s++) {
                double u = luck(parts[k].ids[i], s);
                int to = next_state(s, u);
                mean[s] += ((double)w[s] - reward(s, u) - DISCOUNT * (double)w[to]) / n;
                slope[s][s] += 1 / n;
                slope[s][to] -= DISCOUNT / n;
            }
        for (int s = 0; jacobian && s < STATES * STATES; s++)
            jacobian[k][s] = (float)slope[s / STATES][s % STATES];
    }
    return DRO_OK;
}

static dro_status outer(void *user, const double *u, double *value, double *gradient)
{
    (void)user;
    *value = 0;
    for (int s = 0; s < STATES; s++) {
        *value += u[s] * u[s] / STATES;
        gradient[s] = 2 * u[s] / STATES;
    }
    return DRO_OK;
}

/* V by iterating the Bellman equation to its fixed point. */
static void exact(double *value)
{
    memset(value, 0, STATES * sizeof *value);
    for (int round = 0; round < 1000; round++)
        for (int s = 0; s < STATES; s++)
            value[s] =
                0.7 * (s + DISCOUNT * value[(s + 1) % STATES]) + 0.3 * (-1 + DISCOUNT * value[0]);
}

int main(void)
{
    dro_composite problem = {.size = sizeof(dro_composite),
                             .dim = STATES,
                             .inner = STATES,
                             .n = 0,
                             .evaluate = evaluate,
                             .outer = outer}; /* n = 0: a stream of transitions */
    dro_context *ctx = NULL;
    dro_optimizer *opt = NULL;
    float w[STATES] = {0};
    double best[STATES], worst = 0;
    dro_status s = dro_context_create("auto", 1, &ctx);
    s = s ? s : dro_optimizer_create_composite(ctx, "recover", &problem, &opt);
    s = s ? s : dro_optimizer_set(opt, "eta", "1");
    s = s ? s : dro_optimizer_set(opt, "batch", "4");
    s = s ? s : dro_optimizer_set(opt, "steps", "20000");
    s = s ? s : dro_optimizer_start(opt, w);
    while (!s)
        s = dro_optimizer_step(opt);
    exact(best);
    if (s != DRO_ERR_END || dro_optimizer_weights(opt, w) != DRO_OK) {
        fprintf(stderr, "policy: %s\n", dro_context_error(ctx));
        worst = HUGE_VAL;
    }
    for (int i = 0; i < STATES; i++) {
        printf("state %d: recover %7.4f, exact %7.4f\n", i, (double)w[i], best[i]);
        worst = fmax(worst, fabs((double)w[i] - best[i]));
    }
    dro_optimizer_destroy(opt);
    dro_context_destroy(ctx);
    printf("largest difference %.4f\n", worst);
    return !(worst < 0.05);
}
