/* Means, standard errors, curves and classes of a report (report.h). */
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

dro_statistic dro__report_statistic(const double *values, size_t count)
{
    dro_statistic s = {0, NAN, NAN};
    double sum = 0, square = 0;
    for (size_t k = 0; k < count; k++)
        if (isfinite(values[k])) {
            s.count++;
            sum += values[k];
        }
    if (s.count == 0)
        return s;
    s.mean = sum / s.count;
    for (size_t k = 0; k < count; k++)
        if (isfinite(values[k]))
            square += (values[k] - s.mean) * (values[k] - s.mean);
    if (s.count > 1)
        s.error = sqrt(square / (s.count - 1) / s.count);
    return s;
}

/* The first evaluation with F at most `objective`, with `stay` also at all later ones; the number
 * of evaluations if there is none. */
static size_t first_at(const dro__trial *t, double objective, bool stay)
{
    size_t first = t->evaluation_count;
    for (size_t i = t->evaluation_count; i-- > 0;) {
        double f = t->evaluations[i].values[DRO__COLUMN_OBJECTIVE];
        if (f <= objective)
            first = i;
        else if (stay && !isnan(f))
            break;
    }
    return first;
}

dro_status dro_report_reach(dro_report *report, int32_t index, double objective, bool stay,
                            dro_measure by, dro_statistic *reach)
{
    dro__report_column x = by == DRO_MEASURE_SECONDS ? DRO__COLUMN_SECONDS : DRO__COLUMN_EXAMPLES;
    size_t count = 0;
    if (!report || !reach || (by != DRO_MEASURE_SECONDS && by != DRO_MEASURE_EXAMPLES))
        return DRO_ERR_ARGUMENT;
    dro__forget(report->ctx);
    DRO_TRY(dro__report_prepare(report));
    if (index < 0 || index >= report->method_count)
        return dro__fail(report->ctx, DRO_ERR_END, "method %d: there are %d", index,
                         report->method_count);
    double *values = dro__alloc(report->trial_count + 1, sizeof *values);
    if (!values)
        return dro__report_memory(report);
    for (size_t k = 0; k < report->trial_count; k++) {
        const dro__trial *t = report->trials[k];
        size_t first = t->method == index ? first_at(t, objective, stay) : t->evaluation_count;
        if (first < t->evaluation_count)
            values[count++] = t->evaluations[first].values[x];
    }
    *reach = dro__report_statistic(values, count);
    dro__free(values);
    return DRO_OK;
}

void dro__trial_rare(dro__trial *t)
{
    double most = 0, sum[2] = {0}, count[2] = {0};
    for (int32_t k = 0; t->counts && k < t->count_count; k++)
        most = fmax(most, t->counts[k]);
    for (int32_t k = 0; t->counts && t->count_count == t->class_count && k < t->class_count; k++)
        if (isfinite(t->per_class[k])) {
            int rare = t->counts[k] < most / 2;
            sum[rare] += t->per_class[k];
            count[rare]++;
        }
    if (count[0] == 0 || count[1] == 0)
        return;
    t->measures[DRO_MEASURE_FREQUENT] = sum[0] / count[0];
    t->measures[DRO_MEASURE_RARE] = sum[1] / count[1];
}

/* ---- curves ---- */

void dro__curve_free(dro__curve *curve)
{
    dro__free(curve->x);
    dro__free(curve->y);
    *curve = (dro__curve){0};
}

static bool curve_capacity(dro__curve *curve, size_t count)
{
    *curve = (dro__curve){0};
    curve->x = dro__alloc(count + 1, sizeof *curve->x);
    curve->y = dro__alloc(count + 1, sizeof *curve->y);
    if (curve->x && curve->y)
        return true;
    dro__curve_free(curve);
    return false;
}

bool dro__curve_of(const dro__trial *trial, dro__report_column x, dro__report_column y,
                   dro__curve *curve)
{
    if (!curve_capacity(curve, trial->evaluation_count))
        return false;
    for (size_t k = 0; k < trial->evaluation_count; k++) {
        double at = trial->evaluations[k].values[x], value = trial->evaluations[k].values[y];
        if (!isfinite(at) || !isfinite(value) || (curve->count && at < curve->x[curve->count - 1]))
            continue;
        if (curve->count && at == curve->x[curve->count - 1])
            curve->count--; /* the later one counts */
        curve->x[curve->count] = at;
        curve->y[curve->count++] = value;
    }
    return true;
}

/* The value at a share of the run, interpolated between its evaluations. */
static void curve_at(const dro__curve *c, double share, double *x, double *y)
{
    double at = share * (double)(c->count - 1);
    size_t k = (size_t)at, next = k + 1 < c->count ? k + 1 : k;
    double part = at - (double)k;
    *x = (1 - part) * c->x[k] + part * c->x[next];
    *y = (1 - part) * c->y[k] + part * c->y[next];
}

/* Sums first and one division, as dro__report_statistic() has it: both end at the same number. */
bool dro__curve_mean(const dro__curve *curves, size_t count, dro__curve *mean)
{
    size_t most = 0, some = 0;
    for (size_t k = 0; k < count; k++) {
        most = curves[k].count > most ? curves[k].count : most;
        some += curves[k].count > 0;
    }
    if (!curve_capacity(mean, most))
        return false;
    for (size_t i = 0; i < most; i++) {
        double x = 0, y = 0, share = i + 1 == most ? 1 : (double)i / (double)(most - 1);
        for (size_t k = 0; k < count; k++) {
            double own_x = 0, own_y = 0;
            if (curves[k].count == most)
                own_x = curves[k].x[i], own_y = curves[k].y[i];
            else if (curves[k].count)
                curve_at(&curves[k], share, &own_x, &own_y);
            x += own_x, y += own_y;
        }
        x /= (double)some, y /= (double)some;
        if (isfinite(x) && isfinite(y))
            mean->x[mean->count] = x, mean->y[mean->count++] = y;
    }
    return true;
}

void dro__curve_thin(dro__curve *c, size_t most)
{
    size_t bins = most / 2, kept = 0, n = c->count;
    if (n <= most || bins < 2)
        return;
    for (size_t b = 0; b < bins; b++) {
        size_t from = b * n / bins, to = (b + 1) * n / bins, low = from, high = from;
        for (size_t k = from; k < to; k++) {
            low = c->y[k] < c->y[low] ? k : low;
            high = c->y[k] >= c->y[high] ? k : high;
        }
        if (b == 0)
            low = from < high ? from : low; /* the ends stay */
        if (b + 1 == bins)
            high = n - 1;
        size_t first = low < high ? low : high, last = low < high ? high : low;
        double x = c->x[last], y = c->y[last];
        c->x[kept] = c->x[first], c->y[kept++] = c->y[first];
        if (last != first)
            c->x[kept] = x, c->y[kept++] = y;
    }
    c->count = kept;
}

/* ---- classes ---- */

void dro__class_table_free(dro__class_table *classes)
{
    dro__free(classes->per_class);
    dro__free(classes->confusion);
    *classes = (dro__class_table){0};
}

/* Mean over the runs of the method that have this number of classes; NaN if unknown. */
static void mean_per_class(const dro_report *report, int32_t method, dro__class_table *c)
{
    for (int32_t i = 0; i < c->count; i++) {
        double sum = 0, known = 0;
        for (size_t k = 0; k < report->trial_count; k++) {
            const dro__trial *t = report->trials[k];
            if (t->method == method && !t->diverged && t->per_class && t->class_count == c->count &&
                isfinite(t->per_class[i]))
                sum += t->per_class[i], known++;
        }
        c->per_class[i] = known ? sum / known : NAN;
    }
}

static bool add_confusions(const dro_report *report, int32_t method, dro__class_table *c)
{
    size_t n = (size_t)c->count;
    for (size_t k = 0; k < report->trial_count; k++) {
        const dro__trial *t = report->trials[k];
        if (t->method != method || t->diverged || t->matrix_count != c->count)
            continue;
        if (!c->confusion && !(c->confusion = dro__alloc(n * n, sizeof *c->confusion)))
            return false;
        for (size_t i = 0; i < n * n; i++)
            c->confusion[i] += t->confusion[i];
    }
    for (size_t i = 0; c->confusion && i < n; i++) {
        double *row = c->confusion + i * n, sum = 0;
        for (size_t j = 0; j < n; j++)
            sum += row[j];
        for (size_t j = 0; j < n; j++)
            row[j] = sum > 0 ? row[j] / sum : 0;
    }
    return true;
}

bool dro__class_table_of(const dro_report *report, int32_t method, dro__class_table *c)
{
    *c = (dro__class_table){0};
    for (size_t k = 0; k < report->trial_count && !c->count; k++) {
        const dro__trial *t = report->trials[k];
        if (t->method == method && !t->diverged)
            c->count = t->per_class ? t->class_count : t->matrix_count;
    }
    if (!c->count)
        return true;
    c->per_class = dro__alloc((size_t)c->count, sizeof *c->per_class);
    if (!c->per_class || !add_confusions(report, method, c)) {
        dro__class_table_free(c);
        return false;
    }
    mean_per_class(report, method, c);
    return true;
}

typedef struct place {
    double count;
    int32_t index;
} place;

static int by_count(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->index - y->index;
}

/* All zeros mean unknown: earlier versions did not count the examples of a stream. */
static bool has_counts(const dro__trial *t, int32_t count)
{
    bool any = false;
    for (int32_t k = 0; t->counts && t->count_count == count && k < count; k++)
        any = any || t->counts[k] > 0;
    return any;
}

bool dro__counts_unequal(const double *counts, int32_t count)
{
    const double TIMES = 1.5;
    double least = INFINITY, most = 0;
    for (int32_t k = 0; counts && k < count; k++) {
        least = fmin(least, counts[k]);
        most = fmax(most, counts[k]);
    }
    return most > TIMES * least;
}

bool dro__class_table_order(const dro_report *report, int32_t count, int32_t **order,
                            const double **counts)
{
    place *places = dro__alloc((size_t)count + 1, sizeof *places);
    *order = dro__alloc((size_t)count + 1, sizeof **order);
    *counts = NULL;
    if (!places || !*order) {
        dro__free(places);
        dro__free(*order);
        *order = NULL;
        return false;
    }
    for (size_t k = 0; k < report->trial_count && !*counts; k++)
        if (has_counts(report->trials[k], count))
            *counts = report->trials[k]->counts;
    bool unequal = *counts && dro__counts_unequal(*counts, count);
    for (int32_t i = 0; i < count; i++) {
        double known = unequal ? (*counts)[i] : 0;
        places[i] = (place){isfinite(known) ? known : 0, i};
    }
    qsort(places, (size_t)count, sizeof *places, by_count);
    for (int32_t i = 0; i < count; i++)
        (*order)[i] = places[i].index;
    dro__free(places);
    return true;
}

const char *dro__class_name(const dro_report *report, int32_t count, int32_t index, char out[16])
{
    for (size_t k = 0; k < report->trial_count; k++) {
        const dro__trial *t = report->trials[k];
        if (t->name_count == count && t->class_names && t->class_names[index] &&
            *t->class_names[index])
            return t->class_names[index];
    }
    snprintf(out, 16, "%d", index);
    return out;
}
