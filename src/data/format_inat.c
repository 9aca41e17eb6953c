/* inat:FILE.json,root=DIR: iNaturalist 2018 and 2019, annotations in the style of COCO.
 *
 *     {"images": [{"id": 7, "file_name": "a/b.jpg"}, ...],
 *      "annotations": [{"image_id": 7, "category_id": 3}, ...],
 *      "categories": [{"id": 3, "name": "..."}, ...]}                  (optional)
 *
 * Every image has exactly one annotation. Examples are in the order of "images"; classes are the
 * ids of the categories in rising order, or the ids that annotations use where no file has
 * categories. A file of more than 256 MiB, or a 32nd of the available memory, is refused. */
#include "image_files.h"
#include "image.h"

#if DRO_WITH_JANSSON
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#define BYTES_MAX ((uint64_t)1 << 28)

enum { SPREAD = 16 }; /* bytes of memory that a byte of JSON may take when it is parsed */

typedef struct entry {
    int64_t id;
    size_t at; /* in its array */
} entry;

typedef struct source {
    dro_context *ctx;
    const char *name;
    json_t *root;
    const json_t *images, *annotations, *categories;
} source;

/* ---- JSON, with errors that name the place ---- */

static dro_status load(dro_context *ctx, dro__input *input, source *s)
{
    char *bytes;
    size_t size;
    json_error_t error;
    s->ctx = ctx;
    s->name = dro__path_tail(dro__input_name(input));
    uint64_t most = dro__machine_memory() / (2 * SPREAD);
    DRO_TRY(dro__input_all(input, most < BYTES_MAX ? most : BYTES_MAX, &bytes, &size));
    dro__json_watch();
    s->root = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &error);
    dro__free(bytes);
    if (dro__memory_ran_out())
        return dro__fail(ctx, DRO_ERR_MEMORY, "%s: no memory to read it", s->name);
    if (!s->root)
        return dro__fail(ctx, DRO_ERR_DATA, "%s: line %d, column %d: not JSON: %.120s", s->name,
                         error.line, error.column, error.text);
    if (!json_is_object(s->root))
        return dro__fail(ctx, DRO_ERR_DATA, "%s: expected an object with images and annotations",
                         s->name);
    return DRO_OK;
}

static dro_status find_array(const source *s, const char *name, bool needed, const json_t **array)
{
    *array = json_object_get(s->root, name);
    if ((!*array && !needed) || json_is_array(*array))
        return DRO_OK;
    return dro__fail(s->ctx, DRO_ERR_DATA, "%s: '%s' is %s: expected an array", s->name, name,
                     *array ? "not an array" : "missing");
}

static dro_status integer(const source *s, const char *array, size_t k, const json_t *object,
                          const char *name, int64_t *value)
{
    const json_t *v = json_object_get(object, name);
    if (!json_is_integer(v))
        return dro__fail(s->ctx, DRO_ERR_DATA, "%s: %s[%zu]: '%s' is %s: expected an integer",
                         s->name, array, k, name, v ? "not an integer" : "missing");
    *value = json_integer_value(v);
    return DRO_OK;
}

static dro_status string(const source *s, const char *array, size_t k, const json_t *object,
                         const char *name, const json_t **value)
{
    *value = json_object_get(object, name);
    if (!json_is_string(*value))
        return dro__fail(s->ctx, DRO_ERR_DATA, "%s: %s[%zu]: '%s' is %s: expected a string",
                         s->name, array, k, name, *value ? "not a string" : "missing");
    return DRO_OK;
}

/* ---- ids ---- */

static int by_id(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* The entry with this id among sorted ones, or NULL. */
static const entry *find(const entry *entries, size_t count, int64_t id)
{
    for (size_t low = 0, high = count; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (entries[middle].id == id)
            return &entries[middle];
        if (entries[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

/* The field `key` of every object of an array, sorted; freed by the caller in every case. */
static dro_status read_ids(const source *s, const char *name, const json_t *array, const char *key,
                           entry **entries)
{
    size_t count = json_array_size(array);
    *entries = dro__alloc(count, sizeof **entries);
    if (!*entries)
        return dro__fail(s->ctx, DRO_ERR_MEMORY, "%s: no memory for %zu ids", s->name, count);
    for (size_t k = 0; k < count; k++) {
        (*entries)[k].at = k;
        DRO_TRY(integer(s, name, k, json_array_get(array, k), key, &(*entries)[k].id));
    }
    qsort(*entries, count, sizeof **entries, by_id);
    return DRO_OK;
}

static dro_status refuse_doubles(const source *s, const char *name, const entry *entries,
                                 size_t count)
{
    for (size_t k = 1; k < count; k++)
        if (entries[k].id == entries[k - 1].id)
            return dro__fail(s->ctx, DRO_ERR_DATA, "%s: %s[%zu]: id %lld is that of %s[%zu] too",
                             s->name, name, entries[k].at, (long long)entries[k].id, name,
                             entries[k - 1].at);
    return DRO_OK;
}

/* ---- classes ---- */

typedef struct classes {
    entry *entries; /* sorted by id */
    size_t count;
} classes;

static dro_status name_class(dro_data *d, const source *s, const entry *e, char **name)
{
    char number[32];
    const char *text = number;
    size_t length = (size_t)snprintf(number, sizeof number, "%lld", (long long)e->id);
    const json_t *object = s ? json_array_get(s->categories, e->at) : NULL, *value;
    if (object && json_object_get(object, "name")) {
        DRO_TRY(string(s, "categories", e->at, object, "name", &value));
        text = json_string_value(value);
        length = json_string_length(value);
    }
    *name = dro__alloc(length + 1, 1);
    if (!*name)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for the names of classes");
    memcpy(*name, text, length);
    return DRO_OK;
}

/* s: where the names are, NULL: the ids are the names. */
static dro_status name_classes(dro_data *d, const source *s, const classes *c)
{
    if (c->count == 0 || c->count > INT32_MAX)
        return dro__fail(d->ctx, DRO_ERR_DATA, "%s: %zu categories: expected some",
                         dro__path_tail(d->spec.path ? d->spec.path : ""), c->count);
    d->classes = (int32_t)c->count;
    d->class_names = dro__alloc(c->count, sizeof *d->class_names);
    if (!d->class_names)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %d classes", d->classes);
    for (size_t k = 0; k < c->count; k++)
        DRO_TRY(name_class(d, s, &c->entries[k], &d->class_names[k]));
    return DRO_OK;
}

/* All ids that the annotations of the sources use, once each. */
static dro_status used_classes(const source *sources, int count, classes *c)
{
    entry *parts[2] = {NULL, NULL};
    size_t total = 0, sizes[2] = {0, 0};
    dro_status status = DRO_OK;
    for (int k = 0; k < count && status == DRO_OK; k++) {
        status =
            read_ids(&sources[k], "annotations", sources[k].annotations, "category_id", &parts[k]);
        sizes[k] = json_array_size(sources[k].annotations);
        total += sizes[k];
    }
    c->entries = dro__alloc(total, sizeof *c->entries);
    if (status == DRO_OK && !c->entries)
        status = dro__fail(sources->ctx, DRO_ERR_MEMORY, "no memory for %zu ids", total);
    if (status == DRO_OK) {
        for (int k = 0; k < count; k++)
            if (sizes[k])
                memcpy(c->entries + (k ? sizes[0] : 0), parts[k], sizes[k] * sizeof(entry));
        qsort(c->entries, total, sizeof *c->entries, by_id);
        for (size_t k = 0; k < total; k++)
            if (k == 0 || c->entries[k].id != c->entries[c->count - 1].id)
                c->entries[c->count++] = c->entries[k];
    }
    dro__free(parts[0]);
    dro__free(parts[1]);
    return status;
}

static dro_status find_classes(dro_data *d, const source *sources, int count, classes *c)
{
    for (int k = 0; k < count; k++) {
        const source *s = &sources[k];
        if (!s->categories)
            continue;
        DRO_TRY(read_ids(s, "categories", s->categories, "id", &c->entries));
        c->count = json_array_size(s->categories);
        DRO_TRY(refuse_doubles(s, "categories", c->entries, c->count));
        return name_classes(d, s, c);
    }
    DRO_TRY(used_classes(sources, count, c));
    return name_classes(d, NULL, c);
}

/* ---- examples ---- */

static dro_status read_annotations(const source *s, const classes *c, const entry *images,
                                   int32_t *labels, size_t count)
{
    for (size_t k = 0; k < count; k++)
        labels[k] = -1;
    for (size_t k = 0; k < json_array_size(s->annotations); k++) {
        const json_t *object = json_array_get(s->annotations, k);
        int64_t image_id = 0, category_id = 0;
        DRO_TRY(integer(s, "annotations", k, object, "image_id", &image_id));
        DRO_TRY(integer(s, "annotations", k, object, "category_id", &category_id));
        const entry *image = find(images, count, image_id),
                    *category = find(c->entries, c->count, category_id);
        if (!image || !category)
            return dro__fail(s->ctx, DRO_ERR_DATA, "%s: annotations[%zu]: there is no %s %lld",
                             s->name, k, image ? "category" : "image",
                             (long long)(image ? category_id : image_id));
        if (labels[image->at] >= 0)
            return dro__fail(s->ctx, DRO_ERR_DATA,
                             "%s: annotations[%zu]: image %lld has another annotation", s->name, k,
                             (long long)image_id);
        labels[image->at] = (int32_t)(category - c->entries);
    }
    return DRO_OK;
}

static dro_status read_images(const source *s, const char *root, const int32_t *labels,
                              dro__table *table)
{
    dro__files files = {.table = table, .dir = root};
    for (size_t k = 0; k < json_array_size(s->images); k++) {
        const json_t *file;
        DRO_TRY(string(s, "images", k, json_array_get(s->images, k), "file_name", &file));
        const char *path = json_string_value(file);
        size_t length = json_string_length(file);
        const char *why = dro__path_refused(path, length);
        if (why)
            return dro__fail(s->ctx, DRO_ERR_DATA, "%s: images[%zu]: the path '%.100s' %s", s->name,
                             k, path, why);
        if (labels[k] < 0)
            return dro__fail(s->ctx, DRO_ERR_DATA, "%s: images[%zu]: '%.100s' has no annotation",
                             s->name, k, path);
        DRO_TRY(dro__files_add(s->ctx, &files, path, length, (int64_t)k, labels[k]));
    }
    return DRO_OK;
}

static dro_status fill(const source *s, const classes *c, const char *root, dro__table *table)
{
    size_t count = json_array_size(s->images);
    entry *images = NULL;
    int32_t *labels = dro__alloc(count, sizeof *labels);
    dro_status status = DRO_OK;
    if (!labels)
        status = dro__fail(s->ctx, DRO_ERR_MEMORY, "%s: no memory for %zu labels", s->name, count);
    else if (count == 0)
        status = dro__fail(s->ctx, DRO_ERR_DATA, "%s: 'images' is empty", s->name);
    if (status == DRO_OK)
        status = read_ids(s, "images", s->images, "id", &images);
    if (status == DRO_OK)
        status = refuse_doubles(s, "images", images, count);
    if (status == DRO_OK)
        status = read_annotations(s, c, images, labels, count);
    if (status == DRO_OK)
        status = read_images(s, root, labels, table);
    dro__free(images);
    dro__free(labels);
    return status;
}

static dro_status read_sources(dro_data *d, dro__input *const *inputs, int count, const char *root,
                               source *sources)
{
    classes c = {0};
    for (int k = 0; k < count; k++) {
        source *s = &sources[k];
        DRO_TRY(load(d->ctx, inputs[k], s));
        DRO_TRY(find_array(s, "images", true, &s->images));
        DRO_TRY(find_array(s, "annotations", true, &s->annotations));
        DRO_TRY(find_array(s, "categories", false, &s->categories));
    }
    dro_status status = find_classes(d, sources, count, &c);
    for (int k = 0; k < count && status == DRO_OK; k++)
        status = fill(&sources[k], &c, root, &d->split[k ? DRO_TEST : DRO_TRAIN]);
    dro__free(c.entries);
    return status;
}

dro_status dro__inat_read(dro_data *d, dro__input *train, dro__input *test, const char *root)
{
    dro__input *const inputs[2] = {train, test};
    source sources[2] = {0};
    dro_status status = read_sources(d, inputs, test ? 2 : 1, root, sources);
    json_decref(sources[0].root);
    json_decref(sources[1].root);
    return status;
}

static dro_status open_inat(dro_data *d)
{
    const char *root, *second = dro__option(d, "test");
    dro__input *train = NULL, *test = NULL;
    DRO_TRY(dro__files_root(d, &root));
    dro_status status = dro__input_open(d->ctx, d->spec.path, &train);
    if (status == DRO_OK && second)
        status = dro__input_open(d->ctx, second, &test);
    if (status == DRO_OK)
        status = dro__inat_read(d, train, test, root);
    d->bytes_read += train ? dro__input_fetched(train) : 0;
    d->bytes_read += test ? dro__input_fetched(test) : 0;
    dro__input_close(train);
    dro__input_close(test);
    return status == DRO_OK ? dro__files_open(d) : status;
}

#else

dro_status dro__inat_read(dro_data *d, dro__input *train, dro__input *test, const char *root)
{
    (void)train, (void)test, (void)root;
    return dro__fail(d->ctx, DRO_ERR_UNSUPPORTED,
                     "inat needs JSON, which this libdro was built without: build with the package "
                     "libjansson-dev");
}

static dro_status open_inat(dro_data *d)
{
    return dro__inat_read(d, NULL, NULL, NULL);
}

#endif

static const char *const options[] = {"root", "test", DRO__FILES_OPTIONS, NULL};

const dro__format dro__format_inat = {
    .name = "inat",
    .usage = "FILE.json,root=DIR[,test=FILE2.json][,channels=1|3][,size=N]",
    .summary = "images named by COCO-style JSON (iNaturalist 2018 and 2019)",
    .options = options,
    .files = true,
    .open = open_inat};
