/* Examples as batches of a network.
 *
 * Training images come from the loader by position; a draw that is not one of its batches (the
 * methods with big batches) is put together from several. Rows are drawn by the library and copied
 * together by id, sparse ones made dense. Evaluation walks a split in order. */
#include "train.h"

#include <string.h>

static size_t image_size(const dro__task *t)
{
    return (size_t)t->shape.channels * (size_t)t->shape.height * (size_t)t->shape.width;
}

static dro_status make_ring(dro__task *t, size_t capacity, size_t size)
{
    t->ring_capacity = capacity;
    for (int k = 0; k < DRO__RING; k++) {
        t->ring[k] = dro__alloc(capacity * size, sizeof(float));
        t->ring_ids[k] = dro__alloc(capacity, sizeof(int64_t));
        t->ring_labels[k] = dro__alloc(capacity, sizeof(int32_t));
        t->ring_groups[k] = dro__alloc(capacity, sizeof(int32_t));
        t->ring_targets[k] = dro__alloc(capacity, sizeof(float));
        t->ring_cuts[k] = dro__alloc(capacity, sizeof(dro_cut));
        t->ring_mixes[k] = dro__alloc(capacity, sizeof(dro_mix));
        if (!t->ring[k] || !t->ring_ids[k] || !t->ring_labels[k] || !t->ring_groups[k] ||
            !t->ring_targets[k] || !t->ring_cuts[k] || !t->ring_mixes[k])
            return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for batches of %zu", capacity);
    }
    return DRO_OK;
}

/* ---- rows ---- */

static void copy_row(const dro__task *t, const dro_examples *e, int64_t id, float *to)
{
    if (e->x) {
        memcpy(to, e->x + (size_t)id * t->width, t->width * sizeof *to);
        return;
    }
    memset(to, 0, t->width * sizeof *to);
    for (int64_t k = e->starts[id]; k < e->starts[id + 1]; k++)
        to[e->columns[k]] = e->values[k];
}

void dro__feed_rows(const dro__task *t, const dro_batch *batch, const dro__row_buffer *to,
                    dro_net_batch *out)
{
    const dro_examples *e = &t->feed[DRO_TRAIN].examples;
    for (size_t i = 0; i < batch->count; i++) {
        copy_row(t, e, batch->ids[i], to->x + i * t->width);
        if (e->labels)
            to->labels[i] = e->labels[batch->ids[i]];
        if (e->targets)
            to->targets[i] = e->targets[batch->ids[i]];
    }
    *out = (dro_net_batch){.count = batch->count,
                           .x = to->x,
                           .labels = e->labels ? to->labels : NULL,
                           .targets = e->labels ? NULL : to->targets};
}

static dro_status fetch_rows(void *user, const dro_batch *batch, dro_net_batch *out)
{
    dro__task *t = user;
    unsigned slot = t->turn++ % DRO__RING;
    if (batch->count > t->ring_capacity)
        return dro__fail(t->ctx, DRO_ERR_RANGE, "a batch of %zu rows: expected at most %zu",
                         batch->count, t->ring_capacity);
    dro__row_buffer to = {t->ring[slot], t->ring_targets[slot], t->ring_labels[slot]};
    dro__feed_rows(t, batch, &to, out);
    return DRO_OK;
}

static dro_status row_labels(void *user, const int64_t *ids, size_t count, int32_t *classes,
                             int32_t *groups)
{
    const dro__task *t = user;
    const dro_examples *e = &t->feed[DRO_TRAIN].examples;
    for (size_t i = 0; classes && e->labels && i < count; i++)
        classes[i] = e->labels[ids[i]];
    for (size_t i = 0; groups && e->groups && i < count; i++)
        groups[i] = e->groups[ids[i]];
    return DRO_OK;
}

/* ---- images ---- */

enum { STREAM_CLASS = 0x636c6173, STREAM_IMAGE = 0x696d6167 };

/* The handle of a batch is one record for each example, so that a part of the batch is a part of
 * them. */
static void hand_out(dro__task *t, unsigned slot, const dro_loaded *from, dro_batch *batch)
{
    batch->count = from->count;
    batch->ids = from->ids;
    batch->classes = from->labels;
    batch->groups = from->groups;
    const float *pixels = from->device_pixels ? from->device_pixels : from->pixels;
    size_t image = image_size(t);
    for (size_t i = 0; i < from->count; i++)
        t->ring_images[slot][i] =
            (dro__fed_image){pixels ? pixels + i * image : NULL, from->cuts ? from->cuts + i : NULL,
                             from->mixes ? from->mixes + i : NULL};
    batch->handle = t->ring_images[slot];
}

/* `count` examples of a loaded batch, from `first` on, to place `at` of a slot of the ring. */
static void copy_part(dro__task *t, unsigned slot, size_t at, const dro_loaded *from, size_t first,
                      size_t count)
{
    size_t image = image_size(t);
    if (from->cuts)
        memcpy(t->ring_cuts[slot] + at, from->cuts + first, count * sizeof(dro_cut));
    else
        memcpy(t->ring[slot] + at * image, from->pixels + first * image,
               count * image * sizeof(float));
    if (from->mixes)
        memcpy(t->ring_mixes[slot] + at, from->mixes + first, count * sizeof(dro_mix));
    memcpy(t->ring_ids[slot] + at, from->ids + first, count * sizeof(int64_t));
    if (from->labels)
        memcpy(t->ring_labels[slot] + at, from->labels + first, count * sizeof(int32_t));
    if (from->groups)
        memcpy(t->ring_groups[slot] + at, from->groups + first, count * sizeof(int32_t));
}

static void hand_out_slot(dro__task *t, unsigned slot, size_t count, const dro_loaded *like,
                          dro_batch *batch)
{
    dro_loaded whole = {.count = count,
                        .ids = t->ring_ids[slot],
                        .labels = like->labels ? t->ring_labels[slot] : NULL,
                        .groups = like->groups ? t->ring_groups[slot] : NULL,
                        .pixels = like->cuts ? NULL : t->ring[slot],
                        .cuts = like->cuts ? t->ring_cuts[slot] : NULL,
                        .mixes = like->mixes ? t->ring_mixes[slot] : NULL};
    hand_out(t, slot, &whole, batch);
}

/* Created with the first batch that is not one of the loader's; most methods draw none. */
static dro_status check_capacity(dro__task *t, size_t count)
{
    if (count > t->ring_capacity)
        return dro__fail(t->ctx, DRO_ERR_RANGE, "a batch of %zu images: expected at most %zu",
                         count, t->ring_capacity);
    if (t->ring_ids[0])
        return DRO_OK;
    return make_ring(t, t->ring_capacity,
                     t->feed[DRO_TRAIN].device_images.bytes ? 0 : image_size(t));
}

void dro__feed_cut(void *user, const dro_batch *batch, size_t first, size_t count, dro_batch *part)
{
    (void)user;
    *part = *batch;
    part->count = count;
    part->position += batch->position == UINT64_MAX ? 0 : first;
    part->ids += first;
    part->classes += batch->classes ? first : 0;
    part->groups += batch->groups ? first : 0;
    part->handle = (dro__fed_image *)batch->handle + first;
}

static dro_status load_images(dro__task *t, uint64_t position, size_t count, dro_batch *batch)
{
    dro_loaded loaded = {0};
    size_t at = (size_t)(position % t->batch);
    if (at == t->slice_first && count == t->slice_end - t->slice_first) {
        dro_batch whole = {.position = position - at};
        DRO_TRY(dro_loader_draw(t->loader, position - at, &loaded));
        hand_out(t, t->turn++ % DRO__RING, &loaded, &whole);
        dro__feed_cut(t, &whole, at, count, batch);
        return DRO_OK;
    }
    DRO_TRY(check_capacity(t, count));
    unsigned slot = t->turn++ % DRO__RING;
    for (size_t done = 0; done < count;) {
        size_t first = (size_t)((position + done) % t->batch), some = t->batch - first;
        some = some < count - done ? some : count - done;
        DRO_TRY(dro_loader_complete(t->loader, position + done - first, &loaded));
        copy_part(t, slot, done, &loaded, first, some);
        done += some;
    }
    hand_out_slot(t, slot, count, &loaded, batch);
    return DRO_OK;
}

static dro_status load_given(dro__task *t, const int64_t *ids, size_t count, dro_batch *batch)
{
    dro_loaded loaded = {0};
    if (count <= t->batch) {
        DRO_TRY(dro_loader_gather(t->loader, ids, count, &loaded));
        hand_out(t, t->turn++ % DRO__RING, &loaded, batch);
        return DRO_OK;
    }
    DRO_TRY(check_capacity(t, count));
    unsigned slot = t->turn++ % DRO__RING;
    for (size_t done = 0; done < count;) {
        size_t some = t->batch < count - done ? t->batch : count - done;
        DRO_TRY(dro_loader_gather(t->loader, ids + done, some, &loaded));
        copy_part(t, slot, done, &loaded, 0, some);
        done += some;
    }
    hand_out_slot(t, slot, count, &loaded, batch);
    return DRO_OK;
}

/* stage2: a class at random, and an image of it, as it is in the file; both by the position. */
static dro_status load_balanced(dro__task *t, uint64_t position, size_t count, dro_batch *batch)
{
    DRO_TRY(check_capacity(t, count));
    int64_t *ids = t->ring_ids[t->turn % DRO__RING];
    for (size_t i = 0; i < count; i++) {
        uint64_t seed = t->balanced.seed, at = position + i;
        const int64_t *first =
            t->balanced.first +
            t->balanced.classes[dro__random_below(seed, STREAM_CLASS, at, t->balanced.count)];
        uint64_t size = (uint64_t)(first[1] - first[0]);
        int64_t place = (int64_t)dro__random_below(seed, STREAM_IMAGE, at, size);
        ids[i] = t->balanced.images[first[0] + place];
    }
    return load_given(t, ids, count, batch);
}

dro_status dro__feed_balance(dro__task *t, uint64_t seed)
{
    const int32_t *labels = t->feed[DRO_TRAIN].examples.labels;
    size_t n = (size_t)t->info.examples[DRO_TRAIN], classes = (size_t)t->info.classes;
    t->balanced.seed = seed;
    t->balanced.images = dro__alloc(n, sizeof *t->balanced.images);
    t->balanced.first = dro__alloc(classes + 2, sizeof *t->balanced.first);
    t->balanced.classes = dro__alloc(classes, sizeof *t->balanced.classes);
    if (!t->balanced.images || !t->balanced.first || !t->balanced.classes)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for the classes of %zu images", n);
    int64_t *next = t->balanced.first + 1; /* becomes `first` when every image has its place */
    for (size_t i = 0; i < n; i++)
        next[labels[i] + 1]++;
    for (size_t c = 0; c < classes; c++) {
        if (next[c + 1])
            t->balanced.classes[t->balanced.count++] = (int32_t)c;
        next[c + 1] += next[c];
    }
    for (size_t i = 0; i < n; i++)
        t->balanced.images[next[labels[i]]++] = (int64_t)i;
    return DRO_OK;
}

static dro_status draw_images(void *user, uint64_t position, size_t count, dro_batch *batch)
{
    const dro__task *t = user;
    if (t->balanced.images && position >= t->balanced.from)
        return dro__task_remember(user, load_balanced(user, position, count, batch));
    return dro__task_remember(user, load_images(user, position, count, batch));
}

static dro_status gather_images(void *user, const int64_t *ids, size_t count, dro_batch *batch)
{
    return dro__task_remember(user, load_given(user, ids, count, batch));
}

static dro_status fetch_images(void *user, const dro_batch *batch, dro_net_batch *out)
{
    const dro__task *t = user;
    const dro__fed_image *first = batch->handle;
    *out = (dro_net_batch){.count = batch->count,
                           .labels = batch->classes,
                           .x = first->x,
                           .ids = batch->ids,
                           .cuts = first->cut,
                           .mixes = first->mix};
    if (t->feed[DRO_TRAIN].device_images.bytes)
        out->images = &t->feed[DRO_TRAIN].device_images;
    return DRO_OK;
}

/* ---- training ---- */

static bool is_one_of(const char *word, size_t length, const char *const *list)
{
    for (; *list; list++)
        if (strlen(*list) == length && memcmp(word, *list, length) == 0)
            return true;
    return false;
}

/* auto: no flips for characters, nor for data that is not known to allow them: a mirrored sign is a
 * different sign. */
static unsigned usual_ways(const dro__task *t)
{
    static const char *const characters[] = {"synth", "idx", NULL};
    static const char *const photographs[] = {"cifar10", "cifar100", "stl10", "inat", NULL};
    const char *format = t->info.format;
    if (is_one_of(format, strlen(format), characters))
        return 0;
    return is_one_of(format, strlen(format), photographs) ? DRO__AUGMENT_ALL : DRO_AUGMENT_CROP;
}

const dro__augment_word dro__augment_words[] = {
    {"crop", DRO_AUGMENT_CROP},
    {"flip", DRO_AUGMENT_FLIP},
    {"jitter", DRO_AUGMENT_JITTER},
    {"randaugment", DRO_AUGMENT_RANDAUGMENT},
    {"autoaugment", DRO_AUGMENT_AUTOAUGMENT},
    {"cutout", DRO_AUGMENT_CUTOUT},
    {"all", DRO__AUGMENT_ALL}, /* from here on, more or less than one way */
    {"yes", DRO__AUGMENT_ALL},
    {"none", 0},
    {"no", 0},
    {NULL, 0}};

dro_status dro__augment_ways(const dro__task *t, const char *text, unsigned *ways)
{
    *ways = 0;
    for (const char *p = text; p && *p;) {
        size_t length = strcspn(p, ",+");
        const dro__augment_word *w = dro__augment_words;
        bool usual = length == 4 && memcmp(p, "auto", 4) == 0;
        while (!usual && w->word && (strlen(w->word) != length || memcmp(w->word, p, length) != 0))
            w++;
        if (!w->word)
            return dro__fail(t->ctx, DRO_ERR_RANGE,
                             "augment=%.60s: expected auto, none, all, or some of crop,flip,jitter,"
                             "randaugment,autoaugment,cutout",
                             text);
        *ways |= usual ? usual_ways(t) : w->ways;
        p += length + (p[length] != '\0');
    }
    if (t->info.kind != DRO_DATA_FILES) /* jitter is for large images */
        *ways &= ~(unsigned)DRO_AUGMENT_JITTER;
    return DRO_OK;
}

static dro_status open_loader(dro__task *t, const dro__model_choice *c)
{
    dro_loader_options o = dro_loader_options_default();
    o.batch = t->batch;
    o.seed = c->seed;
    DRO_TRY(dro__augment_ways(t, c->augment, &o.ways));
    o.augment = o.ways != 0;
    if (c->settings) {
        const dro__train_settings *set = &c->settings->set;
        o.operations = (int32_t)set->randaugment_operations;
        o.magnitude = (int32_t)set->randaugment_magnitude;
        o.cutout = (int32_t)set->cutout_size;
        o.mixup = set->mixup;
        o.cutmix = set->cutmix;
    }
    o.size = t->info.kind == DRO_DATA_FILES ? t->shape.height : 0;
    o.cuts = t->feed[DRO_TRAIN].device_images.bytes != NULL;
    o.threads = o.cuts ? 1 : 0;
    o.sent = true;
    dro__spread_slice(c->comm, c->shards, t->batch, &t->slice_first, &t->slice_end);
    o.first = t->slice_first;
    o.end = t->slice_end;
    return dro_loader_create(t->data, DRO_TRAIN, &o, &t->loader);
}

dro_status dro__feed_training(dro__task *t, const dro__model_choice *c, dro_net_source *source)
{
    const dro_data_info *i = &t->info;
    *source = (dro_net_source){.size = sizeof(dro_net_source),
                               .user = t,
                               .n = i->examples[DRO_TRAIN],
                               .classes = i->classes,
                               .groups = i->groups,
                               .class_share = i->classes ? t->class_share : NULL,
                               .group_share = i->groups ? t->group_share : NULL};
    if (t->images) {
        source->fetch = fetch_images;
        source->draw = draw_images;
        source->gather = gather_images;
        source->images = t->feed[DRO_TRAIN].device_images.bytes != NULL;
        t->ring_capacity = 4 * t->batch; /* big batches, in pieces */
        for (int k = 0; k < DRO__RING; k++) {
            t->ring_images[k] = dro__alloc(t->ring_capacity, sizeof(dro__fed_image));
            if (!t->ring_images[k])
                return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for a batch of images");
        }
        return open_loader(t, c);
    }
    source->fetch = fetch_rows;
    source->labels = row_labels;
    size_t most = t->batch > 4096 ? t->batch : 4096;
    bool exact =
        c->settings && dro__optimizer_exact(c->settings->set.optimizer); /* none is drawn */
    return make_ring(t, exact ? 1 : most, t->width);
}

/* ---- evaluation ---- */

enum { SAMPLE = 10000 };

/* A sample of the training set, unless all of it is requested or each step passes over all of it
 * anyway. */
static bool takes_sample(const dro__model_choice *c)
{
    return c->train && c->settings && c->settings->set.eval_train == DRO__EVAL_SAMPLE &&
           !dro__optimizer_exact(c->settings->set.optimizer);
}

dro_status dro__feed_split(dro__task *t, dro_split split, const dro__model_choice *c)
{
    dro__split_feed *feed = &t->feed[split];
    int64_t n = t->info.examples[split];
    DRO_TRY(dro_data_examples(t->data, split, &feed->examples));
    size_t image = image_size(t), most = t->images ? ((size_t)1 << 22) / (image ? image : 1) : 256;
    most = most < 16 ? 16 : most > 256 ? 256 : most;
    feed->batch = n > 0 && (uint64_t)n < most ? (size_t)n : most;
    feed->count = split == DRO_TRAIN && takes_sample(c) && n > SAMPLE ? SAMPLE : n;
    bool copied = t->info.kind == DRO_DATA_SPARSE || feed->count < n;
    if (!t->images && !t->sparse && copied && !t->rows) {
        t->rows = dro__alloc(DRO__EVAL_MOST * t->width, sizeof(float));
        if (!t->rows)
            return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for a batch of rows");
    }
    if (!t->images || n <= 0)
        return DRO_OK;
    unsigned ways = 0;
    if (split == DRO_TRAIN && c->train)
        DRO_TRY(dro__augment_ways(t, c->augment, &ways));
    if (dro__resident_take(
            t, split, ways & DRO__AUGMENT_POLICIES)) { /* a call costs more than its images there */
        feed->batch = n < DRO__EVAL_MOST ? (size_t)n : DRO__EVAL_MOST;
        return DRO_OK;
    }
    dro_loader_options o = dro_loader_options_default();
    o.batch = feed->batch;
    o.seed = c->seed;
    o.shuffle = feed->count < n;
    o.augment = false;
    o.ahead = t->ctx->threads;
    o.size = t->info.kind == DRO_DATA_FILES ? t->shape.height : 0;
    return dro_loader_create(t->data, split, &o, &feed->loader);
}

static dro_status image_batch(dro__task *t, dro__range range, dro_net_batch *batch)
{
    dro__split_feed *feed = &t->feed[range.split];
    int64_t first = range.first;
    size_t count = range.count;
    dro_loaded loaded;
    dro__walk walk = dro__task_walk(t, range);
    if (feed->device_images.bytes) {
        *batch = (dro_net_batch){
            .count = count, .images = &feed->device_images, .ids = walk.ids, .labels = walk.labels};
        return DRO_OK;
    }
    if (count == feed->batch && first % (int64_t)count == 0) {
        bool all = feed->count == feed->examples.count;
        feed->turn += first == feed->start; /* whole walks, so that what was read ahead is used */
        uint64_t walked = all ? (feed->turn - 1) * dro_loader_epoch(feed->loader) : 0;
        DRO_TRY(dro_loader_draw(feed->loader, walked + (uint64_t)first, &loaded));
    } else {
        DRO_TRY(dro_loader_gather(feed->loader, walk.ids, count, &loaded));
    }
    for (size_t i = 0; i < count; i++)
        t->unread[i] = loaded.ids[i] != walk.ids[i]; /* replaced by another example */
    *batch = (dro_net_batch){.count = count, .x = loaded.pixels, .labels = loaded.labels};
    return DRO_OK;
}

dro_status dro__feed_batch(dro__task *t, dro__range range, dro_net_batch *batch)
{
    const dro__split_feed *feed = &t->feed[range.split];
    int64_t first = range.first;
    size_t count = range.count;
    const dro_examples *e = &feed->examples;
    if (count > feed->batch || first < 0 || first + (int64_t)count > feed->count)
        return dro__fail(t->ctx, DRO_ERR_RANGE, "examples %lld to %lld: there are %lld",
                         (long long)first, (long long)first + (long long)count,
                         (long long)feed->count);
    if (t->images)
        return image_batch(t, range, batch);
    dro__walk walk = dro__task_walk(t, range);
    *batch = (dro_net_batch){.count = count, .labels = walk.labels, .targets = walk.targets};
    if (e->x && feed->count == e->count) {
        batch->x = e->x + (size_t)first * t->width;
        return DRO_OK;
    }
    for (size_t i = 0; i < count; i++)
        copy_row(t, e, walk.ids[i], t->rows + i * t->width);
    batch->x = t->rows;
    return DRO_OK;
}

void dro__feed_close(dro__task *t)
{
    dro_loader_destroy(t->loader);
    for (int s = 0; s < DRO_SPLITS; s++)
        dro_loader_destroy(t->feed[s].loader);
    for (int k = 0; k < DRO__RING; k++) {
        dro__free(t->ring[k]);
        dro__free(t->ring_ids[k]);
        dro__free(t->ring_labels[k]);
        dro__free(t->ring_groups[k]);
        dro__free(t->ring_targets[k]);
        dro__free(t->ring_cuts[k]);
        dro__free(t->ring_mixes[k]);
        dro__free(t->ring_images[k]);
    }
    dro__free(t->balanced.images);
    dro__free(t->balanced.first);
    dro__free(t->balanced.classes);
    dro__resident_close(t);
    dro__free(t->rows);
}
