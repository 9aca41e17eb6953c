/* cuda_step MODEL OPTIMIZER PRECISION BATCH STEPS [host] [deterministic] [cudnn]: milliseconds per
 * training step on a GPU, the images, of the size that is usual for the model, in its memory; then
 * those of the passes alone. cuda_peer.h says what the words mean. Exit status 77 where there is no
 * GPU. */
#define _GNU_SOURCE
#include "cuda_peer.h"

/* The passes without an optimiser, each waited for. */
static dro_status passes(peer *p)
{
    const dro__backend *be = p->ctx->backend;
    int parts = strcmp(p->optimizer, "sgd") ? 2 : 1;
    size_t dim = dro_net_dim(p->net);
    float *w = be->alloc(dim, sizeof *w), *grads[2], first;
    float *losses = malloc(2 * p->batch * sizeof *losses);
    for (int k = 0; k < 2; k++)
        grads[k] = be->alloc(dim, sizeof *w);
    be->copy_in(w, dro_net_weights(p->net), dim * sizeof *w);
    double forward = 0, backward = 0;
    for (int k = -5; k < p->steps; k++) {
        double a = peer_now();
        DRO_TRY(dro_net_forward(p->net, w, p->batches, parts, losses));
        double b = peer_now();
        DRO_TRY(dro_net_backward(p->net, w, losses, grads));
        be->copy_out(&first, grads[0], sizeof first);
        forward += k < 0 ? 0 : b - a;
        backward += k < 0 ? 0 : peer_now() - b;
    }
    printf("  forward %.3f ms, backward %.3f ms, %d parts\n", forward / p->steps,
           backward / p->steps, parts);
    free(losses);
    be->free(w);
    for (int k = 0; k < 2; k++)
        be->free(grads[k]);
    return DRO_OK;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A step of a queue returns when one of those before it has ended, so the time between two returns
 * is a step's; the mean has the time until the last has ended. */
static dro_status run(peer *p, double *ms)
{
    char name[200];
    double created = peer_now(), begin = 0;
    dro_info info;
    peer_name(p, name);
    for (int k = -PEER_WARM; k < p->steps; k++) {
        if (k == 0)
            DRO_TRY(dro_optimizer_info(p->opt, &info)); /* waits for what is in flight */
        double start = peer_now();
        begin = k == 0 ? start : begin;
        DRO_TRY(dro_optimizer_step(p->opt));
        if (k == -PEER_WARM)
            printf("%s: first step %.0f ms\n", name, peer_now() - created);
        if (k >= 0)
            ms[k] = peer_now() - start;
    }
    DRO_TRY(dro_optimizer_info(p->opt, &info));
    double mean = (peer_now() - begin) / p->steps;
    qsort(ms, (size_t)p->steps, sizeof *ms, compare);
    printf("%s: %.3f ms per step (median; mean %.3f), loss %.4f\n", name, ms[p->steps / 2], mean,
           info.loss);
    return passes(p);
}

int main(int argc, char **argv)
{
    peer p;
    if (!peer_read(&p, argc, argv, 0)) {
        fprintf(stderr, "usage: cuda_step MODEL OPTIMIZER PRECISION BATCH STEPS [host] "
                        "[deterministic] [cudnn]\n");
        return 2;
    }
    if (!peer_gpu("cuda_step"))
        return PEER_SKIPPED;
    double *ms = malloc((size_t)p.steps * sizeof *ms);
    dro_status status = ms ? peer_open(&p) : DRO_ERR_MEMORY;
    if (status == DRO_OK)
        status = run(&p, ms);
    if (status != DRO_OK)
        peer_failed("cuda_step", &p, status);
    peer_close(&p);
    free(ms);
    return status != DRO_OK;
}
