/* What a data set reports about its input: the images that skip_bad skipped, and remarks on legal
 * but surprising input. */
#include "image.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool add(dro_context *ctx, dro__notes *notes, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = dro__alloc(size, 1);
    if (!copy || dro__grow(ctx, (void **)&notes->texts, &notes->capacity, notes->count + 1,
                           sizeof *notes->texts) != DRO_OK) {
        dro__free(copy);
        return false;
    }
    memcpy(copy, text, size);
    notes->texts[notes->count++] = copy;
    return true;
}

void dro__notes_free(dro__notes *notes)
{
    for (size_t k = 0; k < notes->count; k++)
        dro__free(notes->texts[k]);
    dro__free(notes->texts);
    *notes = (dro__notes){0};
}

/* ---- images that were skipped ---- */

/* A text names its file, so a note that begins with it is of the same image, seen by another
 * loader. */
static bool noted(const dro_data *d, const char *text)
{
    for (size_t k = 0; k < d->skipped.count; k++)
        if (strncmp(d->skipped.texts[k], text, strlen(text)) == 0)
            return true;
    return false;
}

static const char *class_name(const dro_data *d, int32_t k, char number[16])
{
    snprintf(number, 16, "%d", k);
    return d->class_names ? d->class_names[k] : number;
}

/* Image i is lost to its class: if it was the last one, `text` says so. */
static bool lose(dro_data *d, const dro__table *t, int64_t i, char *text, size_t size)
{
    static const char *const sets[DRO_SPLITS] = {"training", "test", "held-out"};
    char number[16];
    int split = (int)(t - d->split);
    text[0] = '\0';
    if (!t->labels || !d->counts[split])
        return true;
    if (!d->lost[split])
        d->lost[split] = dro__alloc((size_t)d->classes, sizeof *d->lost[split]);
    if (!d->lost[split])
        return false;
    int32_t k = t->labels[i];
    if (++d->lost[split][k] < d->counts[split][k])
        return true;
    snprintf(text, size, "; no image of class '%.60s' is left in the %s set",
             class_name(d, k, number), sets[split]);
    if (split == DRO_TRAIN)
        d->emptied = k + 1;
    return true;
}

/* Readers of several loaders come here. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* True when skip_bad still tolerates image i of a table, whose error is `text`. */
static bool tolerate(dro_data *d, const dro__table *t, int64_t i, const char *text)
{
    char note[DRO__ERROR_SIZE + 160], last[160];
    int64_t most;
    if (noted(d, text))
        return true;
    if (dro__option_integer(d, "skip_bad", 0, 0, INT32_MAX, &most) != DRO_OK ||
        (int64_t)d->skipped.count >= most || !lose(d, t, i, last, sizeof last))
        return false;
    snprintf(note, sizeof note, "%s%s", text, last);
    return add(d->ctx, &d->skipped, note);
}

dro_status dro__pass_over(dro_data *d, dro_context *ctx, const dro__table *t, int64_t i,
                          dro_status status)
{
    char why[DRO__ERROR_SIZE];
    const char *given = dro__option(d, "skip_bad");
    if (status != DRO_ERR_DATA && status != DRO_ERR_FILE)
        return status;
    pthread_mutex_lock(&lock);
    bool tolerated = tolerate(d, t, i, ctx->error);
    pthread_mutex_unlock(&lock);
    if (tolerated)
        return DRO_OK;
    memcpy(why, ctx->error, sizeof why);
    return dro__fail(ctx, status, "%.440s (skip_bad=%.12s %s)", why, given ? given : "N",
                     given ? "tolerates no more" : "tolerates it");
}

dro_status dro__trainable(const dro_data *d)
{
    char number[16];
    int32_t gone = d->emptied - 1;
    if (d->untrained)
        return dro__fail(d->ctx, DRO_ERR_DATA, "%s", d->untrained);
    if (gone < 0)
        return DRO_OK;
    return dro__fail(d->ctx, DRO_ERR_DATA,
                     "%s: class '%.60s': none of its training images could be read: expected at "
                     "least one (repair them, or remove the class)",
                     dro__path_tail(d->spec.path), class_name(d, gone, number));
}

int32_t dro__skipped(const dro_data *d)
{
    pthread_mutex_lock(&lock);
    int32_t count = (int32_t)d->skipped.count;
    pthread_mutex_unlock(&lock);
    return count;
}

const char *dro_data_skipped(const dro_data *d, int index)
{
    if (!d || index < 0)
        return NULL;
    pthread_mutex_lock(&lock);
    const char *note = (size_t)index < d->skipped.count ? d->skipped.texts[index] : NULL;
    pthread_mutex_unlock(&lock);
    return note;
}

/* ---- remarks: made while the data is opened ---- */

dro_status dro__remark(dro_data *d, const char *format, ...)
{
    char text[DRO__ERROR_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    dro__utf8_escape(text);
    return add(d->ctx, &d->remarks, text)
               ? DRO_OK
               : dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for a remark");
}

const char *dro_data_remark(const dro_data *d, int index)
{
    return d && index >= 0 && (size_t)index < d->remarks.count ? d->remarks.texts[index] : NULL;
}
