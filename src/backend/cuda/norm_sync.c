/* Batch norm over the batches of all ranks. Its sums are added either between the devices (nccl.c),
 * inside the recorded pass, or on the host, in passes that are not recorded. */
#include "nccl.h"
#include "net.h"

bool dro__norms_sync_on_host(const dro__cuda_network *net, const dro__gprogram *p)
{
    return p->base.training && dro__net_synced(&net->memory) && !net->memory.sync->device;
}

/* Where `back`, summed over all ranks, is stored. */
static double *all_of(const dro__gprogram *p, const dro__numbers *n)
{
    return p->back + p->sums_bytes / sizeof(double) + (n->back - p->back);
}

void dro__norms_place(const dro__cuda_network *net, dro__gprogram *p)
{
    for (int32_t k = 0; dro__net_synced(&net->memory) && k < p->base.tail_count; k++)
        p->tails[k].numbers.all = all_of(p, &p->tails[k].numbers);
}

dro_status dro__norms_begin(dro__cuda_network *net, dro__gprogram *p, dro_status begun)
{
    enum { FAILED = DRO__PARTS, NUMBERS };
    const dro__net_sync *sync = net->memory.sync;
    double numbers[NUMBERS] = {0}; /* examples of each part; ranks that cannot begin */
    if (!dro__net_synced(&net->memory))
        return begun;
    if (!net->host_sums)
        net->host_sums = dro__alloc(p->sums_bytes + 1, 1);
    if (!net->host_sums && begun == DRO_OK)
        begun = dro__fail(net->ctx, DRO_ERR_MEMORY, "no memory for batch norm over ranks");
    for (int k = 0; begun == DRO_OK && k < net->parts.count; k++)
        numbers[k] = net->parts.first[k + 1] - net->parts.first[k];
    numbers[FAILED] = begun != DRO_OK;
    sync->merge(sync->user, numbers, NUMBERS, dro__sums_merge);
    DRO_TRY(begun);
    if (numbers[FAILED] > 0)
        return dro__fail(net->ctx, DRO_ERR_STATE, "another rank could not evaluate its share");
    for (int k = 0; k < net->parts.count; k++)
        net->parts.others[k] = (int)numbers[k] - (net->parts.first[k + 1] - net->parts.first[k]);
    return DRO_OK;
}

static void sum_ranks(dro__cuda_network *net, const double *from, double *to, int channels)
{
    const dro__net_sync *sync = net->memory.sync;
    size_t count = 2 * 2 * DRO__PARTS * (size_t)channels, bytes = count * sizeof *from;
    net->chained = false;
    if (sync->device) {
        net->failed =
            !dro__nccl_sum_doubles(sync->device, net->stream, from, to, count) || net->failed;
        return;
    }
    cudaMemcpyAsync(net->host_sums, from, bytes, cudaMemcpyDeviceToHost, net->stream);
    if (cudaStreamSynchronize(net->stream) != cudaSuccess)
        net->failed = true; /* continue: the other ranks wait for this rank's numbers */
    sync->merge(sync->user, net->host_sums, count, dro__sums_merge);
    cudaMemcpyAsync(to, net->host_sums, bytes, cudaMemcpyHostToDevice, net->stream);
}

void dro__norm_sync_forward(dro__cuda_network *net, const dro__gtail *tail)
{
    sum_ranks(net, tail->numbers.sums, tail->numbers.sums, tail->numbers.channels);
}

void dro__norm_sync_backward(dro__cuda_network *net, const dro__gtail *tail)
{
    sum_ranks(net, tail->numbers.back, (double *)tail->numbers.all, tail->numbers.channels);
}
