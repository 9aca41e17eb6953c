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
        double fall = exp(-apart);
        t->sum = t->sum * fall + w;
        t->less = t->less * fall + t->mass * expm1(-apart);
        t->top = x;
    } else {
        t->sum += w * exp(apart);
        t->less += w * expm1(apart);
    }
    t->mass += w;
}

double dro__tilted_mean(const dro__tilted *t, double lambda)
{
    double less = t->less / t->mass;
    return t->top + lambda * (less > -0.5 ? log1p(less) : log(t->sum / t->mass));
}
