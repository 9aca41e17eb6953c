/* Mean-variance portfolio choice as a compositional problem:
 *
 *     min_w  -E[r] + c Var[r],  r = <returns, w>,   Var[r] = E[r^2] - E[r]^2
 *
 * With g(w) = (r, r^2) and f(u) = -u1 + c (u2 - u1^2) this is min f(E g(w)). Without constraints
 * the answer is known: w = (2 c Sigma)^-1 mu, with mu and Sigma the mean and covariance of the
 * returns. RECOVER sees batches of 16 days; at the end its w is compared with the solution of that
 * system. Build: cc portfolio.c $(pkg-config --cflags --libs libdro) -lm */
#include <dro/dro.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { DAYS = 500, ASSETS = 4 };
static const double CAUTION = 2;
static double returns[DAYS][ASSETS];

static double uniform(void)
{
    return (double)rand() / RAND_MAX - 0.5;
}

/* Means over each part of g = (r, r^2) and of its Jacobian, rows (x, 2 r x). */
static dro_status evaluate(void *user, const float *w, const dro_batch *parts, int count, double *g,
                           float *const *jacobian)
{
    (void)user;
    for (int k = 0; k < count; k++) {
        double sum[2] = {0}, rows[2][ASSETS] = {{0}}, n = (double)parts[k].count;
        for (size_t i = 0; i < parts[k].count; i++) {
            const double *x = returns[parts[k].ids[i]];
            double r = 0;
            for (int j = 0; j < ASSETS; j++)
                r += x[j] * (double)w[j];
            sum[0] += r;
            sum[1] += r * r;
            for (int j = 0; j < ASSETS; j++) {
                rows[0][j] += x[j];
                rows[1][j] += 2 * r * x[j];
            }
        }
        for (int m = 0; m < 2; m++) {
            g[2 * k + m] = sum[m] / n;
            for (int j = 0; jacobian && j < ASSETS; j++)
                jacobian[k][m * ASSETS + j] = (float)(rows[m][j] / n);
        }
    }
    return DRO_OK;
}

static dro_status outer(void *user, const double *u, double *value, double *gradient)
{
    (void)user;
    *value = -u[0] + CAUTION * (u[1] - u[0] * u[0]);
    gradient[0] = -1 - 2 * CAUTION * u[0];
    gradient[1] = CAUTION;
    return DRO_OK;
}

/* Solves 2 c Sigma w = mu by elimination. */
static void exact(double *w)
{
    double a[ASSETS][ASSETS] = {{0}}, mean[ASSETS] = {0};
    for (int t = 0; t < DAYS; t++)
        for (int j = 0; j < ASSETS; j++) {
            mean[j] += returns[t][j] / DAYS;
            for (int k = 0; k < ASSETS; k++)
                a[j][k] += 2 * CAUTION * returns[t][j] * returns[t][k] / DAYS;
        }
    for (int j = 0; j < ASSETS; j++) {
        w[j] = mean[j];
        for (int k = 0; k < ASSETS; k++)
            a[j][k] -= 2 * CAUTION * mean[j] * mean[k];
    }
    for (int j = 0; j < ASSETS; j++)
        for (int k = j + 1; k < ASSETS; k++) {
            double factor = a[k][j] / a[j][j];
            for (int m = j; m < ASSETS; m++)
                a[k][m] -= factor * a[j][m];
            w[k] -= factor * w[j];
        }
    for (int j = ASSETS - 1; j >= 0; j--) {
        for (int k = j + 1; k < ASSETS; k++)
            w[j] -= a[j][k] * w[k];
        w[j] /= a[j][j];
    }
}

int main(void)
{
    for (int t = 0; t < DAYS; t++) {
        double market = uniform();
        for (int j = 0; j < ASSETS; j++)
            returns[t][j] = 0.1 * (j + 1) / ASSETS + market * 0.3 * j + uniform();
    }
    dro_composite problem = {.size = sizeof(dro_composite),
                             .dim = ASSETS,
                             .inner = 2,
                             .n = DAYS,
                             .evaluate = evaluate,
                             .outer = outer};
    dro_context *ctx = NULL;
    dro_optimizer *opt = NULL;
    float w[ASSETS] = {0};
    double best[ASSETS], distance = 0, size = 0;
    dro_status s = dro_context_create("auto", 1, &ctx);
    s = s ? s : dro_optimizer_create_composite(ctx, "recover", &problem, &opt);
    s = s ? s : dro_optimizer_set(opt, "eta", "0.5");
    s = s ? s : dro_optimizer_set(opt, "batch", "16");
    s = s ? s : dro_optimizer_set(opt, "steps", "20000");
    s = s ? s : dro_optimizer_start(opt, w);
    while (!s)
        s = dro_optimizer_step(opt);
    exact(best);
    if (s == DRO_ERR_END && dro_optimizer_weights(opt, w) == DRO_OK)
        for (int j = 0; j < ASSETS; j++) {
            printf("asset %d: recover %7.4f, exact %7.4f\n", j + 1, (double)w[j], best[j]);
            distance += pow((double)w[j] - best[j], 2);
            size += best[j] * best[j];
        }
    else
        fprintf(stderr, "portfolio: %s\n", dro_context_error(ctx));
    dro_optimizer_destroy(opt);
    dro_context_destroy(ctx);
    printf("relative distance %.4f\n", sqrt(distance / size));
    return !(size > 0 && distance < 1e-4 * size); /* within 1% */
}
