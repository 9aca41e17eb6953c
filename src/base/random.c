/* Counter-based random numbers and a permutation that needs no memory.
 *
 * A number is the splitmix64 finaliser (Steele, Lea, Flood 2014) applied to a mix of seed, stream
 * and counter: no state, so any draw can be remade from its address. The permutation is a
 * four-round Feistel network on the smallest even number of bits that holds n, walked until it
 * lands below n. */
#include "base.h"

#include <math.h>

static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t dro__random(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint64_t key = mix(mix(seed + 0x9e3779b97f4a7c15u) + stream * 0xd1342543de82ef95u);
    return mix(key + (counter + 1) * 0x9e3779b97f4a7c15u);
}

double dro__random_unit(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return (double)(dro__random(seed, stream, counter) >> 11) * 0x1p-53;
}

double dro__random_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    double radius = dro__random_unit(seed, stream, 2 * counter);
    double angle = dro__random_unit(seed, stream, 2 * counter + 1);
    return sqrt(-2 * log1p(-radius)) * cos(6.283185307179586 * angle);
}

uint64_t dro__random_below(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t n)
{
    /* The high half of a 128-bit product: bias below n / 2^64. */
    return (uint64_t)(((unsigned __int128)dro__random(seed, stream, counter) * n) >> 64);
}

bool dro__weights_sum(const float *weights, int64_t n, double *sums)
{
    sums[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(weights[i] >= 0) || !isfinite(weights[i]))
            return false;
        sums[i + 1] = sums[i] + (double)weights[i];
    }
    double all = sums[n];
    for (int64_t i = 1; all > 0 && i <= n; i++)
        sums[i] = sums[i] / all * (double)n;
    return all > 0;
}

int64_t dro__weights_pick(const double *sums, int64_t n, double place)
{
    int64_t first = 0, end = n; /* sums[first] <= place < sums[end] */
    place = fmin(place, nextafter((double)n, 0));
    while (end - first > 1) {
        int64_t middle = first + (end - first) / 2;
        if (sums[middle] <= place)
            first = middle;
        else
            end = middle;
    }
    return first;
}

uint64_t dro__permute(uint64_t n, uint64_t key, uint64_t index)
{
    unsigned half = 1;
    while (2 * half < 64 && (UINT64_C(1) << (2 * half)) < n)
        half++;
    uint64_t mask = half == 32 ? 0xffffffffu : (UINT64_C(1) << half) - 1;
    uint64_t x = index;
    do {
        uint64_t left = x >> half & mask, right = x & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (mix(right + key + round * 0x9e3779b97f4a7c15u) & mask);
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= n);
    return x;
}
