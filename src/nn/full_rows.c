/* Losses, gradients and second derivatives of a linear model over all rows, in double
 * (full_rows.h).
 *
 * Rows are taken in pieces, and the sums of a fixed number of parts, which depends on the table
 * alone, are added in order: the results are the same for any number of threads. Sparse rows meet
 * weights that lie by column, so that the outputs of a feature are side by side. */
#include "full_rows.h"

#include <math.h>
#include <string.h>

enum { PIECE = 512, PARTS_MOST = 16 };

/* ---- logits ---- */

static inline double dense_dot(size_t n, const float *x, const double *w)
{
    enum { LANES = 8 };
    double sum[LANES] = {0};
    size_t j = 0;
    for (; j + LANES <= n; j += LANES)
        for (size_t k = 0; k < LANES; k++)
            sum[k] += (double)x[j + k] * w[j + k];
    for (size_t k = 0; j < n; j++, k++)
        sum[k] += (double)x[j] * w[j];
    return (sum[0] + sum[1] + (sum[2] + sum[3])) + (sum[4] + sum[5] + (sum[6] + sum[7]));
}

static inline __attribute__((always_inline)) void
sparse_dot(const dro__row_matrix *r, int64_t i, const double *by_column, size_t outputs, double *z)
{
    for (int64_t k = r->starts[i]; k < r->starts[i + 1]; k++) {
        const double *w = by_column + (size_t)r->columns[k] * outputs;
        for (size_t c = 0; c < outputs; c++)
            z[c] += (double)r->values[k] * w[c];
    }
}

static void logits_of(const dro__full_rows *f, int64_t i, double *z)
{
    const dro__row_matrix *r = &f->rows;
    for (size_t c = 0; c < f->outputs; c++)
        z[c] = f->bias_now[c];
    for (size_t c = 0; r->x && c < f->outputs; c++)
        z[c] += dense_dot(r->features, r->x + (size_t)i * r->features,
                          f->w + f->weight + c * r->features);
    if (r->x)
        return;
    if (f->outputs == 1)
        sparse_dot(r, i, f->by_column, 1, z);
    else if (f->outputs == 2)
        sparse_dot(r, i, f->by_column, 2, z);
    else
        sparse_dot(r, i, f->by_column, f->outputs, z);
}

/* ---- losses ---- */

/* log(1 + exp(-m)) and its slope with a single exponential, which suffices for two classes. */
static inline double logistic(double m, double *slope)
{
    double z = exp(-fabs(m));
    *slope = -(m > 0 ? z : 1) / (1 + z);
    return (z > 1e-4 ? log(1 + z) : log1p(z)) + (m > 0 ? 0 : -m);
}

static double smoothing_of(const dro__graph *g)
{
    bool smoothed = dro__net_losses[g->loss].settings & DRO__SET(smoothing);
    return smoothed ? (double)g->loss_set[DRO__SET_smoothing] : 0;
}

static double loss_of(const dro__full_rows *f, int64_t i, const double *z, double *slopes)
{
    const dro__graph *g = &f->loss;
    if (g->loss == DRO__NET_CROSS_ENTROPY && f->outputs == 2 && smoothing_of(g) == 0) {
        int32_t label = f->all.labels[i];
        double loss = logistic(z[label] - z[!label], &slopes[label]);
        slopes[!label] = -slopes[label];
        return loss;
    }
    return dro__net_loss_row(g, f->outputs, &f->all, (size_t)i, z, slopes);
}

typedef struct pass {
    dro__full_rows *f;
    double *losses;
    const double *weights;
} pass;

static size_t pieces(const dro__full_rows *f)
{
    return ((size_t)f->n + PIECE - 1) / PIECE;
}

static void losses_piece(void *arg, size_t k)
{
    const pass *p = arg;
    dro__full_rows *f = p->f;
    int64_t from = (int64_t)k * PIECE, to = from + PIECE < f->n ? from + PIECE : f->n;
    double z[DRO__FULL_OUTPUTS];
    for (int64_t i = from; i < to; i++) {
        logits_of(f, i, z);
        p->losses[i] = loss_of(f, i, z, f->slopes + (size_t)i * f->outputs);
    }
}

/* ---- memory ---- */

/* Parts of the gradient take no more memory than the rows. */
static size_t parts_of(const dro__full_rows *f)
{
    uint64_t entries =
        f->rows.x ? (uint64_t)f->n * f->rows.features : (uint64_t)f->rows.starts[f->n];
    uint64_t most = entries / (2 * (f->rows.features + 1) * f->outputs), by_rows = pieces(f);
    most = most < by_rows ? most : by_rows;
    return most < 1 ? 1 : most < PARTS_MOST ? (size_t)most : PARTS_MOST;
}

static size_t part_size(const dro__full_rows *f)
{
    return (f->rows.features + 1) * f->outputs; /* the biases at the end */
}

static dro_status make_memory(dro__full_rows *f)
{
    if (f->slopes)
        return DRO_OK;
    f->part_count = parts_of(f);
    f->by_column = dro__alloc(f->rows.x ? 0 : f->rows.features * f->outputs, sizeof(double));
    f->bias_now = dro__alloc(f->outputs, sizeof(double));
    f->parts = dro__alloc(f->part_count * part_size(f), sizeof(double));
    f->slopes = dro__alloc((size_t)f->n * f->outputs, sizeof(double));
    if (f->by_column && f->bias_now && f->parts && f->slopes)
        return DRO_OK;
    dro__full_rows_close(f);
    return dro__fail(f->ctx, DRO_ERR_MEMORY, "no memory for the losses of %lld rows",
                     (long long)f->n);
}

void dro__full_rows_close(dro__full_rows *f)
{
    dro__free(f->by_column);
    dro__free(f->bias_now);
    dro__free(f->parts);
    dro__free(f->slopes);
    f->by_column = f->bias_now = f->parts = f->slopes = NULL;
}

static dro_status losses(void *user, const double *w, double *to)
{
    dro__full_rows *f = user;
    size_t features = f->rows.features;
    DRO_TRY(make_memory(f));
    f->w = w;
    for (size_t c = 0; c < f->outputs; c++) {
        f->bias_now[c] = f->bias < 0 ? 0 : w[(size_t)f->bias + c];
        for (size_t j = 0; !f->rows.x && j < features; j++)
            f->by_column[j * f->outputs + c] = w[(size_t)f->weight + c * features + j];
    }
    pass p = {.f = f, .losses = to};
    dro__pool_run(f->ctx->pool, pieces(f), losses_piece, &p);
    f->w = NULL; /* borrowed for the call */
    return DRO_OK;
}

/* ---- the gradient ---- */

static inline __attribute__((always_inline)) void
sparse_add(const dro__row_matrix *r, int64_t i, const double *coef, size_t outputs, double *sum)
{
    for (int64_t k = r->starts[i]; k < r->starts[i + 1]; k++) {
        double *to = sum + (size_t)r->columns[k] * outputs;
        for (size_t c = 0; c < outputs; c++)
            to[c] += coef[c] * (double)r->values[k];
    }
}

static void add_row(const dro__full_rows *f, int64_t i, const double *coef, double *sum)
{
    const dro__row_matrix *r = &f->rows;
    for (size_t c = 0; r->x && c < f->outputs; c++)
        for (size_t j = 0; j < r->features; j++)
            sum[c * r->features + j] += coef[c] * (double)r->x[(size_t)i * r->features + j];
    if (!r->x && f->outputs == 1)
        sparse_add(r, i, coef, 1, sum);
    else if (!r->x && f->outputs == 2)
        sparse_add(r, i, coef, 2, sum);
    else if (!r->x)
        sparse_add(r, i, coef, f->outputs, sum);
    for (size_t c = 0; c < f->outputs; c++)
        sum[r->features * f->outputs + c] += coef[c];
}

static void gradient_part(void *arg, size_t k)
{
    const pass *p = arg;
    dro__full_rows *f = p->f;
    double *sum = f->parts + k * part_size(f), coef[DRO__FULL_OUTPUTS];
    int64_t from = f->n * (int64_t)k / (int64_t)f->part_count;
    int64_t to = f->n * (int64_t)(k + 1) / (int64_t)f->part_count;
    memset(sum, 0, part_size(f) * sizeof *sum);
    for (int64_t i = from; i < to; i++) {
        if (p->weights[i] == 0)
            continue;
        for (size_t c = 0; c < f->outputs; c++)
            coef[c] = p->weights[i] * f->slopes[(size_t)i * f->outputs + c];
        add_row(f, i, coef, sum);
    }
}

/* The place of the sum of feature j and output c in a part. */
static size_t place(const dro__full_rows *f, size_t c, size_t j)
{
    return f->rows.x ? c * f->rows.features + j : j * f->outputs + c;
}

static void gradient(void *user, const double *weights, double *to)
{
    dro__full_rows *f = user;
    size_t features = f->rows.features, size = part_size(f);
    pass p = {.f = f, .weights = weights};
    dro__pool_run(f->ctx->pool, f->part_count, gradient_part, &p);
    for (size_t k = 1; k < f->part_count; k++)
        for (size_t j = 0; j < size; j++)
            f->parts[j] += f->parts[k * size + j];
    for (size_t c = 0; c < f->outputs; c++) {
        for (size_t j = 0; j < features; j++)
            to[(size_t)f->weight + c * features + j] = f->parts[place(f, c, j)];
        if (f->bias >= 0)
            to[(size_t)f->bias + c] = f->parts[features * f->outputs + c];
    }
}

/* ---- second derivatives ---- */

/* The second derivative of the loss by the outputs a and b, from its slopes. */
static double curvature(const dro__full_rows *f, int64_t i, size_t a, size_t b)
{
    const double *s = f->slopes + (size_t)i * f->outputs;
    double share[2];
    size_t which[2] = {a, b};
    if (f->loss.loss == DRO__NET_SQUARED)
        return a == b;
    if (f->loss.loss == DRO__NET_LOGISTIC)
        return a == b ? fabs(s[a]) * (1 - fabs(s[a])) : 0;
    double smoothing = smoothing_of(&f->loss);
    for (int k = 0; k < 2; k++) /* slope = p - target */
        share[k] = s[which[k]] + smoothing / (double)f->outputs +
                   ((size_t)f->all.labels[i] == which[k] ? 1 - smoothing : 0);
    return share[0] * ((a == b) - share[1]);
}

/* A row as columns and values, the bias as one more column. */
typedef struct sparse_row {
    size_t count;
    const int32_t *columns; /* NULL: 0, 1, 2, ... */
    const float *values;
} sparse_row;

static size_t column_of(const sparse_row *r, size_t k)
{
    return r->columns ? (size_t)r->columns[k] : k;
}

/* h += scale x x' in the block of the outputs a and b; of the diagonal's blocks the lower
 * triangle. */
static void add_block(const dro__full_rows *f, const sparse_row *r, const size_t pair[2],
                      double scale, double *h)
{
    size_t features = f->rows.features, a = pair[0], b = pair[1];
    size_t left = (size_t)f->weight + b * features, top = (size_t)f->weight + a * features;
    for (size_t j = 0; j < r->count; j++) {
        size_t column = column_of(r, j);
        double *row = h + (top + column) * f->dim + left, value = scale * (double)r->values[j];
        for (size_t k = 0; value != 0 && k < r->count; k++) {
            size_t other = column_of(r, k);
            if (a != b || other <= column)
                row[other] += value * (double)r->values[k];
        }
        if (f->bias < 0)
            continue;
        h[((size_t)f->bias + a) * f->dim + left + column] += value;
        if (a != b) /* the other one of the pair */
            h[((size_t)f->bias + b) * f->dim + top + column] += value;
    }
    if (f->bias >= 0)
        h[((size_t)f->bias + a) * f->dim + (size_t)f->bias + b] += scale;
}

static void hessian(void *user, const double *weights, double tilt, double *h)
{
    dro__full_rows *f = user;
    const dro__row_matrix *r = &f->rows;
    for (int64_t i = 0; i < f->n; i++) {
        const double *s = f->slopes + (size_t)i * f->outputs;
        int64_t start = r->x ? i * (int64_t)r->features : r->starts[i];
        sparse_row row = {.count = r->features, .values = (r->x ? r->x : r->values) + start};
        if (!r->x) {
            row.count = (size_t)(r->starts[i + 1] - start);
            row.columns = r->columns + start;
        }
        for (size_t a = 0; weights[i] > 0 && a < f->outputs; a++)
            for (size_t b = 0; b <= a; b++) {
                double scale = weights[i] * (curvature(f, i, a, b) + tilt * s[a] * s[b]);
                if (scale != 0)
                    add_block(f, &row, (size_t[]){a, b}, scale, h);
            }
    }
}

static void scale_of(void *user, double *to)
{
    const dro__full_rows *f = user;
    const dro__row_matrix *r = &f->rows;
    const double bend = f->loss.loss == DRO__NET_SQUARED ? 1 : 0.25, rarest = 1e-9;
    double share = bend / (double)f->n, *first = to + f->weight, most = 0;
    memset(to, 0, f->dim * sizeof *to);
    for (int64_t i = 0; r->x && i < f->n; i++)
        for (size_t j = 0; j < r->features; j++) {
            double x = (double)r->x[(size_t)i * r->features + j];
            first[j] += share * x * x;
        }
    for (int64_t k = 0; !r->x && k < r->starts[f->n]; k++)
        first[r->columns[k]] += share * (double)r->values[k] * (double)r->values[k];
    for (size_t j = 0; j < r->features; j++)
        most = fmax(most, first[j]);
    for (size_t j = 0; j < r->features; j++)
        first[j] = most > 0 ? fmax(first[j], rarest * most) : 1;
    for (size_t c = 1; c < f->outputs; c++)
        memcpy(first + c * r->features, first, r->features * sizeof *first);
    for (size_t c = 0; f->bias >= 0 && c < f->outputs; c++)
        to[(size_t)f->bias + c] = bend;
}

/* ---- opening ---- */

void dro__full_rows_open(dro__full_rows *f)
{
    f->full = (dro__full){.user = f,
                          .convex = true,
                          .losses = losses,
                          .gradient = gradient,
                          .hessian = hessian,
                          .scale = scale_of};
    f->able = (dro__abilities){.full = &f->full};
}

bool dro__full_rows_net(const dro__graph *g, dro__full_rows *f)
{
    const dro__graph_node *last = &g->nodes[g->count - 1];
    bool flat = g->count == 2 || (g->count == 3 && g->nodes[1].op == DRO__OP_FLATTEN);
    if (!flat || last->op != DRO__OP_LINEAR || last->frozen || g->heads[1] >= 0 ||
        g->loss == DRO__NET_FOCAL || dro__node_size(last) > DRO__FULL_OUTPUTS)
        return false;
    f->loss = *g;
    f->outputs = dro__node_size(last);
    f->weight = last->weight;
    f->bias = last->has_bias ? last->bias : -1;
    f->dim = g->dim;
    return true;
}
