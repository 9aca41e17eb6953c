/* Numbers of batch norms of several networks, merged. */
#include "graph.h"

void dro__moments_merge(double *into, const double *from, size_t count)
{
    size_t channels = (count - 1) / 2;
    double n = into[0], m = from[0], all = n + m;
    double *mean = into + 1, *dev = mean + channels;
    for (size_t c = 0; c < channels; c++) {
        double away = from[1 + c] - mean[c];
        dev[c] += from[1 + channels + c] + away * away * n * m / all;
        mean[c] += away * m / all;
    }
    into[0] = all;
}

void dro__sums_merge(double *into, const double *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        into[i] += from[i];
}
