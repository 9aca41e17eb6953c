/* What is told of a data set beside its figures: the images that skip_bad passed over, and remarks on what
 * was read otherwise than its owner may think. */
#include "data.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static bool add(dro_context *ctx, dro__notes *notes, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = dro__alloc(size, 1);
    if (!copy || dro__grow(ctx, (void **)&notes->texts, &notes->room, notes->count + 1,
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

/* ---- images that were passed over ---- */

/* A text names its file, so the same text is the same image, seen by another loader. */
static bool noted(const dro_data *d, const char *text)
{
    for (size_t k = 0; k < d->skipped.count; k++)
        if (strcmp(d->skipped.texts[k], text) == 0)
            return true;
    return false;
}

/* Readers of several loaders come here. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool tolerate(dro_data *d, const char *text)
{
    int64_t most;
    if (noted(d, text))
        return true;
    if (dro__option_integer(d, "skip_bad", 0, 0, INT32_MAX, &most) != DRO_OK ||
        (int64_t)d->skipped.count >= most)
        return false;
    return add(d->ctx, &d->skipped, text);
}

bool dro__tolerate(dro_data *d, const char *text)
{
    pthread_mutex_lock(&lock);
    bool result = tolerate(d, text);
    pthread_mutex_unlock(&lock);
    return result;
}

int32_t dro__skipped(const dro_data *d)
{
    pthread_mutex_lock(&lock);
    int32_t count = (int32_t)d->skipped.count;
    pthread_mutex_unlock(&lock);
    return count;
}

const char *dro_data_note(const dro_data *d, int index)
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
    for (unsigned char *p = (unsigned char *)text; *p;
         p++) /* as in an error: nothing that steers */
        if (*p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0))
            *p = '?';
    return add(d->ctx, &d->remarks, text)
               ? DRO_OK
               : dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for a remark");
}

const char *dro_data_remark(const dro_data *d, int index)
{
    return d && index >= 0 && (size_t)index < d->remarks.count ? d->remarks.texts[index] : NULL;
}
