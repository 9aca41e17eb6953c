/* Folders of binary files: finding and opening them, growing tables of images, class names. */
#include "binary.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { NAMES_BYTES_MAX = 1 << 16 };

/* ---- growing tables ---- */

static dro_status fits(dro_context *ctx, const dro__image_block *block, const dro__input *input,
                       uint64_t count)
{
    const dro__table *t = block->table;
    return dro__fits(ctx, dro__input_name(input),
                     count * (block->image + sizeof *t->labels + sizeof *t->records));
}

dro_status dro__image_block_reserve(dro_context *ctx, dro__image_block *block,
                                    const dro__input *input, uint64_t more)
{
    dro__table *t = block->table;
    const char *name = dro__input_name(input);
    size_t count = (size_t)t->n + (size_t)more;
    if (more > DRO__BINARY_MAX || count > DRO__BINARY_MAX / block->image)
        return dro__fail(ctx, DRO_ERR_DATA, "%s: more than %llu bytes of images: expected no more",
                         name, (unsigned long long)DRO__BINARY_MAX);
    DRO_TRY(fits(ctx, block, input, count));
    void **arrays[] = {(void **)&t->labels, (void **)&t->records, (void **)&t->pixels};
    const size_t sizes[] = {sizeof *t->labels, sizeof *t->records, 1};
    for (int k = 0; k < 3; k++)
        DRO_TRY(dro__grow_file(ctx, name, arrays[k], &block->capacities[k],
                               k < 2 ? count : count * block->image, sizes[k]));
    return DRO_OK;
}

dro_status dro__image_block_check(dro_context *ctx, const dro__image_block *block,
                                  const dro__input *input, uint64_t count)
{
    uint64_t plain = dro__input_plain_size(input);
    return plain && plain / block->image < count ? DRO_OK : fits(ctx, block, input, count);
}

void dro__image_block_add(dro__image_block *block, size_t count)
{
    dro__table *t = block->table;
    for (size_t k = 0; k < count; k++, t->n++)
        t->records[t->n] = t->n;
}

/* ---- folders ---- */

/* The path of DIR[/SUB]/NAME[.gz] if that is a file, else NULL. */
static dro_status try_path(dro_context *ctx, const char *dir, const char *sub, const char *name,
                           char **path)
{
    char file[256];
    for (int k = 0; k < 2; k++) {
        snprintf(file, sizeof file, "%s%s%s%s", sub ? sub : "", sub ? "/" : "", name,
                 k ? ".gz" : "");
        DRO_TRY(dro__path_join(ctx, dir, file, path));
        if (dro__file_exists(*path))
            return DRO_OK;
        dro__free(*path);
        *path = NULL;
    }
    return DRO_OK;
}

/* The path of the first of names in dir or dir/sub, else NULL. */
static dro_status find(dro_context *ctx, const char *dir, const char *sub, const char *const *names,
                       char **path)
{
    const char *folders[] = {NULL, sub};
    *path = NULL;
    for (int k = 0; k < (sub ? 2 : 1); k++)
        for (const char *const *name = names; *name && !*path; name++)
            DRO_TRY(try_path(ctx, dir, folders[k], *name, path));
    return DRO_OK;
}

dro_status dro__folder_open(dro_context *ctx, const char *dir, const char *sub,
                            const char *const *names, dro__input **input, uint64_t *size)
{
    char *path;
    struct stat about;
    DRO_TRY(find(ctx, dir, sub, names, &path));
    if (!path && stat(dir, &about) != 0)
        return dro__fail(ctx, DRO_ERR_FILE, "%s: there is no such folder", dir);
    if (!path)
        return dro__fail(ctx, DRO_ERR_FILE, "%s: %s is missing: expected it in this folder%s%s",
                         dir, names[0], sub ? " or in its folder " : "", sub ? sub : "");
    if (size)
        *size = stat(path, &about) == 0 && about.st_size > 0 ? (uint64_t)about.st_size : 0;
    dro_status status = dro__input_open(ctx, path, input);
    dro__free(path);
    return status;
}

void dro__folder_close(dro_data *data, dro__input *input)
{
    if (input)
        data->bytes_read += dro__input_fetched(input);
    dro__input_close(input);
}

/* Exactly `classes` lines of text; the names go to data. */
static dro_status take_names(dro_data *data, dro__input *input, char *text, int32_t classes)
{
    int32_t found = 0;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        size_t length = strcspn(line, "\r");
        if (length == 0 && (!next || next[strspn(next, "\r\n")] == '\0'))
            break;
        if (length == 0 || found == classes)
            return dro__fail(data->ctx, DRO_ERR_DATA, "%s: line %d: expected %d class names, %s",
                             dro__input_name(input), found + 1, classes,
                             length ? "and no more" : "one on each line");
        if (dro__utf8_wrong(line, length))
            return dro__fail(data->ctx, DRO_ERR_DATA,
                             "%s: line %d: is not UTF-8: save the file as UTF-8",
                             dro__input_name(input), found + 1);
        data->class_names[found] = dro__alloc(length + 1, 1);
        if (!data->class_names[found])
            return dro__fail(data->ctx, DRO_ERR_MEMORY, "no memory for class names");
        memcpy(data->class_names[found++], line, length);
    }
    if (found < classes)
        return dro__fail(data->ctx, DRO_ERR_DATA,
                         "%s: %d class names: expected %d, one on each line",
                         dro__input_name(input), found, classes);
    return DRO_OK;
}

dro_status dro__folder_names(dro_data *data, const char *sub, const char *name, int32_t classes)
{
    const char *names[] = {name, NULL};
    char *path, *text;
    dro__input *input;
    size_t size;
    data->classes = classes;
    DRO_TRY(find(data->ctx, data->spec.path, sub, names, &path));
    dro__free(path);
    if (!path)
        return DRO_OK;
    DRO_TRY(dro__folder_open(data->ctx, data->spec.path, sub, names, &input, NULL));
    dro_status status = dro__input_all(input, NAMES_BYTES_MAX, &text, &size);
    if (status == DRO_OK) {
        data->class_names = dro__alloc((size_t)classes, sizeof *data->class_names);
        status = data->class_names ? take_names(data, input, text, classes)
                                   : dro__fail(data->ctx, DRO_ERR_MEMORY, "no memory for names");
        dro__free(text);
    }
    dro__folder_close(data, input);
    return status;
}

dro_status dro__input_end(dro_context *ctx, dro__input *input, const char *after)
{
    char byte;
    size_t got;
    uint64_t at = dro__input_offset(input);
    DRO_TRY(dro__input_read(input, &byte, 1, &got));
    if (got > 0)
        return dro__fail(ctx, DRO_ERR_DATA,
                         "%s: continues after byte %llu: expected the end after %s",
                         dro__input_name(input), (unsigned long long)at, after);
    return DRO_OK;
}

/* ---- axes ---- */

void dro__planes(uint8_t *image, uint8_t *scratch, size_t points, size_t channels)
{
    if (channels == 1)
        return;
    for (size_t c = 0; c < channels; c++)
        for (size_t k = 0; k < points; k++)
            scratch[c * points + k] = image[k * channels + c];
    memcpy(image, scratch, points * channels);
}

dro_status dro__image_axes(dro_context *ctx, const char *name, const uint64_t *sizes,
                           dro__images_shape *shape)
{
    bool last = sizes[2] == 1 || sizes[2] == 3, first = sizes[0] == 1 || sizes[0] == 3;
    if (!last && !first)
        return dro__fail(ctx, DRO_ERR_DATA,
                         "%s: images of %llu x %llu x %llu: expected 1 or 3 channels as the last "
                         "or the first of these",
                         name, (unsigned long long)sizes[0], (unsigned long long)sizes[1],
                         (unsigned long long)sizes[2]);
    uint64_t h = sizes[last ? 0 : 1], w = sizes[last ? 1 : 2];
    if (h < 1 || w < 1 || h > DRO__IMAGE_SIDE_MAX || w > DRO__IMAGE_SIDE_MAX)
        return dro__fail(ctx, DRO_ERR_DATA, "%s: images of %llu x %llu: expected sides of 1 to %d",
                         name, (unsigned long long)h, (unsigned long long)w, DRO__IMAGE_SIDE_MAX);
    shape->planes_first = !last;
    shape->channels = (int32_t)sizes[last ? 2 : 0];
    shape->height = (int32_t)h;
    shape->width = (int32_t)w;
    return DRO_OK;
}
