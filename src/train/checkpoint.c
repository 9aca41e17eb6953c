/* Checkpoints: everything that a run needs to be resumed, in one file with a checksum.
 *
 * A file is written a block at a time, from the vectors themselves: there is no second copy of the
 * state. At the start of a run the state is left out, as the settings determine it.
 *
 * last.ckpt is written to a temporary file, fsynced, then the old one is renamed to
 * previous.ckpt and the new one to last.ckpt. Killed between the two, a run finds previous.ckpt. */
#include "train.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct header {
    char magic[8];
    uint64_t version, size; /* of the whole file */
    uint64_t settings, machine, state, more, dim, statistics, has_best;
} header;

static const char MAGIC[8] = "drockpt";

enum { VERSION = 6 }; /* 5: another checksum */

static void walk(dro__archive *ar, dro__saved *s, const header *h)
{
    DRO__ARCHIVE(ar, s->progress);
    dro__archive_bytes(ar, s->settings, h->settings);
    dro__archive_bytes(ar, s->machine, h->machine);
    dro__archive_bytes(ar, s->statistics, h->statistics * sizeof(float));
    if (h->has_best) {
        dro__archive_bytes(ar, s->best_w, h->dim * sizeof(float));
        dro__archive_bytes(ar, s->best_statistics, h->statistics * sizeof(float));
    }
    if (s->opt)
        dro__optimizer_put(s->opt, ar);
    else
        dro__archive_bytes(ar, s->state, h->state);
    dro__archive_bytes(ar, s->more, h->more);
}

static header make_header(dro__saved *s)
{
    header h = {.version = VERSION,
                .settings = strlen(s->settings) + 1,
                .machine = strlen(s->machine) + 1,
                .state = s->opt ? dro__optimizer_put_size(s->opt) : s->state_size,
                .more = s->more_size,
                .dim = s->dim,
                .statistics = s->statistics_count,
                .has_best = s->best_w != NULL};
    memcpy(h.magic, MAGIC, sizeof h.magic);
    dro__archive ar = {.mode = DRO__ARCHIVE_MEASURE};
    walk(&ar, s, &h);
    h.size = sizeof h + ar.used + sizeof(uint64_t);
    return h;
}

dro_status dro__checkpoint_pack(dro_context *ctx, const dro__saved *saved, char **out,
                                size_t *out_size)
{
    dro__saved *s = (dro__saved *)saved; /* walk() changes nothing when it measures or saves */
    header h = make_header(s);
    uint64_t sum;
    char *bytes = dro__alloc(h.size, 1);
    if (!bytes)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a checkpoint of %llu bytes",
                         (unsigned long long)h.size);
    dro__archive ar = {
        .mode = DRO__ARCHIVE_SAVE, .bytes = (unsigned char *)bytes, .size = h.size - sizeof sum};
    DRO__ARCHIVE(&ar, h);
    walk(&ar, s, &h);
    if (ar.status != DRO_OK) {
        dro__free(bytes);
        return ar.status;
    }
    sum = dro__checksum_long(0, bytes, ar.size);
    memcpy(bytes + ar.size, &sum, sizeof sum);
    *out = bytes;
    *out_size = h.size;
    return DRO_OK;
}

typedef struct target {
    dro__new_file file;
    uint64_t sum;
    unsigned char block[4 * DRO__SUM_BLOCK];
} target;

static dro_status flush(dro__archive *ar)
{
    target *to = ar->user;
    size_t size = ar->used;
    ar->used = 0;
    to->sum = dro__checksum_long(to->sum, to->block, size);
    return dro__file_write(&to->file, to->block, size);
}

static dro_status fill(target *to, dro__saved *s)
{
    header h = make_header(s);
    dro__archive ar = {.mode = DRO__ARCHIVE_SAVE,
                       .bytes = to->block,
                       .size = sizeof to->block,
                       .flush = flush,
                       .user = to};
    DRO__ARCHIVE(&ar, h);
    walk(&ar, s, &h);
    DRO_TRY(ar.status);
    DRO_TRY(flush(&ar));
    return dro__file_write(&to->file, &to->sum, sizeof to->sum);
}

dro_status dro__checkpoint_write(dro_context *ctx, const char *folder, const dro__saved *saved)
{
    target *to = dro__alloc(1, sizeof *to);
    if (!to)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for a checkpoint");
    dro_status status = dro__file_begin(ctx, folder, "last.ckpt", "previous.ckpt", &to->file);
    if (status == DRO_OK)
        status = dro__file_end(&to->file, fill(to, (dro__saved *)saved));
    dro__free(to);
    return status;
}

void dro__saved_free(dro__saved *s)
{
    dro__free(s->settings);
    dro__free(s->machine);
    dro__free(s->statistics);
    dro__free(s->best_w);
    dro__free(s->best_statistics);
    dro__free(s->state);
    dro__free(s->more);
    *s = (dro__saved){0};
}

bool dro__checkpoint_exists(const char *folder)
{
    return dro__file_at(folder, "last.ckpt", NULL) || dro__file_at(folder, "previous.ckpt", NULL);
}

/* Whether the sizes in the header add up to that of the file; none is trusted before that. */
static bool adds_up(const header *h, size_t size)
{
    uint64_t most = size, most_dim = h->has_best ? most : SIZE_MAX / sizeof(float);
    if (h->settings == 0 || h->settings > most || h->machine == 0 || h->machine > most ||
        h->state > most || h->more > most || h->dim > most_dim || h->statistics > most ||
        h->has_best > 1)
        return false;
    uint64_t floats = h->statistics + h->has_best * (h->dim + h->statistics);
    return sizeof *h + sizeof(dro__progress) + h->settings + h->machine + h->state + h->more +
               4 * floats + sizeof(uint64_t) ==
           most;
}

dro_status dro__checkpoint_unpack(dro_context *ctx, const char *name, const char *bytes,
                                  size_t size, dro__saved *s)
{
    header h;
    uint64_t sum;
    if (size < sizeof h + sizeof sum)
        return dro__fail(ctx, DRO_ERR_FORMAT, "%s is truncated", name);
    memcpy(&h, bytes, sizeof h);
    if (memcmp(h.magic, MAGIC, sizeof h.magic) != 0 || h.version != VERSION)
        return dro__fail(ctx, DRO_ERR_FORMAT, "%s is not a checkpoint of this version", name);
    if (h.size != size)
        return dro__fail(ctx, DRO_ERR_FORMAT, "%s is %s: %zu of %llu bytes", name,
                         size < h.size ? "truncated" : "too long", size,
                         (unsigned long long)h.size);
    memcpy(&sum, bytes + size - sizeof sum, sizeof sum);
    if (sum != dro__checksum_long(0, bytes, size - sizeof sum))
        return dro__fail(ctx, DRO_ERR_FORMAT, "%s is damaged: its checksum is wrong", name);
    const char *texts = bytes + sizeof h + sizeof(dro__progress);
    if (!adds_up(&h, size) || texts[h.settings - 1] != '\0' ||
        texts[h.settings + h.machine - 1] != '\0')
        return dro__fail(ctx, DRO_ERR_FORMAT, "%s is inconsistent", name);
    *s =
        (dro__saved){.dim = h.dim,
                     .statistics_count = h.statistics,
                     .state_size = h.state,
                     .more_size = h.more,
                     .settings = dro__alloc(h.settings, 1),
                     .machine = dro__alloc(h.machine, 1),
                     .statistics = dro__alloc(h.statistics, sizeof(float)),
                     .best_w = h.has_best ? dro__alloc(h.dim, sizeof(float)) : NULL,
                     .best_statistics = h.has_best ? dro__alloc(h.statistics, sizeof(float)) : NULL,
                     .state = dro__alloc(h.state, 1),
                     .more = dro__alloc(h.more, 1)};
    if (!s->settings || !s->machine || !s->statistics || !s->state || !s->more ||
        (h.has_best && (!s->best_w || !s->best_statistics))) {
        dro__saved_free(s);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the checkpoint %s", name);
    }
    dro__archive ar = {.mode = DRO__ARCHIVE_LOAD,
                       .bytes = (unsigned char *)bytes + sizeof h,
                       .size = size - sizeof h - sizeof sum};
    walk(&ar, s, &h);
    return DRO_OK;
}

dro_status dro__checkpoint_read(dro_context *ctx, const char *folder, dro__saved *saved,
                                bool *found, char note[DRO__ERROR_SIZE])
{
    static const char *const names[] = {"last.ckpt", "previous.ckpt"};
    bool any = false;
    *found = false;
    note[0] = '\0';
    for (int k = 0; k < 2; k++) {
        char *bytes;
        size_t size;
        dro_status status = dro__file_read(ctx, folder, names[k], &bytes, &size);
        if (status == DRO_OK && !bytes)
            continue;
        any = true;
        if (status == DRO_OK)
            status = dro__checkpoint_unpack(ctx, names[k], bytes, size, saved);
        dro__free(bytes);
        if (status == DRO_ERR_MEMORY)
            return status;
        *found = status == DRO_OK;
        if (*found)
            return DRO_OK;
        snprintf(note, DRO__ERROR_SIZE, "%s", ctx->error);
    }
    if (any)
        return dro__fail(ctx, DRO_ERR_FORMAT,
                         "%s: no valid checkpoint (%.200s): start again in another folder", folder,
                         note);
    return DRO_OK;
}
