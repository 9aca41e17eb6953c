/* The objectives other than kl, whose scalars are estimated during training. A part of weigh.h.
 *
 *   kl-radius:RHO  weight exp(x), x = loss/lambda - log_u       E weight = 1, KL = E weight x = rho
 *   cvar:ALPHA     weight clip(x, 0, 1/alpha), x = (loss - threshold)/tau            E weight = 1
 *   chi2:RHO       weight max(x, 0), x = (loss - threshold)/lambda
 *                                                       E weight = 1, E weight^2 = 1 + 2 rho
 *
 * lambda or tau is the `multiplier`. `off` is by how much the moments miss these conditions: a mean
 * over the batch, or COVER's recursion of such means with the direction's a (for kl-radius at least
 * DUAL_RATE, as the error of a longer memory would stay in lambda at the end). Before the next
 * step, a Newton step changes threshold and multiplier to reduce it, times a rate that falls as the
 * root of eta: w then moves less, so a longer memory is right. Both points of a batch use the
 * scalars of their own step, as they use the w of their own step.
 *
 *   kl-radius: off = E weight (x - rho - 1) + 1, which does not depend on log_u to first order; its
 *              derivative by log lambda is -Var(x) under the weights.
 *   cvar:      the excess is F - E loss, by the present threshold: the scale of everything. tau =
 *              alpha * width * excess; the width falls as eta does, down to NARROW. off falls with
 *              the threshold by the density of the losses there, under a tent of half width NEAR
 *              excesses.
 *   chi2:      with p the share of positive weights and c = 1 + 2 rho, off moves with
 *              threshold/lambda and log lambda by the matrix -((p, 1), (2, 2 c)). A long step is
 *              shortened as a whole: with only one of the two limited, lambda could grow forever.
 *
 * Equal losses have no multiplier (0 is best): it is at least LEAST of their size at the start,
 * which raises F by at most rho times that. Over groups nothing is noisy: the scalars are solved
 * for in each step. */

#define DRO__DUAL_RATE 0.1
#define DRO__WIDE      0.2  /* cvar's ramp, as a share of the excess, at the largest eta, */
#define DRO__NARROW    0.01 /* and at the end */
#define DRO__NEAR      0.5
#define DRO__FAR       4.0 /* the most that cvar's threshold should move, in excesses */
#define DRO__LEAST     1e-4
#define DRO__TIED      1e3
#define DRO__LINEAR    3.0 /* how much longer steps of cvar and chi2 may be than those of kl */
#define DRO__LEAP      0.2 /* the most that a step changes log lambda */

enum { DRO__BISECTIONS = 60, DRO__NEWTONS = 6 };

FN int has_dual(const dro__step *k)
{
    return k->plan.objective > DRO__OBJECTIVE_KL && k->ticket->level != DRO__TILT_NONE;
}

/* cvar and chi2 over examples: the direction is a mean, and there is no log_u. */
FN int is_linear(const dro__step *k)
{
    return has_dual(k) && !by_group(k) && k->plan.objective != DRO__OBJECTIVE_KL_RADIUS;
}

/* eta over the largest one so far */
FN double eta_share(const dro__step *k)
{
    return k->s->eta_most > 0 ? fmin(k->ticket->eta / k->s->eta_most, 1.0) : 0;
}

FN double limited(double x, double most)
{
    return fmin(fmax(x, -most), most);
}

/* ---- what the weights are over: the examples of a batch, or the groups ---- */

FN int items(const dro__step *k, int n)
{
    return by_group(k) ? k->ticket->group_count : n;
}

FN double item_loss(const dro__step *k, int i)
{
    return by_group(k) ? k->groups[i].u : (double)k->losses[i];
}

FN double item_mass(const dro__step *k, int i)
{
    if (!by_group(k))
        return 1;
    return k->groups[i].seen ? prior(k, i) : 0;
}

/* ---- weights ---- */

FN double dual_weight(const dro__step *k, double x)
{
    if (k->plan.objective == DRO__OBJECTIVE_KL_RADIUS)
        return EXP(x);
    return k->plan.objective == DRO__OBJECTIVE_CVAR ? fmin(fmax(x, 0.0), 1 / k->plan.argument)
                                                    : fmax(x, 0.0);
}

FN double dual_x(const dro__step *k, double loss)
{
    const dro__scalars *s = k->s;
    if (k->plan.objective == DRO__OBJECTIVE_KL_RADIUS)
        return fmin(loss / s->multiplier - s->log_u, k->plan.cap);
    return (loss - s->threshold) / s->multiplier;
}

/* Means over the items from `first` on. */
typedef struct dual_means {
    double weight, square, value,
        entropy; /* of the weight, its square, times loss, times its log */
    double loss;
    double slope; /* kl-radius: the weights' variance of x; cvar: of the losses near the
                   * threshold; chi2: share of the losses above it */
} dual_means;

APART dual_means dual_look(const dro__step *k, int first, int n)
{
    double mass = 0, weight = 0, square = 0, value = 0, entropy = 0, mean = 0, slope = 0;
    double rho = k->plan.argument, near = DRO__NEAR * k->s->excess;
    int exponential = k->plan.objective == DRO__OBJECTIVE_KL_RADIUS;
    int cvar = k->plan.objective == DRO__OBJECTIVE_CVAR;
    EACH (i, items(k, n)) {
        double p = item_mass(k, first + i), loss = p > 0 ? item_loss(k, first + i) : 0;
        double x = dual_x(k, loss), w = dual_weight(k, x), log_w = x;
        if (!exponential)
            log_w = w > 0 ? log(w) : 0;
        mass += p;
        weight += p * w;
        square += p * w * w;
        value += p * w * loss;
        entropy += p * w * log_w;
        mean += p * loss;
        if (exponential)
            slope += p * w * (x - rho) * (x - rho);
        else
            slope += p * (cvar ? fmax(0.0, 1 - fabs(loss - k->s->threshold) / near) : w > 0);
    }
    mass = ALL_SUM(mass);
    dual_means m = {ALL_SUM(weight) / mass,  ALL_SUM(square) / mass, ALL_SUM(value) / mass,
                    ALL_SUM(entropy) / mass, ALL_SUM(mean) / mass,   ALL_SUM(slope) / mass};
    return m;
}

/* The coefficients of cvar and chi2. */
FN void dual_coef(const dro__step *k, int first, int n)
{
    EACH (i, n) {
        double x = dual_x(k, (double)k->losses[first + i]);
        k->coef[first + i] = (float)(dual_weight(k, x) / n);
    }
    SYNC();
}

FN void dual_off(const dro__step *k, const dual_means *m, double *off)
{
    double argument = k->plan.argument;
    off[0] = m->weight - 1;
    off[1] = 0;
    if (k->plan.objective == DRO__OBJECTIVE_KL_RADIUS)
        off[0] = m->entropy - (argument + 1) * m->weight + 1;
    else if (k->plan.objective == DRO__OBJECTIVE_CHI2)
        off[1] = m->square - (1 + 2 * argument);
}

/* ---- the recursion ---- */

FN double dual_rate(const dro__step *k)
{
    return fmax(DRO__DUAL_RATE * sqrt(eta_share(k)), 1 / ((double)k->s->duals + 1));
}

/* The averages take in a batch; by one thread. */
FN void dual_note(const dro__step *k, const dual_means *m, double rate)
{
    dro__scalars *s = k->s;
    int exponential = k->plan.objective == DRO__OBJECTIVE_KL_RADIUS;
    double off[2], radius = m->entropy;
    dual_off(k, m, off);
    if (exponential)
        radius = off[0] + k->plan.argument;
    else if (k->plan.objective == DRO__OBJECTIVE_CHI2)
        radius = (m->square - 1) / 2;
    s->slope += rate * (m->slope - s->slope);
    s->excess += rate * (m->value - s->threshold * (m->weight - 1) - m->loss - s->excess);
    s->excess = fmax(s->excess, s->least);
    s->radius += rate * (radius - s->radius);
    s->value += rate * ((m->weight > 0 ? m->value / m->weight : m->value) - s->value);
}

FN double ramp(const dro__step *k)
{
    return k->plan.argument * fmax(DRO__NARROW, DRO__WIDE * eta_share(k)) * k->s->excess;
}

FN void set_lambda(const dro__step *k, double by)
{
    dro__scalars *s = k->s;
    double before = s->multiplier;
    s->multiplier = fmax(before * exp(limited(by, DRO__LEAP)), s->least);
    if (k->plan.objective == DRO__OBJECTIVE_KL_RADIUS)
        s->log_u -= log(s->multiplier / before) * (k->plan.argument + s->log_u);
}

/* Newton's step, times a rate; by one thread. */
FN void dual_newton(const dro__step *k, double rate)
{
    dro__scalars *s = k->s;
    double argument = k->plan.argument, first = rate * s->off[0], second = rate * s->off[1];
    if (k->plan.objective == DRO__OBJECTIVE_KL_RADIUS) {
        set_lambda(k, first / fmax(s->slope, 0.1 * argument));
    } else if (k->plan.objective == DRO__OBJECTIVE_CVAR) {
        double most = DRO__FAR * s->excess, by = s->off[0] * DRO__NEAR * s->excess;
        s->threshold += rate * (fabs(by) < most * s->slope ? by / s->slope : copysign(most, by));
        s->multiplier = ramp(k);
    } else {
        double c = 1 + 2 * argument, det = fmax(c * s->slope - 1, 0.1);
        double shift = (c * first - second / 2) / det, by = (s->slope * second / 2 - first) / det;
        double scale = 1 / fmax(1.0, fmax(fabs(shift), fabs(by) / DRO__LEAP));
        s->threshold += s->multiplier * scale * shift;
        set_lambda(k, scale * by);
    }
}

FN void dual_move(const dro__step *k)
{
    dro__scalars *s = k->s;
    double rate = dual_rate(k);
    SYNC(); /* all have read the state */
    if (ONE) {
        dual_newton(k, rate);
        s->duals++;
    }
    SYNC();
}

/* ---- the first batch, and groups ---- */

/* E weight = 1 for the multiplier as it is: E weight falls with the threshold. */
FN void find_threshold(const dro__step *k, int n)
{
    dro__scalars *s = k->s;
    double top = -HUGE_VAL, bottom = -HUGE_VAL;
    EACH (i, items(k, n))
        if (item_mass(k, i) > 0) {
            top = fmax(top, item_loss(k, i));
            bottom = fmax(bottom, -item_loss(k, i));
        }
    double high = ALL_MAX(top), low = -ALL_MAX(bottom) - s->multiplier;
    for (int pass = 0; pass < DRO__BISECTIONS; pass++) {
        double middle = low + (high - low) / 2;
        SYNC(); /* all have read the state */
        if (ONE)
            s->threshold = middle;
        SYNC();
        if (dual_look(k, 0, n).weight > 1)
            low = middle;
        else
            high = middle;
    }
}

/* From the spread of the losses: for kl-radius and chi2 that is right to first order. */
APART void dual_begin(const dro__step *k, int n)
{
    dro__scalars *s = k->s;
    double mass = 0, sum = 0, square = 0;
    EACH (i, items(k, n)) {
        mass += item_mass(k, i);
        sum += item_mass(k, i) * item_loss(k, i);
    }
    mass = ALL_SUM(mass);
    double mean = ALL_SUM(sum) / mass;
    EACH (i, items(k, n)) {
        double off = item_loss(k, i) - mean;
        square += item_mass(k, i) * off * off;
    }
    double spread = sqrt(ALL_SUM(square) / mass), size = fmax(fabs(mean), spread);
    size = size > 0 ? size : 1;
    SYNC(); /* all have read the state */
    if (ONE) {
        int cvar = k->plan.objective == DRO__OBJECTIVE_CVAR;
        s->least = DRO__LEAST * size;
        s->excess = fmax(spread, 0.1 * size);
        s->threshold = mean;
        s->multiplier = fmax(spread / sqrt(2 * k->plan.argument), 0.1 * size);
        s->multiplier = cvar ? ramp(k) : s->multiplier;
        s->duals = 1;
    }
    SYNC();
    if (k->plan.objective != DRO__OBJECTIVE_KL_RADIUS)
        find_threshold(k, n);
}

/* Before the examples of a step are weighed: the scalars move by what was seen so far. */
FN void dual_ready(const dro__step *k, int n)
{
    dro__scalars *s = k->s;
    int first = s->duals == 0, seen = s->have;
    SYNC(); /* all have read the state */
    if (first)
        dual_begin(k, n);
    else if (seen)
        dual_move(k);
}

/* chi2 over groups: q = (u - threshold)+ / lambda. On the set of the groups above the threshold,
 * with mass m, mean mu and variance v, (mu - threshold)^2 = v / (m c - 1). Beginning with all of
 * them, the threshold rises until the set stays as it is. */
FN void solve_chi2(const dro__step *k)
{
    dro__scalars *s = k->s;
    double c = 1 + 2 * k->plan.argument, threshold = -HUGE_VAL, count = -1, lambda = 0;
    for (int pass = 0; pass < DRO__BISECTIONS; pass++) {
        double now = 0, all = 0, mass = 0, mean = 0, spread = 0;
        EACH (g, k->ticket->group_count) {
            double p = item_mass(k, g);
            int in = p > 0 && k->groups[g].u > threshold;
            all += p;
            now += in ? 1 : 0;
            mass += in ? p : 0;
            mean += in ? p * k->groups[g].u : 0;
        }
        all = ALL_SUM(all);
        now = ALL_SUM(now);
        mass = ALL_SUM(mass);
        mean = ALL_SUM(mean) / mass;
        EACH (g, k->ticket->group_count) {
            double off = k->groups[g].u - mean, p = item_mass(k, g);
            spread += p > 0 && k->groups[g].u > threshold ? p * off * off / mass : 0;
        }
        spread = ALL_SUM(spread);
        mass /= all;
        if (now == count || !(mass * c > 1))
            break;
        threshold = mean - sqrt(spread / (mass * c - 1));
        lambda = mass * (mean - threshold);
        count = now;
    }
    SYNC(); /* all have read the state */
    if (ONE) {
        s->multiplier = fmax(lambda, s->least);
        s->threshold = threshold;
    }
    SYNC();
    if (!(lambda > s->least))
        find_threshold(k, 0);
}

/* log E exp(u/lambda) over the groups */
FN double log_mean_groups(const dro__step *k)
{
    double top = -HUGE_VAL, sum = 0, mass = 0, lambda = k->s->multiplier;
    EACH (g, k->ticket->group_count)
        if (item_mass(k, g) > 0)
            top = fmax(top, k->groups[g].u / lambda);
    top = ALL_MAX(top);
    EACH (g, k->ticket->group_count) {
        double p = item_mass(k, g);
        mass += p;
        sum += p > 0 ? p * EXP(k->groups[g].u / lambda - top) : 0;
    }
    mass = ALL_SUM(mass);
    return top + log(ALL_SUM(sum) / mass);
}

FN void solve_radius(const dro__step *k, int passes)
{
    dro__scalars *s = k->s;
    for (int pass = 0; pass <= passes; pass++) {
        double log_u = log_mean_groups(k);
        SYNC(); /* all have read the state */
        if (ONE)
            s->log_u = log_u;
        SYNC();
        dual_means m = dual_look(k, 0, 0);
        SYNC();
        if (ONE && pass < passes) {
            dual_off(k, &m, s->off);
            s->slope = m.slope;
            set_lambda(k, s->off[0] / fmax(s->slope, 0.1 * k->plan.argument));
        }
        SYNC();
    }
}

/* q of the groups seen so far, from their mean losses. */
APART void dual_groups(const dro__step *k)
{
    dro__scalars *s = k->s;
    int first = s->duals == 0;
    if (first)
        dual_begin(k, 0);
    SYNC(); /* all have read the state */
    if (ONE) {
        if (k->plan.objective == DRO__OBJECTIVE_CVAR)
            s->multiplier = ramp(k);
        s->duals += first ? 0 : 1;
    }
    SYNC();
    if (k->plan.objective == DRO__OBJECTIVE_KL_RADIUS)
        solve_radius(k, first ? DRO__BISECTIONS : DRO__NEWTONS);
    else if (k->plan.objective == DRO__OBJECTIVE_CHI2)
        solve_chi2(k);
    else
        find_threshold(k, 0);
    dual_means m = dual_look(k, 0, 0);
    double sum = 0;
    EACH (g, k->ticket->group_count) {
        dro__group *group = &k->groups[g];
        double p = item_mass(k, g);
        group->q_before = group->q;
        group->q = p > 0 ? p * dual_weight(k, dual_x(k, group->u)) : 0;
        sum += group->q;
    }
    sum = ALL_SUM(sum);
    EACH (g, k->ticket->group_count)
        k->groups[g].q /= sum;
    SYNC();
    if (ONE)
        dual_note(k, &m, 1);
    SYNC();
}
