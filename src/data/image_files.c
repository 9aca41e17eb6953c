/* Tables of paths to images, and loading them into memory when they are to be small (size=N). */
#include "image_files.h"
#include "image.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { LOADED_SIDE_MAX = 4096 };

dro_status dro__files_add(dro_context *ctx, dro__files *files, const char *name, size_t length,
                          int64_t record, int32_t label)
{
    dro__table *t = files->table;
    const char *dir = files->dir;
    size_t n = (size_t)t->n, above = strlen(dir);
    bool slash = above > 0 && dir[above - 1] != '/';
    DRO_TRY(dro__grow(ctx, (void **)&t->text, &files->text_capacity,
                      t->text_size + above + length + 2, 1));
    DRO_TRY(dro__grow(ctx, (void **)&t->places, &files->place_capacity, n + 1, sizeof *t->places));
    DRO_TRY(dro__grow(ctx, (void **)&t->labels, &files->label_capacity, n + 1, sizeof *t->labels));
    DRO_TRY(
        dro__grow(ctx, (void **)&t->records, &files->record_capacity, n + 1, sizeof *t->records));
    char *at = t->text + t->text_size;
    memcpy(at, dir, above);
    if (slash)
        at[above] = '/';
    memcpy(at + above + slash, name, length);
    at[above + slash + length] = '\0';
    t->places[n] = (int64_t)t->text_size;
    t->labels[n] = label;
    t->records[n] = record;
    t->text_size += above + slash + length + 1;
    t->n++;
    return DRO_OK;
}

const char *dro__path_refused(const char *path, size_t length)
{
    if (length == 0)
        return "is empty";
    if (path[0] == '/')
        return "is absolute, not below the root";
    if (memchr(path, '\0', length))
        return "has a zero byte in it";
    for (size_t at = 0; at < length;) {
        const char *slash = memchr(path + at, '/', length - at);
        size_t end = slash ? (size_t)(slash - path) : length;
        if (end - at == 2 && memcmp(path + at, "..", 2) == 0)
            return "has '..' and may leave the root";
        at = end + 1;
    }
    return NULL;
}

dro_status dro__files_root(const dro_data *d, const char **root)
{
    struct stat about;
    *root = dro__option(d, "root");
    if (!*root || !**root)
        return dro__fail(d->ctx, DRO_ERR_ARGUMENT,
                         "%s needs root=DIR, the folder that its paths start from",
                         d->format->name);
    if (stat(*root, &about) != 0 || !S_ISDIR(about.st_mode))
        return dro__fail(d->ctx, DRO_ERR_FILE,
                         "root=%s: there is no such folder: expected the one that the paths start "
                         "from",
                         dro__path_tail(*root));
    return DRO_OK;
}

dro_status dro__files_name_error(const dro_data *d, dro_context *ctx, const dro__table *t,
                                 int64_t i, dro_status status)
{
    char why[DRO__ERROR_SIZE];
    const char *file = t == &d->split[DRO_TEST] ? dro__option(d, "test") : d->spec.path;
    if (!d->format->record || !file || (status != DRO_ERR_DATA && status != DRO_ERR_FILE))
        return status;
    snprintf(why, sizeof why, "%s", ctx->error);
    size_t length = strlen(file);
    return dro__fail(ctx, status, "%.400s (%s %lld of %s)", why, d->format->record,
                     (long long)t->records[i] + 1, length > 80 ? file + length - 80 : file);
}

/* ---- loading ---- */

typedef struct loader {
    const dro_data *data;
    dro__table *table;
    signed char *statuses; /* (n) */
    atomic_ullong bytes;
} loader;

/* Interleaved to planes. */
static void split_planes(const uint8_t *in, size_t count, size_t channels, uint8_t *out)
{
    for (size_t c = 0; c < channels; c++)
        for (size_t i = 0; i < count; i++)
            out[c * count + i] = in[i * channels + c];
}

/* The largest square in the middle, resized. */
static dro_status fit(dro_context *ctx, const dro__image *image, int32_t side, uint8_t *out)
{
    int32_t least = image->width < image->height ? image->width : image->height;
    double left = (image->width - least) / 2.0, top = (image->height - least) / 2.0;
    const dro__image_box box = {left, top, left + least, top + least};
    size_t count = (size_t)side * (size_t)side, channels = (size_t)image->channels;
    if (channels == 1)
        return dro__image_resize(ctx, image, &box, side, side, out);
    uint8_t *mixed = dro__alloc(count, channels);
    if (!mixed)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory to resize an image");
    dro_status status = dro__image_resize(ctx, image, &box, side, side, mixed);
    if (status == DRO_OK)
        split_planes(mixed, count, channels, out);
    dro__free(mixed);
    return status;
}

dro_status dro__files_read(dro_context *ctx, const char *path, char **bytes, size_t *size,
                           uint64_t *fetched)
{
    dro__input *input;
    struct stat about;
    /* A pipe or a device would keep its reader waiting, or never end. */
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode))
        return dro__fail(ctx, DRO_ERR_FILE, "%s: is not a regular file: expected an image",
                         dro__path_tail(path));
    DRO_TRY(dro__input_open(ctx, path, &input));
    dro_status status = dro__input_all(input, DRO__IMAGE_FILE_MAX, bytes, size);
    *fetched = dro__input_fetched(input);
    dro__input_close(input);
    return status;
}

static dro_status load_file(loader *l, dro_context *ctx, size_t i)
{
    const dro_data *d = l->data;
    const char *path = l->table->text + l->table->places[i];
    size_t size, image_bytes = (size_t)d->channels * (size_t)d->height * (size_t)d->width;
    uint64_t fetched;
    char *bytes;
    dro__image image;
    DRO_TRY(dro__files_read(ctx, path, &bytes, &size, &fetched));
    atomic_fetch_add(&l->bytes, fetched);
    dro_status status = dro__image_decode(ctx, path, bytes, size, d->channels, &image);
    dro__free(bytes);
    if (status != DRO_OK)
        return status;
    status = fit(ctx, &image, d->width, l->table->pixels + i * image_bytes);
    dro__image_free(&image);
    return status;
}

static dro_status load_one(loader *l, dro_context *ctx, size_t i)
{
    return dro__files_name_error(l->data, ctx, l->table, (int64_t)i, load_file(l, ctx, i));
}

/* On many threads: the text of an error is dropped here, and found again if it is needed. */
static void load_body(void *task, size_t i)
{
    loader *l = task;
    dro_context scratch = {.threads = 1};
    l->statuses[i] = (signed char)load_one(l, &scratch, i);
}

/* Keeps what could be read. The error of the first image that is one too many is that image's
 * own. */
static dro_status drop_bad(loader *l, dro_data *d)
{
    int64_t n = l->table->n, kept = 0, *keep = dro__alloc((size_t)n, sizeof *keep);
    dro_status status = DRO_OK;
    if (!keep)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %lld examples", (long long)n);
    for (int64_t i = 0; i < n && status == DRO_OK; i++) {
        if (l->statuses[i] != DRO_OK) /* once more, for its text */
            status = load_one(l, d->ctx, (size_t)i);
        if (status == DRO_OK)
            keep[kept++] = i;
        else
            status = dro__pass_over(d, d->ctx, l->table, i, status);
    }
    if (status == DRO_OK && kept == 0)
        status = dro__fail(d->ctx, DRO_ERR_DATA, "%s: none of %lld images could be read",
                           dro__path_tail(d->spec.path), (long long)n);
    if (status == DRO_OK && kept < n)
        dro__table_keep(d, l->table, keep, kept);
    dro__free(keep);
    return status;
}

static dro_status load_table(dro_data *d, dro__table *t)
{
    size_t image_bytes = (size_t)d->channels * (size_t)d->height * (size_t)d->width,
           n = (size_t)t->n;
    uint64_t bytes;
    if (n == 0)
        return DRO_OK;
    if (__builtin_mul_overflow((uint64_t)n, (uint64_t)image_bytes, &bytes) ||
        bytes > dro__machine_memory() / 2)
        return dro__fail(d->ctx, DRO_ERR_MEMORY,
                         "%s: %zu images of %d x %d take more than half of the available memory: "
                         "leave out size= to read them from their files",
                         dro__path_tail(d->spec.path), n, d->width, d->height);
    loader l = {.data = d, .table = t, .statuses = dro__alloc(n, 1)};
    t->pixels = dro__alloc(n, image_bytes);
    dro_status status;
    if (!t->pixels || !l.statuses)
        status = dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %zu images", n);
    else
        status = dro__count_split(d, (int)(t - d->split)); /* for what each class loses */
    if (status == DRO_OK) {
        dro__pool_run(d->ctx->pool, n, load_body, &l);
        d->bytes_read += l.bytes;
        status = drop_bad(&l, d);
    }
    dro__free(l.statuses);
    return status;
}

dro_status dro__files_open(dro_data *d)
{
    int64_t channels, side, tolerated;
    DRO_TRY(dro__option_integer(d, "channels", 3, 1, 3, &channels));
    if (channels == 2)
        return dro__fail(d->ctx, DRO_ERR_RANGE, "channels=2: expected 1 (greyscale) or 3 (colour)");
    DRO_TRY(dro__option_integer(d, "size", 0, 1, LOADED_SIDE_MAX, &side));
    DRO_TRY(dro__option_integer(d, "skip_bad", 0, 0, INT32_MAX, &tolerated));
    d->channels = (int32_t)channels;
    d->kind = side ? DRO_DATA_PIXELS : DRO_DATA_FILES;
    d->width = d->height = (int32_t)side;
    if (!side)
        return DRO_OK;
    for (int s = 0; s < DRO_SPLITS; s++)
        DRO_TRY(load_table(d, &d->split[s]));
    return DRO_OK;
}

int32_t dro__files_side(dro_data *d)
{
    enum { SAMPLE = 15 };
    const dro__table *t = &d->split[DRO_TRAIN];
    int32_t sides[SAMPLE], count = 0;
    for (int64_t k = 0; k < SAMPLE && k < t->n; k++) {
        const char *path = t->text + t->places[k * t->n / (t->n < SAMPLE ? t->n : SAMPLE)];
        dro_context scratch = {.threads = 1};
        dro__image image;
        uint64_t fetched;
        size_t size;
        char *bytes;
        if (dro__files_read(&scratch, path, &bytes, &size, &fetched) != DRO_OK)
            continue;
        if (dro__image_decode(&scratch, path, bytes, size, 1, &image) == DRO_OK) {
            int32_t side = image.width < image.height ? image.width : image.height, at = count++;
            for (; at > 0 && sides[at - 1] > side; at--)
                sides[at] = sides[at - 1];
            sides[at] = side;
            dro__image_free(&image);
        }
        dro__free(bytes);
    }
    return count ? sides[count / 2] : 0;
}
