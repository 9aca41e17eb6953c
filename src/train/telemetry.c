/* A record of a run as an event of TensorBoard: the optimiser's figures, those of each split, the classes' and
 * groups' accuracies and weights, and the confusion matrix as a picture. */
#include "telemetry.h"
#include "plot.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    NAMED_MOST = 100, /* classes or groups that get curves of their own */
    TAG = 160,
    SIDE = 320, /* pixels of the matrix, about */
    CELL_MOST = 32
};

/* Values under way; tags are in one block, so that nothing is allocated for each. */
typedef struct list {
    dro__summary *values;
    char (*tags)[TAG];
    size_t count, room;
} list;

static void add(list *l, double value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What is not a number does not apply here, or is not known yet. */
static void add(list *l, double value, const char *format, ...)
{
    if (isnan(value) || l->count == l->room)
        return;
    va_list words;
    va_start(words, format);
    vsnprintf(l->tags[l->count], TAG, format, words);
    va_end(words);
    l->values[l->count] = (dro__summary){.tag = l->tags[l->count], .value = value};
    l->count++;
}

static void add_optimizer(list *l, const dro_info *i)
{
    add(l, i->eta, "optimizer/eta");
    add(l, i->lambda, "optimizer/lambda");
    add(l, i->a, "optimizer/a");
    add(l, i->log_u, "optimizer/log_u");
    add(l, i->loss, "optimizer/loss");
    add(l, i->objective, "optimizer/objective");
    add(l, i->largest_weight, "optimizer/largest_weight");
    add(l, i->effective, "optimizer/effective");
    add(l, (double)i->caps, "optimizer/caps");
    add(l, (double)i->floors, "optimizer/floors");
    add(l, (double)i->fresh_starts, "optimizer/fresh_starts");
    add(l, (double)i->examples, "optimizer/examples");
}

static void add_named(list *l, const char *heading, const char *const *names, const double *values,
                      int32_t count)
{
    for (int32_t k = 0; values && k < count && count <= NAMED_MOST; k++)
        add(l, values[k], "%s/%.100s", heading, names[k]);
}

static void add_split(list *l, const char *split, const dro_metrics *m, const dro_data_info *info)
{
    char heading[48];
    add(l, m->objective, "%s/objective", split);
    add(l, m->loss, "%s/loss", split);
    add(l, m->accuracy, "%s/accuracy", split);
    add(l, m->balanced_accuracy, "%s/balanced_accuracy", split);
    add(l, m->worst_class_accuracy, "%s/worst_class_accuracy", split);
    add(l, m->worst_group_accuracy, "%s/worst_group_accuracy", split);
    add(l, m->macro_f1, "%s/macro_f1", split);
    add(l, m->auroc, "%s/auroc", split);
    add(l, m->calibration_error, "%s/calibration_error", split);
    snprintf(heading, sizeof heading, "%s_class_accuracy", split);
    add_named(l, heading, info->class_names, m->per_class, m->classes);
    snprintf(heading, sizeof heading, "%s_group_accuracy", split);
    add_named(l, heading, info->group_names, m->per_group, m->groups);
}

/* ---- the confusion matrix ---- */

/* Row the truth, column the prediction; the darker, the larger the share of its row. */
static void draw_cell(const dro__raster *r, int cell, int32_t row, int32_t column, double share)
{
    static const double light[] = {255, 255, 255}, dark[] = {8, 48, 107};
    for (int y = row * cell; y < (row + 1) * cell; y++)
        for (int x = column * cell; x < (column + 1) * cell; x++)
            for (int c = 0; c < 3; c++)
                r->pixels[((size_t)y * (size_t)r->width + (size_t)x) * 3 + (size_t)c] =
                    (uint8_t)(light[c] + share * (dark[c] - light[c]));
}

static bool draw_confusion(const dro_metrics *m, dro__buffer *png, dro__summary *summary)
{
    int cell = SIDE / m->classes > CELL_MOST ? CELL_MOST : SIDE / m->classes;
    int side = m->classes * cell;
    dro__raster r = {.width = side, .height = side};
    r.pixels = dro__alloc((size_t)side * (size_t)side, 3);
    for (int32_t i = 0; r.pixels && i < m->classes; i++)
        for (int32_t j = 0; j < m->classes; j++)
            draw_cell(&r, cell, i, j,
                      m->counts[i] ? (double)m->confusion[i * m->classes + j] / (double)m->counts[i]
                                   : 0);
    bool drawn = r.pixels && dro__raster_png(&r, png);
    *summary = (dro__summary){.png = png, .width = side, .height = side};
    dro__free(r.pixels);
    return drawn;
}

static void add_confusion(list *l, const char *split, const dro_metrics *m, dro__buffer *png)
{
    if (m->classes < 1 || m->classes > NAMED_MOST || l->count == l->room)
        return;
    if (!draw_confusion(m, png, &l->values[l->count])) /* built without libpng */
        return;
    snprintf(l->tags[l->count], TAG, "%s/confusion", split);
    l->values[l->count].tag = l->tags[l->count];
    l->count++;
}

/* ---- the event ---- */

void dro__telemetry(dro__buffer *out, const dro_train_record *r, const dro_data_info *info,
                    double now)
{
    static const char *const names[] = {"train", "test", "holdout", "window"};
    const bool has[] = {r->has_train, r->has_test, r->has_holdout, r->has_window};
    const dro_metrics *splits[] = {&r->train, &r->test, &r->holdout, &r->window};
    dro__buffer pictures[4] = {{0}};
    list l = {.room = 5 * 2 * (NAMED_MOST + 16)};
    l.values = dro__alloc(l.room, sizeof *l.values);
    l.tags = dro__alloc(l.room, sizeof *l.tags);
    if (l.values && l.tags) {
        add_optimizer(&l, &r->info);
        add(&l, r->epoch, "optimizer/epoch");
        add_named(&l, "class_weight", info->class_names, r->class_weights, info->classes);
        add_named(&l, "group_weight", info->group_names, r->group_weights, info->groups);
        for (int s = 0; s < 4; s++)
            if (has[s]) {
                add_split(&l, names[s], splits[s], info);
                add_confusion(&l, names[s], splits[s], &pictures[s]);
            }
        dro__events_add(out, (int64_t)r->info.step, now, l.values, l.count);
    } else {
        out->failed = true;
    }
    for (int s = 0; s < 4; s++)
        dro__buffer_free(&pictures[s]);
    dro__free(l.values);
    dro__free(l.tags);
}
