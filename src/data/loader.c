/* Batches ahead of time: reader threads fill a ring of slots (dro/loader.h).
 *
 * Batch number k lives in slot k mod size. `head` is the batch last asked for; readers fill head ..
 * head + ahead. The ring has three slots more, so a delivered batch is still whole when two more
 * have been drawn. A request elsewhere waits for the readers to finish and sends them there. */
#include "augment.h"
#include "backend.h"
#include "image.h"
#include "image_files.h"
#include "mix.h"

#include <dro/loader.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    STREAM_ORDER = 0x6c64,
    STREAM_AUGMENT = 0x6c75,
    STREAM_WEIGHT = 0x6c77,
    STREAM_MIX = 0x6c78,
    GATHER_SLOTS = 3
};
#define SENT_MOST ((size_t)4 << 30) /* bytes that all batches may take of the backend's memory */

typedef enum slot_state { EMPTY, FILLING, READY } slot_state;

typedef struct slot {
    slot_state state;
    uint64_t batch; /* its number */
    bool complete;  /* not only options.first .. options.end - 1 */
    dro_status status;
    char error[DRO__ERROR_SIZE];
    int64_t *ids;
    int32_t *labels, *groups;
    float *pixels, *device_pixels; /* the latter in the backend's memory, or NULL */
    dro_cut *cuts;
    dro_mix *mixes; /* NULL: examples are not mixed */
    float *second;  /* one image, of a partner that is not in the slot */
} slot;

struct dro_loader {
    dro_data *data;
    const dro__table *table;
    dro_loader_options options;
    int32_t channels, height, width;
    size_t image; /* floats in one image, 0 for rows */
    dro__normal normal;
    uint64_t batches;    /* per epoch */
    double *weight_sums; /* (n + 1) where shuffled examples have weights, or NULL */
    slot *slots, gathered[GATHER_SLOTS];
    size_t slot_count, gather_next;
    uint64_t head, next; /* batch numbers: last asked for, next to fill */
    int filling, running;
    bool stop;
    pthread_t *threads;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    double waited;
};

dro_loader_options dro_loader_options_default(void)
{
    return (dro_loader_options){.struct_size = sizeof(dro_loader_options),
                                .batch = 128,
                                .seed = 1,
                                .shuffle = true,
                                .operations = 2,
                                .magnitude = 9};
}

/* ---- one batch ---- */

/* The example at a place of an epoch. */
static int64_t example_at(const dro_loader *l, uint64_t epoch, uint64_t place)
{
    uint64_t n = (uint64_t)l->table->n;
    if (!l->options.shuffle)
        return (int64_t)(place % n);
    uint64_t seed = l->options.seed,
             id = dro__permute(n, dro__random(seed, STREAM_ORDER, epoch), place);
    if (!l->weight_sums)
        return (int64_t)id;
    double start = dro__random_unit(seed, STREAM_WEIGHT, epoch); /* as in opt/helpers.c */
    return dro__weights_pick(l->weight_sums, (int64_t)n, (double)id + start);
}

int64_t dro__loader_example(const dro_loader *l, uint64_t place)
{
    return example_at(l, 0, place);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static dro_status read_image(dro_loader *l, dro_context *ctx, int64_t id, dro__image *image)
{
    const char *path = l->table->text + l->table->places[id];
    char *bytes = NULL;
    size_t size;
    uint64_t fetched;
    dro_status status = dro__files_read(ctx, path, &bytes, &size, &fetched);
    if (status == DRO_OK)
        status = dro__image_decode(ctx, path, bytes, size, 3, image);
    dro__free(bytes);
    return dro__files_name_error(l->data, ctx, l->table, id, status);
}

static dro_status load_file(dro_loader *l, dro_context *ctx, int64_t id,
                            dro__augment_random *random, float *out)
{
    dro__image image = {0};
    dro_status status = read_image(l, ctx, id, &image);
    if (status == DRO_OK)
        status = dro__augment_large(ctx, &l->normal, &image, l->options.size, random, out);
    dro__image_free(&image);
    return status;
}

dro_status dro_loader_bare(dro_loader *l, double seconds, double *examples_per_s)
{
    if (!l || !examples_per_s)
        return DRO_ERR_ARGUMENT;
    dro__forget(l->data->ctx);
    dro_context *ctx = l->data->ctx;
    if (l->data->kind != DRO_DATA_FILES)
        return dro__fail(ctx, DRO_ERR_UNSUPPORTED, "only images in files are decoded");
    size_t side = (size_t)l->options.size;
    uint8_t *out = dro__alloc(side * side, 3);
    dro_status status = out ? DRO_OK : dro__fail(ctx, DRO_ERR_MEMORY, "no memory for an image");
    double start = now(), spent = 0;
    int64_t count = 0;
    for (int64_t k = 0; status == DRO_OK && (spent = now() - start) < seconds; k++) {
        dro__image image = {0};
        status = read_image(l, ctx, k % l->table->n, &image);
        if (status == DRO_OK)
            status = dro__image_resize(ctx, &image, NULL, l->options.size, l->options.size, out);
        count += status == DRO_OK;
        status = dro__pass_over(l->data, ctx, l->table, k % l->table->n, status);
        dro__image_free(&image);
    }
    dro__free(out);
    *examples_per_s = (double)count / fmax(spent, 1e-9);
    return status;
}

static dro_status load_image(dro_loader *l, dro_context *ctx, int64_t id,
                             dro__augment_random *random, float *out)
{
    const dro_data *d = l->data;
    if (d->kind == DRO_DATA_FILES)
        return load_file(l, ctx, id, random, out);
    dro_cut cut = dro__cut_of(random, d->height, d->width);
    return dro__augment_small(ctx, &l->normal, d, l->table->pixels + (size_t)id * l->image, &cut,
                              out);
}

/* Where an example goes; cut and pixels may be NULL. */
typedef struct spot {
    int64_t *id;
    int32_t *label, *group;
    dro_cut *cut;
    float *pixels;
} spot;

static spot spot_of(const dro_loader *l, const slot *s, size_t i)
{
    return (spot){&s->ids[i], &s->labels[i], &s->groups[i], s->cuts ? &s->cuts[i] : NULL,
                  l->image ? s->pixels + i * l->image : NULL};
}

/* A bad image that skip_bad tolerates is replaced by the next example, so the batch stays whole. */
static dro_status fill_example(dro_loader *l, dro_context *ctx, const spot *to, int64_t id,
                               dro__augment_random *random)
{
    const dro__table *t = l->table;
    dro_status status = DRO_OK;
    for (int64_t tries = 0; tries < t->n; tries++, id = (id + 1) % t->n) {
        dro__augment_random again = random ? *random : (dro__augment_random){0};
        *to->id = id;
        *to->label = t->labels ? t->labels[id] : 0;
        *to->group = t->groups ? t->groups[id] : 0;
        if (to->cut)
            *to->cut = dro__cut_of(random ? &again : NULL, l->height, l->width);
        status = to->pixels ? load_image(l, ctx, id, random ? &again : NULL, to->pixels) : DRO_OK;
        if (status == DRO_OK)
            return DRO_OK;
        DRO_TRY(dro__pass_over(l->data, ctx, t, id, status));
    }
    return dro__fail(ctx, DRO_ERR_DATA, "%s: none of %lld images could be read",
                     dro__path_tail(l->data->spec.path), (long long)t->n);
}

/* Called by the thread that filled the slot, so that a reader copies while the GPU computes. */
static dro_status copy_to_device(const dro_loader *l, dro_context *ctx, const slot *s, size_t count)
{
    return s->device_pixels
               ? dro__copy_in(ctx, s->device_pixels, s->pixels, count * l->image * sizeof(float))
               : DRO_OK;
}

/* An eighth of the shorter side, from 1 to 4. */
static int32_t reach_of(const dro_data *d)
{
    int32_t side = (d->height < d->width ? d->height : d->width) / 8;
    return side < 1 ? 1 : side > 4 ? 4 : side;
}

/* Example i of a batch, before it is mixed. */
static dro_status fill_one(dro_loader *l, dro_context *ctx, const slot *s, size_t i, const spot *to)
{
    uint64_t epoch = s->batch / l->batches, first = s->batch % l->batches * l->options.batch;
    dro__augment_random random = {.seed = dro__random(l->options.seed, STREAM_AUGMENT, epoch),
                                  .stream = first + i,
                                  .ways = l->options.ways,
                                  .reach = reach_of(l->data),
                                  .operations = l->options.operations,
                                  .magnitude = l->options.magnitude,
                                  .cutout = l->options.cutout};
    return fill_example(l, ctx, to, example_at(l, epoch, first + i),
                        l->options.augment ? &random : NULL);
}

/* Mixes examples from .. end - 1. A partner that is not among them, or was mixed before, is read
 * again. */
static dro_status mix_range(dro_loader *l, dro_context *ctx, slot *s, size_t from, size_t end)
{
    size_t batch = l->options.batch;
    dro__mix_shape shape = {(size_t)l->channels, (size_t)l->height, (size_t)l->width};
    dro__mix_random random = {.seed =
                                  dro__random(l->options.seed, STREAM_MIX, s->batch / l->batches),
                              .stream = s->batch % l->batches};
    dro_mix like = dro__mix_draw(&random, l->options.mixup, l->options.cutmix, l->height, l->width);
    for (size_t i = from; i < end; i++) {
        size_t j = dro__mix_partner(i, batch);
        bool pair = j >= from && j < end && dro__mix_partner(j, batch) == i;
        int32_t group;
        s->mixes[i] = like;
        spot second = {&s->mixes[i].id, &s->mixes[i].label, &group,
                       s->cuts ? &s->mixes[i].cut : NULL, s->second};
        if (pair) {
            s->mixes[i].id = s->ids[j];
            s->mixes[i].label = s->labels[j];
            if (s->cuts)
                s->mixes[i].cut = s->cuts[j];
        } else {
            DRO_TRY(fill_one(l, ctx, s, j, &second));
        }
        if (s->pixels && (!pair || i < j))
            dro__mix_pixels(&like, shape, s->pixels + i * l->image,
                            pair ? s->pixels + j * l->image : s->second, pair);
    }
    return DRO_OK;
}

/* Examples from .. end - 1 of a batch. */
static dro_status fill_range(dro_loader *l, dro_context *ctx, slot *s, size_t from, size_t end)
{
    for (size_t i = from; i < end; i++) {
        spot to = spot_of(l, s, i);
        DRO_TRY(fill_one(l, ctx, s, i, &to));
    }
    return s->mixes ? mix_range(l, ctx, s, from, end) : DRO_OK;
}

static void fill_batch(dro_loader *l, dro_context *ctx, slot *s)
{
    s->complete = l->options.end - l->options.first == l->options.batch;
    s->status = fill_range(l, ctx, s, l->options.first, l->options.end);
    if (s->status == DRO_OK)
        s->status = copy_to_device(l, ctx, s, l->options.batch);
    if (s->status != DRO_OK)
        memcpy(s->error, ctx->error, sizeof s->error);
}

/* ---- the readers ---- */

static void *reader(void *arg)
{
    dro_loader *l = arg;
    const dro_context *all = l->data->ctx;
    /* A context of its own for error texts, as another thread may be writing to the shared one. */
    dro_context ctx = {.backend = all->backend, .threads = all->threads, .pool = all->pool};
    pthread_mutex_lock(&l->lock);
    while (!l->stop) {
        if (l->next > l->head + (uint64_t)l->options.ahead) {
            pthread_cond_wait(&l->work, &l->lock);
            continue;
        }
        uint64_t batch = l->next++;
        slot *s = &l->slots[batch % l->slot_count];
        s->state = FILLING;
        s->batch = batch;
        l->filling++;
        pthread_mutex_unlock(&l->lock);
        fill_batch(l, &ctx, s);
        pthread_mutex_lock(&l->lock);
        s->state = READY;
        l->filling--;
        pthread_cond_broadcast(&l->done);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

static void deliver(const dro_loader *l, const slot *s, uint64_t position, size_t count,
                    dro_loaded *batch)
{
    *batch = (dro_loaded){.position = position,
                          .count = count,
                          .ids = s->ids,
                          .labels = l->table->labels ? s->labels : NULL,
                          .groups = l->table->groups ? s->groups : NULL,
                          .pixels = s->pixels,
                          .device_pixels = s->device_pixels,
                          .cuts = s->cuts,
                          .mixes = position == UINT64_MAX ? NULL : s->mixes};
}

dro_status dro_loader_draw(dro_loader *l, uint64_t position, dro_loaded *batch)
{
    if (!l || !batch)
        return DRO_ERR_ARGUMENT;
    dro__forget(l->data->ctx);
    if (position % l->options.batch)
        return dro__fail(l->data->ctx, DRO_ERR_ARGUMENT,
                         "position %llu is not a multiple of the batch size %zu",
                         (unsigned long long)position, l->options.batch);
    uint64_t k = position / l->options.batch;
    slot *s = &l->slots[k % l->slot_count];
    pthread_mutex_lock(&l->lock);
    bool coming = s->state != EMPTY && s->batch == k;
    if (!coming && l->next != k) { /* somewhere else: let the readers finish, then begin there */
        l->head = 0;
        l->next = UINT64_MAX;
        while (l->filling)
            pthread_cond_wait(&l->done, &l->lock);
        for (size_t i = 0; i < l->slot_count; i++)
            l->slots[i].state = EMPTY;
        l->next = k;
    }
    l->head = k;
    pthread_cond_broadcast(&l->work);
    double start = now();
    while (!(s->state == READY && s->batch == k))
        pthread_cond_wait(&l->done, &l->lock);
    l->waited += now() - start;
    dro_status status = s->status;
    if (status == DRO_OK) {
        deliver(l, s, position, l->options.batch, batch);
    } else {
        dro__fail(l->data->ctx, status, "%s", s->error);
        s->state = EMPTY; /* asked for again, it is tried again */
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

dro_status dro_loader_complete(dro_loader *l, uint64_t position, dro_loaded *batch)
{
    DRO_TRY(dro_loader_draw(l, position, batch));
    slot *s = &l->slots[position / l->options.batch % l->slot_count];
    if (s->complete)
        return DRO_OK;
    dro_context *ctx = l->data->ctx;
    DRO_TRY(fill_range(l, ctx, s, 0, l->options.first));
    DRO_TRY(fill_range(l, ctx, s, l->options.end, l->options.batch));
    DRO_TRY(copy_to_device(l, ctx, s, l->options.batch));
    s->complete = true;
    return DRO_OK;
}

dro_status dro_loader_gather(dro_loader *l, const int64_t *ids, size_t count, dro_loaded *batch)
{
    if (!l || !ids || !batch)
        return DRO_ERR_ARGUMENT;
    dro__forget(l->data->ctx);
    if (count > l->options.batch)
        return dro__fail(l->data->ctx, DRO_ERR_RANGE, "gather of %zu: at most the batch size %zu",
                         count, l->options.batch);
    slot *s = &l->gathered[l->gather_next++ % GATHER_SLOTS];
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= l->table->n)
            return dro__fail(l->data->ctx, DRO_ERR_RANGE, "gather: id %lld: expected 0 to %lld",
                             (long long)ids[i], (long long)l->table->n - 1);
        spot to = spot_of(l, s, i);
        DRO_TRY(fill_example(l, l->data->ctx, &to, ids[i], NULL));
    }
    DRO_TRY(copy_to_device(l, l->data->ctx, s, count));
    deliver(l, s, UINT64_MAX, count, batch);
    return DRO_OK;
}

/* ---- life ---- */

static float *make_pixels(const dro_loader *l, size_t count)
{
    const dro__backend *be = l->data->ctx->backend;
    return be->host_alloc ? be->host_alloc(count * sizeof(float))
                          : dro__alloc(count, sizeof(float));
}

static void free_pixels(const dro_loader *l, float *pixels)
{
    const dro__backend *be = l->data->ctx->backend;
    if (be->host_alloc)
        be->host_free(pixels);
    else
        dro__free(pixels);
}

static slot *slot_at(dro_loader *l, size_t k)
{
    return k < l->slot_count ? &l->slots[k] : &l->gathered[k - l->slot_count];
}

static void free_device(const dro_loader *l, slot *s)
{
    if (s->device_pixels)
        l->data->ctx->backend->free(s->device_pixels);
    s->device_pixels = NULL;
}

static bool mixes(const dro_loader *l)
{
    return l->options.mixup > 0 || l->options.cutmix > 0;
}

static bool make_slot(const dro_loader *l, slot *s)
{
    size_t batch = l->options.batch;
    s->ids = dro__alloc(batch, sizeof *s->ids);
    s->labels = dro__alloc(batch, sizeof *s->labels);
    s->groups = dro__alloc(batch, sizeof *s->groups);
    s->pixels = l->image ? make_pixels(l, batch * l->image) : NULL;
    s->cuts = l->options.cuts ? dro__alloc(batch, sizeof *s->cuts) : NULL;
    s->mixes = mixes(l) ? dro__alloc(batch, sizeof *s->mixes) : NULL;
    s->second = mixes(l) && l->image ? dro__alloc(l->image, sizeof(float)) : NULL;
    return s->ids && s->labels && s->groups && (s->pixels || !l->image) &&
           (s->cuts || !l->options.cuts) && (s->mixes || !mixes(l)) &&
           (s->second || !mixes(l) || !l->image);
}

/* All batches in the backend's memory or, where memory is short, none of them. */
static void make_device(dro_loader *l)
{
    const dro__backend *be = l->data->ctx->backend;
    size_t count = l->slot_count + GATHER_SLOTS, batch = l->options.batch * l->image;
    bool complete =
        batch && l->options.sent && be->host_alloc && batch <= SENT_MOST / sizeof(float) / count;
    for (size_t k = 0; complete && k < count; k++) {
        slot *s = slot_at(l, k);
        s->device_pixels = be->alloc(batch, sizeof(float));
        complete = s->device_pixels != NULL;
    }
    for (size_t k = 0; !complete && k < count; k++)
        free_device(l, slot_at(l, k));
}

static void free_slot(const dro_loader *l, slot *s)
{
    dro__free(s->ids);
    dro__free(s->labels);
    dro__free(s->groups);
    free_pixels(l, s->pixels);
    free_device(l, s);
    dro__free(s->cuts);
    dro__free(s->mixes);
    dro__free(s->second);
}

enum { SIDE_MOST = 4096 }; /* of images that operations and cutout take */

static dro_status check_ways(const dro_loader *l)
{
    const dro_loader_options *o = &l->options;
    dro_context *ctx = l->data->ctx;
    unsigned both = DRO_AUGMENT_RANDAUGMENT | DRO_AUGMENT_AUTOAUGMENT;
    if ((o->ways & both) == both)
        return dro__fail(ctx, DRO_ERR_RANGE, "augment: choose randaugment or autoaugment");
    if (o->ways & DRO_AUGMENT_RANDAUGMENT && (o->operations < 1 || o->operations > DRO_OPERATIONS ||
                                              o->magnitude < 0 || o->magnitude > 30))
        return dro__fail(ctx, DRO_ERR_RANGE,
                         "randaugment: %d operations of magnitude %d: expected 1 to %d operations "
                         "and a magnitude of 0 to 30",
                         o->operations, o->magnitude, DRO_OPERATIONS);
    if (o->cutout < 0 || o->cutout > SIDE_MOST)
        return dro__fail(ctx, DRO_ERR_RANGE, "cutout: a square of %d: expected 0 to %d", o->cutout,
                         SIDE_MOST);
    if ((o->ways & (both | DRO_AUGMENT_CUTOUT) || mixes(l)) &&
        (l->height > SIDE_MOST || l->width > SIDE_MOST))
        return dro__fail(ctx, DRO_ERR_UNSUPPORTED,
                         "images of %d x %d: policies, cutout and mixing take sides up to %d",
                         l->height, l->width, SIDE_MOST);
    if (!(o->mixup >= 0 && o->mixup <= 1e6 && o->cutmix >= 0 && o->cutmix <= 1e6))
        return dro__fail(ctx, DRO_ERR_RANGE, "mixup %g, cutmix %g: expected 0 to 1e6", o->mixup,
                         o->cutmix);
    return DRO_OK;
}

static dro_status prepare(dro_loader *l)
{
    dro_data *d = l->data;
    bool images = d->kind == DRO_DATA_PIXELS || d->kind == DRO_DATA_FILES;
    if (l->options.batch == 0 || (int64_t)l->options.batch > l->table->n)
        return dro__fail(d->ctx, DRO_ERR_RANGE,
                         "batch %zu: expected 1 to %lld, the examples there are", l->options.batch,
                         (long long)l->table->n);
    l->batches = (uint64_t)l->table->n / l->options.batch;
    l->options.end = l->options.end ? l->options.end : l->options.batch;
    if (l->options.first > l->options.end || l->options.end > l->options.batch)
        return dro__fail(d->ctx, DRO_ERR_RANGE, "examples %zu to %zu of a batch of %zu",
                         l->options.first, l->options.end, l->options.batch);
    l->options.size = l->options.size ? l->options.size : 224;
    if (l->options.size < 1 || l->options.size > SIDE_MOST)
        return dro__fail(d->ctx, DRO_ERR_RANGE, "size %d: expected 1 to %d", l->options.size,
                         SIDE_MOST);
    l->channels = d->kind == DRO_DATA_FILES ? 3 : d->channels;
    l->height = d->kind == DRO_DATA_FILES ? l->options.size : d->height;
    l->width = d->kind == DRO_DATA_FILES ? l->options.size : d->width;
    if (!l->options.ways)
        l->options.ways = DRO_AUGMENT_CROP | DRO_AUGMENT_FLIP | DRO_AUGMENT_JITTER;
    DRO_TRY(check_ways(l));
    if (mixes(l) && (!images || !l->table->labels))
        return dro__fail(d->ctx, DRO_ERR_UNSUPPORTED,
                         "mixup and cutmix: expected images with classes, not %s",
                         images ? "real-valued targets" : "rows");
    if (l->options.cuts && d->kind != DRO_DATA_PIXELS)
        return dro__fail(d->ctx, DRO_ERR_UNSUPPORTED, "cuts: only small images have them");
    l->image =
        images && !l->options.cuts ? (size_t)l->channels * (size_t)l->height * (size_t)l->width : 0;
    if (images)
        l->normal = dro__normal_of(d);
    if (l->options.threads <= 0)
        l->options.threads = d->ctx->threads;
    if (l->options.ahead <= 0)
        l->options.ahead = 2 * l->options.threads;
    l->slot_count = (size_t)l->options.ahead + GATHER_SLOTS + 1;
    l->slots = dro__alloc(l->slot_count, sizeof *l->slots);
    bool complete = l->slots != NULL;
    for (size_t k = 0; complete && k < l->slot_count + GATHER_SLOTS; k++)
        complete = make_slot(l, slot_at(l, k));
    if (complete)
        make_device(l);
    return complete ? DRO_OK
                    : dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %zu batches of %zu",
                                l->slot_count, l->options.batch);
}

static dro_status prepare_weights(dro_loader *l)
{
    const dro__table *t = l->table;
    if (!t->weights || !l->options.shuffle)
        return DRO_OK;
    l->weight_sums = dro__alloc((size_t)t->n + 1, sizeof(double));
    if (!l->weight_sums)
        return dro__fail(l->data->ctx, DRO_ERR_MEMORY, "no memory for %lld example weights",
                         (long long)t->n);
    return dro__weights_sum(t->weights, t->n, l->weight_sums)
               ? DRO_OK
               : dro__fail(l->data->ctx, DRO_ERR_DATA, "no example has a weight above 0");
}

dro_status dro_loader_create(dro_data *data, dro_split split, const dro_loader_options *options,
                             dro_loader **loader)
{
    if (!data || !options || !loader || split < 0 || split >= DRO_SPLITS)
        return DRO_ERR_ARGUMENT;
    dro__forget(data->ctx);
    *loader = NULL;
    dro_loader_options own;
    DRO_TRY(dro__take_struct(data->ctx, "dro_loader_options", options, &own, sizeof own));
    dro_loader *l = dro__alloc(1, sizeof *l);
    if (!l)
        return dro__fail(data->ctx, DRO_ERR_MEMORY, "no memory for a loader");
    l->data = data;
    l->table = &data->split[split];
    l->options = own;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->done, NULL);
    dro_status status = prepare(l);
    if (status == DRO_OK)
        status = prepare_weights(l);
    if (status == DRO_OK)
        l->threads = dro__alloc((size_t)l->options.threads, sizeof *l->threads);
    for (int k = 0; l->threads && k < l->options.threads; k++)
        if (pthread_create(&l->threads[l->running], NULL, reader, l) == 0)
            l->running++;
    if (status == DRO_OK && l->running == 0)
        status = dro__fail(data->ctx, DRO_ERR_MEMORY, "no reader thread could be started");
    if (status != DRO_OK) {
        dro_loader_destroy(l);
        return status;
    }
    *loader = l;
    return DRO_OK;
}

void dro_loader_destroy(dro_loader *l)
{
    if (!l)
        return;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int k = 0; k < l->running; k++)
        pthread_join(l->threads[k], NULL);
    for (size_t k = 0; l->slots && k < l->slot_count + GATHER_SLOTS; k++)
        free_slot(l, slot_at(l, k));
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->done);
    dro__free(l->slots);
    dro__free(l->threads);
    dro__free(l->weight_sums);
    dro__free(l);
}

uint64_t dro_loader_epoch(const dro_loader *l)
{
    return l ? l->batches * l->options.batch : 0;
}

void dro_loader_shape(const dro_loader *l, int32_t *channels, int32_t *height, int32_t *width)
{
    if (channels)
        *channels = l && l->image ? l->channels : 0;
    if (height)
        *height = l && l->image ? l->height : 0;
    if (width)
        *width = l && l->image ? l->width : 0;
}

double dro_loader_waited(const dro_loader *l)
{
    return l ? l->waited : 0;
}
