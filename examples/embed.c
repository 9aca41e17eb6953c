/* Robust regression on your own data in one page: give libdro a loss and a gradient, get RECOVER.
 * Build: cc embed.c $(pkg-config --cflags --libs libdro) */
#include <dro/dro.h>
#include <stdio.h>
#include <stdlib.h>
enum { N = 1000, D = 3 };
static float x[N][D], y[N]; /* one row in twenty follows another rule */

static float residual(const float *w, int64_t i)
{
    return w[0] * x[i][0] + w[1] * x[i][1] + w[2] * x[i][2] - y[i];
}

static dro_status forward(void *user, const float *w, const dro_batch *parts, int count,
                          float *loss)
{
    for (int k = 0; k < count; k++)
        for (size_t i = 0; i < parts[k].count; i++) {
            float r = residual(w, parts[k].ids[i]);
            *loss++ = r * r / 2;
        }
    return user ? DRO_ERR_CALLBACK : DRO_OK; /* user is NULL here */
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int count,
                           const float *coef, float *const *grads)
{
    for (int k = 0; k < count; k++) {
        grads[k][0] = grads[k][1] = grads[k][2] = 0;
        for (size_t i = 0; i < parts[k].count; i++, coef++)
            for (int j = 0; j < D; j++)
                grads[k][j] += *coef * x[parts[k].ids[i]][j] * residual(w, parts[k].ids[i]);
    }
    return user ? DRO_ERR_CALLBACK : DRO_OK;
}

int main(void)
{
    for (int i = 0; i < N * D; i++)
        x[i / D][i % D] = (float)rand() / (float)RAND_MAX - 0.5f;
    for (int i = 0; i < N; i++)
        y[i] = x[i][0] + 2 * x[i][1] + (i % 20 ? 0 : 3 * x[i][2]);
    dro_problem problem = {
        .size = sizeof(dro_problem), .dim = D, .n = N, .forward = forward, .backward = backward};
    dro_context *ctx = NULL;
    dro_optimizer *opt = NULL;
    float w[D] = {0};
    dro_status s = dro_context_create(NULL, 1, &ctx);
    s = s ? s : dro_optimizer_create(ctx, "recover", &problem, &opt);
    s = s ? s : dro_optimizer_set(opt, "lambda", "0.1");
    s = s ? s : dro_optimizer_set(opt, "steps", "2000");
    s = s ? s : dro_optimizer_start(opt, w);
    while (!s)
        s = dro_optimizer_step(opt);
    s = s == DRO_ERR_END ? dro_optimizer_weights(opt, w) : s;
    printf("w = %.2f %.2f %.2f (%s)\n", w[0], w[1], w[2], s ? dro_context_error(ctx) : "done");
    dro_optimizer_destroy(opt);
    dro_context_destroy(ctx);
    return s != DRO_OK;
}
