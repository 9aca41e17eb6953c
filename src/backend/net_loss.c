/* The list of losses, the loss of an example in double, and dropout's masks. */
#include "graph.h"
#include "loss_functions.h"

/* What the logit-adjusted loss adds to a logit. A class without examples: as if it had very few. */
static float prior_shift(const double *set, double share, double least)
{
    (void)least;
    return (float)(set[DRO__SET_tau] * log(fmax(share, 1e-12)));
}

/* The margin of ldam: in proportion to share^(-1/4), that of the rarest class as set. */
static float class_margin(const double *set, double share, double least)
{
    return (float)(set[DRO__SET_ldam_margin] * pow(least / fmax(share, least), 0.25));
}

float dro__loss_smoothing(const double *set, double share, double least, double most)
{
    double rare = set[DRO__SET_smoothing], head = set[DRO__SET_smoothing_head];
    double place = most > least ? (fmax(share, least) - least) / (most - least) : 0;
    return (float)(head > 0 ? rare + (head - rare) * sin(acos(0) * place) : rare);
}

const dro__loss_about dro__net_losses[DRO__NET_LOSSES] = {
#define ROW(ID, id, name, of, link, settings, constants, proper, summary)                          \
    {name, DRO__OF_##of, DRO__LINK_##link, settings, constants, proper, summary},
    DRO__LOSSES(ROW)
#undef ROW
};

const char *const dro__loss_settings[DRO__LOSS_SETTING_COUNT] = {
#define NAME(name, fallback, low, high, meaning) #name,
    DRO__LOSS_SETTINGS(NAME)
#undef NAME
};

bool dro__loss_shifts(dro__net_loss loss)
{
    return dro__net_losses[loss].constant == prior_shift;
}

double dro__net_loss_row(const dro__graph *graph, size_t outputs, const dro_net_batch *batch,
                         size_t n, const double *logits, double *slopes)
{
    dro__loss_example example = {.outputs = (int)outputs,
                                 .label = batch->labels ? batch->labels[n] : -1,
                                 .set = graph->loss_set,
                                 .constants = graph->constants,
                                 .targets = batch->targets ? batch->targets + n * outputs : NULL,
                                 .weight = 1};
    const dro_mix *mix = batch->mixes ? &batch->mixes[n] : NULL;
    return mix && mix->share < 1 ? dro__loss_mixed((int)graph->loss, &example, (double)mix->share,
                                                   mix->label, logits, slopes)
                                 : dro__loss_value((int)graph->loss, &example, logits, slopes);
}

enum { STREAM_DROPOUT = 0x64726f70 };

float dro__dropout_scale(const dro__graph_node *node, int32_t layer, uint64_t key, size_t element)
{
    uint64_t stream = STREAM_DROPOUT + ((uint64_t)(uint32_t)layer << 32);
    double u = dro__random_unit(key, stream, element);
    return u < (double)node->rate ? 0.0f : 1.0f / (1.0f - node->rate);
}
