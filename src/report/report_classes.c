/* Figures over classes (report_figures.h): bars of accuracy and confusion matrices. Classes are in
 * the order of their frequency, if that differs; where there are too many to show each, neighbours
 * are put together. */
#include "report_figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    BARS_MOST = 8, /* methods in one row */
    BARS_HEIGHT = 840,
    CELLS_MOST = 48,   /* rows of a matrix */
    WRITTEN_MOST = 12, /* rows of a matrix with numbers in its cells */
    WORST_MOST = 12    /* confusions in the table */
};

/* ---- bars ---- */

typedef struct bars {
    const dro_report *report;
    dro__class_table *methods; /* (method_count) */
    int32_t count, shown;      /* classes, methods */
    int32_t rows, per;         /* rows, and classes in each */
    int32_t *order;
    const double *counts;
    double bar, row; /* heights */
} bars;

/* The mean of some neighbours' accuracies. */
static double row_value(const bars *b, int32_t method, int32_t row)
{
    double sum = 0, known = 0;
    if (b->methods[method].count != b->count)
        return NAN;
    for (int32_t k = row * b->per; k < (row + 1) * b->per && k < b->count; k++) {
        double value = b->methods[method].per_class[b->order[k]];
        if (isfinite(value))
            sum += value, known++;
    }
    return known ? sum / known : NAN;
}

static void row_name(const bars *b, int32_t row, char *out, size_t size)
{
    char digits[16];
    int32_t first = row * b->per, last = first + b->per < b->count ? first + b->per : b->count;
    if (last - first == 1)
        snprintf(out, size, "%s", dro__class_name(b->report, b->count, b->order[first], digits));
    else
        snprintf(out, size, "classes #%d\xe2\x80\x93%d", first + 1, last);
}

static double row_count(const bars *b, int32_t row)
{
    double sum = 0;
    for (int32_t k = row * b->per; k < (row + 1) * b->per && k < b->count; k++)
        sum += b->counts && isfinite(b->counts[b->order[k]]) ? b->counts[b->order[k]] : 0;
    return sum;
}

static void draw_row(const bars *b, dro__plot *plot, const dro__plot_scale *x, int32_t row,
                     double y)
{
    char name[300], tip[500], value[DRO__NUMBER];
    double high = b->bar * b->shown;
    row_name(b, row, name, sizeof name);
    dro__plot_text(plot, (dro__text_style){DRO__INK, 12, DRO__RIGHT, 14}, x->from - 8,
                   y + high / 2 + 4, name);
    for (int32_t m = 0; m < b->shown; m++) {
        double share = row_value(b, m, row);
        if (!isfinite(share))
            continue;
        snprintf(tip, sizeof tip, "%.80s, %.200s: %s%%", b->report->methods[m].name, name,
                 dro__show_share(value, share));
        dro__plot_box(plot, DRO__SERIES(m),
                      (dro__rectangle){x->from, y + m * b->bar,
                                       fmax(1, dro__scale_at(x, fmin(fmax(share, 0), 1)) - x->from),
                                       b->bar - 1},
                      tip);
    }
    if (b->counts)
        dro__plot_text(plot, (dro__text_style){DRO__MUTED, 11, DRO__RIGHT, 12}, DRO__PLOT_WIDTH - 6,
                       y + high / 2 + 4, dro__show_count(value, row_count(b, row)));
}

void dro__bars_grid(dro__plot *plot, const dro__plot_scale *x, double top, double bottom)
{
    for (int k = 0; k <= 4; k++) {
        char text[DRO__NUMBER];
        double at = dro__scale_at(x, k / 4.0);
        dro__plot_grid_line(plot, at, top, at, bottom);
        dro__plot_text(plot, (dro__text_style){DRO__MUTED, 12, DRO__MIDDLE, 8}, at, bottom + 16,
                       dro__scale_text(x, k / 4.0, text));
    }
    plot->height = bottom + 28;
}

static void draw_bars(const bars *b, dro__plot *plot, double top)
{
    dro__plot_scale x = {
        .high = 1, .from = 112, .to = b->counts ? 368 : 404, .unit = DRO__UNIT_SHARE, .divisor = 1};
    dro__bars_grid(plot, &x, top, top + b->row * b->rows + 2);
    if (b->counts)
        dro__plot_text(plot, (dro__text_style){DRO__MUTED, 11, DRO__RIGHT, 20}, DRO__PLOT_WIDTH - 6,
                       top - 6, "training examples");
    for (int32_t row = 0; row < b->rows; row++)
        draw_row(b, plot, &x, row, top + 3 + row * b->row);
}

static const char per_class[] = "Test accuracy of each class";

static void tabulate_bars(const bars *b, dro__buffer *out)
{
    const char *headers[] = {"Class", "Training examples", "Method", "Accuracy"};
    char name[300], count[DRO__NUMBER], value[DRO__NUMBER], title[DRO__TITLE];
    dro__table_open(out, dro__report_title(b->report, per_class, title), headers, 4);
    for (int32_t row = 0; row < b->rows; row++)
        for (int32_t m = 0; m < b->report->method_count; m++) {
            row_name(b, row, name, sizeof name);
            dro__show_count(count, b->counts ? row_count(b, row) : (double)NAN);
            dro__show_share(value, row_value(b, m, row));
            dro__table_row(out, name, count, b->report->methods[m].name, strcat(value, "%"), NULL);
        }
    dro__table_close(out);
}

/* Chooses heights that fit: thinner bars for more methods, then groups of neighbouring classes. */
static void choose_heights(bars *b)
{
    b->bar = b->shown == 1 ? 13 : b->shown == 2 ? 9 : b->shown <= 4 ? 7 : 5;
    b->row = b->bar * b->shown + 8;
    int32_t fit = (int32_t)(BARS_HEIGHT / b->row);
    b->per = (b->count + fit - 1) / fit;
    b->rows = (b->count + b->per - 1) / b->per;
}

static void add_bars(dro__figures *f, bars *b)
{
    char title[DRO__TITLE];
    size_t size = strlen(dro__report_title(b->report, per_class, title));
    if (b->shown < b->report->method_count)
        snprintf(title + size, sizeof title - size, ", %d of %d methods", b->shown,
                 b->report->method_count);
    choose_heights(b);
    dro__figure *figure = dro__figure_add(f, DRO__SECTION_CLASSES, "per-class", title);
    if (!figure)
        return;
    dro__plot_about(
        &figure->plot, "%s%s%s.", title,
        dro__counts_unequal(b->counts, b->count) ? ", the most frequent in training first" : "",
        b->per > 1 ? "; neighbours are put together" : "");
    double top = dro__figure_top(f, &figure->plot, b->shown);
    draw_bars(b, &figure->plot, top + (b->counts ? 16 : 4));
    tabulate_bars(b, &figure->table);
}

void dro__figures_bars(dro__figures *f)
{
    bars b = {.report = f->report};
    int32_t methods = f->report->method_count;
    b.shown = methods < BARS_MOST ? methods : BARS_MOST;
    b.methods = dro__alloc((size_t)methods + 1, sizeof *b.methods);
    bool fine = b.methods != NULL;
    for (int32_t m = 0; fine && m < methods; m++) {
        fine = dro__class_table_of(f->report, m, &b.methods[m]);
        for (int32_t k = 0; fine && !b.count && k < b.methods[m].count; k++)
            if (isfinite(b.methods[m].per_class[k]))
                b.count = b.methods[m].count;
    }
    if (fine && b.count) {
        fine = dro__class_table_order(f->report, b.count, &b.order, &b.counts);
        if (fine)
            add_bars(f, &b);
        dro__free(b.order);
    }
    for (int32_t m = 0; b.methods && m < methods; m++)
        dro__class_table_free(&b.methods[m]);
    dro__free(b.methods);
    f->failed = f->failed || !fine;
}

/* ---- confusion matrices ---- */

typedef struct matrix {
    const dro_report *report;
    const dro__class_table *classes;
    int32_t rows, per;
    int32_t *order;
    double left, top, cell;
    bool names; /* the columns have names, not numbers */
} matrix;

/* Of the examples of some neighbouring classes, the share that is predicted as some others. */
static double cell_value(const matrix *m, int32_t i, int32_t j)
{
    int32_t n = m->classes->count;
    double sum = 0, rows = 0;
    for (int32_t a = i * m->per; a < (i + 1) * m->per && a < n; a++, rows++)
        for (int32_t b = j * m->per; b < (j + 1) * m->per && b < n; b++)
            sum += m->classes->confusion[(size_t)m->order[a] * (size_t)n + (size_t)m->order[b]];
    return rows ? sum / rows : 0;
}

static const char *cell_name(const matrix *m, int32_t i, char out[64])
{
    int32_t n = m->classes->count, last = (i + 1) * m->per < n ? (i + 1) * m->per : n;
    char digits[16];
    int32_t first = i * m->per;
    if (last - first == 1)
        snprintf(out, 64, "%.60s", dro__class_name(m->report, n, m->order[first], digits));
    else /* places in the order, which are no names */
        snprintf(out, 64, "#%d\xe2\x80\x93%d", first + 1, last);
    return out;
}

static void draw_cell(const matrix *m, dro__plot *plot, int32_t i, int32_t j)
{
    double value = cell_value(m, i, j), strength = pow(value, 0.75), gap = m->cell > 8 ? 1 : 0;
    double x = m->left + j * m->cell, y = m->top + i * m->cell;
    char from[64], to[64], share[DRO__NUMBER], tip[240];
    if (!(value >= 0.0005))
        return;
    snprintf(tip, sizeof tip, "%s predicted as %s: %s%%", cell_name(m, i, from),
             cell_name(m, j, to), dro__show_share(share, value));
    dro__plot_box(plot, (dro__paint){DRO__ROLE_HEAT, -1, 0.06 + 0.94 * strength},
                  (dro__rectangle){x, y, m->cell - gap, m->cell - gap}, tip);
    snprintf(share, sizeof share, "%.0f", 100 * value);
    if (m->rows <= WRITTEN_MOST && value >= 0.005)
        dro__plot_text(
            plot, (dro__text_style){strength > 0.5 ? DRO__PAPER : DRO__INK, 11, DRO__MIDDLE, 4},
            x + (m->cell - gap) / 2, y + m->cell / 2 + 4, share);
}

/* Names of as many rows as fit. Columns have the same names if these are short or numbers;
 * otherwise both have their rank, #3, and rows have the name before it. */
static void draw_names(const matrix *m, dro__plot *plot)
{
    int32_t every = (int32_t)ceil(11 / m->cell), widest = 3;
    char name[64], label[80];
    for (int32_t i = 0; i < m->rows; i++) {
        snprintf(label, sizeof label, "#%d", i + 1);
        int32_t letters = dro__utf8_count(m->names ? cell_name(m, i, name) : label);
        widest = letters > widest ? letters : widest;
    }
    int32_t wide = (int32_t)ceil((6.5 * widest + 4) / m->cell);
    for (int32_t i = 0; i < m->rows; i++) {
        double middle = (i + 0.5) * m->cell;
        cell_name(m, i, name);
        snprintf(label, sizeof label, "#%d", i + 1);
        if (i % wide == 0)
            dro__plot_text(plot, (dro__text_style){DRO__MUTED, 11, DRO__MIDDLE, widest},
                           m->left + middle, m->top - 6, m->names ? name : label);
        snprintf(label, sizeof label, "%.60s #%d", name, i + 1);
        if (i % every == 0)
            dro__plot_text(plot,
                           (dro__text_style){DRO__INK, m->cell < 11 ? 10 : 12, DRO__RIGHT, 15},
                           m->left - 6, m->top + middle + 4, m->names ? name : label);
    }
    dro__plot_text(plot, (dro__text_style){DRO__MUTED, 11, DRO__RIGHT, 30},
                   m->left + m->rows * m->cell, m->top - 20, "predicted as");
    dro__plot_text(plot, (dro__text_style){DRO__MUTED, 11, DRO__RIGHT, 30}, m->left - 6,
                   m->top - 20, "class");
}

/* The largest entries off the diagonal. */
static void tabulate_matrix(const matrix *m, dro__buffer *out)
{
    const char *headers[] = {"Class", "Taken for", "Share"};
    double below = INFINITY;
    int32_t below_at = -1, rows = 0;
    dro__table_open(out, "Most frequent confusions", headers, 3);
    for (; rows < WORST_MOST; rows++) {
        double best = 0;
        int32_t at = -1;
        for (int32_t k = 0; k < m->rows * m->rows; k++) {
            double value = k / m->rows == k % m->rows ? 0 : cell_value(m, k / m->rows, k % m->rows);
            if (value > best && (value < below || (value == below && k > below_at)))
                best = value, at = k;
        }
        if (at < 0)
            break;
        char from[64], to[64], share[DRO__NUMBER];
        dro__show_share(share, best);
        dro__table_row(out, cell_name(m, at / m->rows, from), cell_name(m, at % m->rows, to),
                       strcat(share, "%"), NULL);
        below = best, below_at = at;
    }
    if (rows == 0)
        dro__table_row(out, "none", "", "", NULL);
    dro__table_close(out);
}

/* Whether names fit above a column, or are numbers, some of which can be left out. */
static bool plain_names(const matrix *m)
{
    char digits[16];
    bool small = true, numbers = true;
    for (int32_t k = 0; k < m->classes->count; k++) {
        const char *name = dro__class_name(m->report, m->classes->count, k, digits);
        small = small && dro__utf8_count(name) <= 3;
        numbers =
            numbers && *name && name[strspn(name, "+-.0123456789")] == '\0' && strlen(name) <= 8;
    }
    return m->per > 1 || numbers || (small && m->rows <= WRITTEN_MOST);
}

static void add_matrix(dro__figures *f, matrix *m, int32_t method)
{
    char id[80], title[DRO__TITLE];
    dro__figure_id(f->report, "confusion", method, id);
    dro__figure *figure =
        dro__figure_add(f, DRO__SECTION_CONFUSION, id, dro__figure_title(f, "Confusion", method));
    if (!figure)
        return;
    figure->method = method;
    m->per = (m->classes->count + CELLS_MOST - 1) / CELLS_MOST;
    m->rows = (m->classes->count + m->per - 1) / m->per;
    m->left = 112;
    m->cell = fmin(56, (DRO__PLOT_WIDTH - 8 - m->left) / m->rows);
    m->top = dro__figure_top(f, &figure->plot, 0) + 34;
    m->names = plain_names(m);
    dro__plot_about(&figure->plot,
                    "%s of each class (row), the share predicted as each class (column), in "
                    "percent%s.",
                    dro__report_title(f->report, "Of the test examples", title),
                    m->per > 1 ? "; neighbours are put together" : "");
    draw_names(m, &figure->plot);
    for (int32_t i = 0; i < m->rows; i++)
        for (int32_t j = 0; j < m->rows; j++)
            draw_cell(m, &figure->plot, i, j);
    figure->plot.height = m->top + m->rows * m->cell + 8;
    tabulate_matrix(m, &figure->table);
}

void dro__figures_confusion(dro__figures *f)
{
    for (int32_t method = 0;
         method < f->report->method_count && method < DRO__MAPS_MOST && !f->failed; method++) {
        dro__class_table classes;
        const double *counts;
        matrix m = {.report = f->report, .classes = &classes};
        bool fine = dro__class_table_of(f->report, method, &classes);
        if (fine && classes.confusion) {
            fine = dro__class_table_order(f->report, classes.count, &m.order, &counts);
            if (fine)
                add_matrix(f, &m, method);
            dro__free(m.order);
        }
        dro__class_table_free(&classes);
        f->failed = f->failed || !fine;
    }
}
