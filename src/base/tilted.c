/* The tilted mean, lambda log (sum w exp(x / lambda) / sum w), of numbers that come one by one. */
#include "base.h"

#include <math.h>

void dro__tilted_add(dro__tilted *t, double lambda, double x, double w)
{
    if (t->mass == 0) {
        *t = (dro__tilted){x, w, 0, w};
        return;
    }
    double apart = (x - t->top) / lambda;
    if (x > t->top) {
        double fall = expm1(-apart);
        t->sum = t->sum * (1 + fall) + w;
        t->less = t->less * (1 + fall) + t->mass * fall;
        t->top = x;
    } else {
        double fall = expm1(apart); /* accurate enough: it multiplies a sum of at least 1 */
        t->sum += w * (1 + fall);
        t->less += w * fall;
    }
    t->mass += w;
}

double dro__tilted_mean(const dro__tilted *t, double lambda)
{
    double less = t->less / t->mass;
    return t->top + lambda * (less > -0.5 ? log1p(less) : log(t->sum / t->mass));
}
