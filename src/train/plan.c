/* The one line that describes a run: its model, its objective and optimiser, how the data is
 * prepared, and how long it should take. */
#include "train.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void add(char *out, size_t size, const char *format, ...)
{
    size_t at = strlen(out);
    va_list list;
    va_start(list, format);
    vsnprintf(out + at, size - at, format, list);
    va_end(list);
}

static void add_objective(const dro_train *t, char *out, size_t size)
{
    dro__robust of = dro__objective_of(t);
    char loss[64], name[40];
    dro__loss_text(&t->task, loss, sizeof loss);
    dro__objective_print(&of.other, name, sizeof name);
    add(out, size, "%s minimises ", t->opt->cls->name);
    if (of.other.kind != DRO__OBJECTIVE_MEAN)
        add(out, size, "%s over %s, loss %s", name, dro__level_text(&of), loss);
    else if (isinf(of.lambda))
        add(out, size, "the mean loss, %s", loss);
    else
        add(out, size, "F with lambda %.4g over %s, loss %s", of.lambda, dro__level_text(&of),
            loss);
}

static void add_augmentation(const dro_train *t, char *out, size_t size)
{
    unsigned ways = 0;
    const char *between = " (augment=";
    if (dro__augment_ways(&t->task, t->set.augment, &ways) != DRO_OK || !ways) {
        add(out, size, "not augmented");
        return;
    }
    add(out, size, "augmented");
    for (const dro__augment_word *w = dro__augment_words; ways; ways &= ~(w++)->ways)
        if (ways & w->ways) {
            add(out, size, "%s%s", between, w->word);
            between = ",";
        }
    add(out, size, ")");
}

/* Pixels from 0 to 1 become (pixel - mean) / deviation. */
static void add_data(const dro_train *t, char *out, size_t size)
{
    const dro__normal *n = &t->task.normal;
    size_t channels = t->task.shape.channels;
    if (t->stream) {
        add(out, size, "columns scaled by the first rows");
        return;
    }
    if (!t->task.images) {
        const char *scale = dro__option(t->task.data, "scale");
        bool none = scale && strcmp(scale, "none") == 0;
        add(out, size, "columns %s", none ? "as they are" : "scaled (scale=");
        add(out, size, "%s%s", none ? "" : scale ? scale : "robust", none ? "" : ")");
        return;
    }
    add(out, size, "images ");
    add_augmentation(t, out, size);
    if (t->set.mixup > 0)
        add(out, size, ", mixed (mixup=%.4g)", t->set.mixup);
    if (t->set.cutmix > 0)
        add(out, size, ", mixed (cutmix=%.4g)", t->set.cutmix);
    add(out, size, ", normalised with mean");
    for (size_t k = 0; k < channels && k < 3; k++)
        add(out, size, " %.3f", -(double)n->shift[k] / (double)n->scale[k] / 255);
    add(out, size, ", deviation");
    for (size_t k = 0; k < channels && k < 3; k++)
        add(out, size, " %.3f", 1 / (double)n->scale[k] / 255);
}

static void add_time(const dro_train *t, double left, char *out, size_t size)
{
    double epochs = dro__epoch_of(t, t->steps);
    if (t->opt->cls->exact)
        add(out, size, "at most %.0f passes over %lld examples", epochs,
            (long long)t->task.info.examples[DRO_TRAIN]);
    else if (t->steps)
        add(out, size, "%.4g epoch%s of %lld examples", epochs, epochs == 1 ? "" : "s",
            (long long)t->task.info.examples[DRO_TRAIN]);
    else
        add(out, size, "to the end of the stream");
    if (left >= 5400)
        add(out, size, ", about %.1f h", left / 3600);
    else if (left >= 90)
        add(out, size, ", about %.0f min", left / 60);
    else if (left >= 0)
        add(out, size, ", about %.0f s", ceil(left));
    if (t->set.max_time > 0)
        add(out, size, " (max_time %.0f s)", t->set.max_time);
}

void dro__report_plan(const dro_train *t, double left)
{
    char text[DRO__ERROR_SIZE] = "";
    if (!t->watch.plan || dro_comm_rank(t->comm) > 0)
        return;
    add(text, sizeof text, "%s, %zu parameters; ", t->task.model, t->task.dim);
    add_objective(t, text, sizeof text);
    add(text, sizeof text, "; ");
    add_data(t, text, sizeof text);
    add(text, sizeof text, "; ");
    add_time(t, left, text, sizeof text);
    t->watch.plan(t->watch.user, text);
}
