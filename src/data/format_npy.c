/* Arrays of NumPy as a data set: files of numpy.save, or one of numpy.savez. (n, d) of any number
 * type is rows; uint8 (n, h, w) is grey images, uint8 (n, h, w, c) or (n, c, h, w) with 1 or 3
 * channels is images (c last where both fit). Labels are whole numbers of any type, (n) or (n, 1):
 * the distinct values of training and test in rising order are the classes, named by their value,
 * so that 0..k-1 stay as they are. Groups likewise. */
#include "binary.h"
#include "npy.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { VALUES_MAX = 1 << 16 };

/* ---- which arrays ---- */

enum { X, Y, TEST_X, TEST_Y, GROUPS, TEST_GROUPS, ARRAYS };

static const char *const option_names[ARRAYS] = {"x",           "labels", "test",
                                                 "test_labels", "groups", "test_groups"};

/* The names to look for in a .npz; groups must be requested. */
static const char *const usual_names[ARRAYS][8] = {
    [X] = {"x_train", "X_train", "train_images", "x", "X", "data", "images"},
    [Y] = {"y_train", "Y_train", "train_labels", "y", "Y", "labels", "label"},
    [TEST_X] = {"x_test", "X_test", "test_images"},
    [TEST_Y] = {"y_test", "Y_test", "test_labels"},
};

typedef struct origin {
    dro_data *data;
    char *bytes;               /* of the .npz */
    dro__npz *npz;             /* or NULL: files */
    const char *names[ARRAYS]; /* keys or paths, NULL: none */
} origin;

static dro_status is_npz(dro_data *data, const char *path, bool *answer)
{
    char start[2];
    size_t got;
    dro__input *input;
    *answer = false;
    if (strcmp(path, "-") == 0)
        return DRO_OK;
    DRO_TRY(dro__input_open(data->ctx, path, &input));
    dro_status status = dro__input_read(input, start, sizeof start, &got);
    *answer = got == 2 && memcmp(start, "PK", 2) == 0;
    dro__input_close(input);
    return status;
}

static dro_status open_npz(origin *o, const char *path)
{
    dro__input *input;
    size_t size;
    DRO_TRY(dro__input_open(o->data->ctx, path, &input));
    uint64_t most = dro__machine_memory() / 2;
    dro_status status = dro__fits(o->data->ctx, path, dro__input_plain_size(input));
    if (status == DRO_OK)
        status = dro__input_all(input, most < DRO__BINARY_MAX ? most : DRO__BINARY_MAX, &o->bytes,
                                &size);
    if (status != DRO_OK) /* compressed, or a pipe: only now known to be too large */
        dro__fits(o->data->ctx, path, dro__input_offset(input));
    if (status == DRO_OK)
        status = dro__npz_open(o->data->ctx, dro__input_name(input), o->bytes, size, &o->npz);
    dro__folder_close(o->data, input);
    return status;
}

static void usual(origin *o, int which)
{
    for (const char *const *name = usual_names[which]; *name && !o->names[which]; name++)
        if (dro__npz_has(o->npz, *name))
            o->names[which] = *name;
}

static dro_status choose_names(origin *o)
{
    dro_context *ctx = o->data->ctx;
    const char *path = o->data->spec.path;
    bool npz = o->npz != NULL, own_x = dro__option(o->data, "x") != NULL;
    char all[160] = "";
    for (int k = 0; k < ARRAYS; k++)
        o->names[k] = dro__option(o->data, option_names[k]);
    if (!npz && own_x)
        return dro__fail(ctx, DRO_ERR_ARGUMENT, "x=%.60s: %s is no .npz, which has names",
                         o->names[X], path);
    if (!npz)
        o->names[X] = path;
    for (int k = X; npz && k <= (own_x ? Y : TEST_Y); k++)
        usual(o, k);
    if (npz)
        dro__npz_list(o->npz, all, sizeof all);
    if (!o->names[X])
        return dro__fail(ctx, DRO_ERR_DATA,
                         "%s: no array x_train, x, X, data or images: expected x=NAME, one of%s",
                         path, all);
    if (!o->names[Y] && (!o->data->for_model || o->names[TEST_X]))
        return dro__fail(ctx, DRO_ERR_ARGUMENT, "%s: no labels: expected labels=%s%s", path,
                         npz                      ? "NAME, one of"
                         : strcmp(path, "-") == 0 ? "FILE.npy (an .npz cannot come from stdin)"
                                                  : "FILE.npy, as in X.npy,labels=Y.npy",
                         all);
    if (!o->names[TEST_X] != !o->names[TEST_Y])
        return dro__fail(ctx, DRO_ERR_ARGUMENT, "%s: test=%.60s test_labels=%.60s: expected both",
                         path, o->names[TEST_X] ? o->names[TEST_X] : "",
                         o->names[TEST_Y] ? o->names[TEST_Y] : "");
    if (o->names[TEST_GROUPS] && (!o->names[TEST_X] || !o->names[GROUPS]))
        return dro__fail(ctx, DRO_ERR_ARGUMENT, "test_groups without %s: expected both",
                         o->names[GROUPS] ? "test" : "groups");
    return DRO_OK;
}

/* ---- one array ---- */

typedef struct array {
    dro__input *input; /* of a file */
    dro__npy_source file, *source;
    dro__npy head;
} array;

static void close_array(const origin *o, array *a)
{
    if (o->npz)
        dro__npz_entry_close(a->source);
    else
        dro__folder_close(o->data, a->input);
}

static dro_status open_array(const origin *o, const char *name, array *a)
{
    struct stat about;
    *a = (array){0};
    if (o->npz) {
        DRO_TRY(dro__npz_entry(o->npz, name, &a->source));
    } else {
        DRO_TRY(dro__input_open(o->data->ctx, name, &a->input));
        uint64_t size = stat(name, &about) == 0 && about.st_size > 0 ? (uint64_t)about.st_size : 0;
        a->file = dro__npy_input(o->data->ctx, a->input, size);
        a->source = &a->file;
    }
    dro_status status = dro__npy_header(a->source, &a->head);
    if (status != DRO_OK)
        close_array(o, a);
    return status;
}

static dro_status wrong_shape(const array *a, const char *expected)
{
    char text[256];
    dro__npy_print(&a->head, text, sizeof text);
    return dro__fail(a->source->ctx, DRO_ERR_DATA, "%s: is %s: expected %s", a->source->name, text,
                     expected);
}

/* ---- examples ---- */

/* What the examples of a split look like. */
typedef struct look {
    dro_data_kind kind;
    int32_t channels, height, width;
    size_t features;
} look;

static dro_status read_rows(array *a, look *l, dro__table *table)
{
    l->kind = DRO_DATA_DENSE;
    l->features = (size_t)a->head.shape[1];
    return dro__npy_floats(a->source, &a->head, &table->x);
}

static dro_status read_images(array *a, look *l, dro__table *table)
{
    uint64_t sizes[3] = {a->head.shape[1], a->head.shape[2], 1};
    dro__images_shape shape;
    if (a->head.dims == 4)
        sizes[2] = a->head.shape[3];
    l->kind = DRO_DATA_PIXELS;
    DRO_TRY(dro__image_axes(a->source->ctx, a->source->name, sizes, &shape));
    l->channels = shape.channels, l->height = shape.height, l->width = shape.width;
    DRO_TRY(dro__npy_bytes(a->source, &a->head, &table->pixels));
    if (shape.planes_first || l->channels == 1)
        return DRO_OK;
    size_t points = (size_t)l->height * (size_t)l->width, image = points * (size_t)l->channels;
    uint8_t *scratch = dro__alloc(image, 1);
    if (!scratch)
        return dro__fail(a->source->ctx, DRO_ERR_MEMORY, "%s: no memory for an image",
                         a->source->name);
    for (uint64_t i = 0; i < a->head.shape[0]; i++)
        dro__planes(table->pixels + i * image, scratch, points, (size_t)l->channels);
    dro__free(scratch);
    return DRO_OK;
}

static dro_status check_array(const array *a)
{
    const dro__npy *head = &a->head;
    bool bytes = head->kind == 'u' && head->size == 1;
    bool images = head->dims == 3 || head->dims == 4;
    if (images && !bytes)
        return wrong_shape(a, head->kind == 'f'
                                  ? "images of type uint8 (numpy.uint8(255 * x), where x is from "
                                    "0 to 1)"
                                  : "images of type uint8 (numpy.uint8(x), where x is from 0 to "
                                    "255)");
    if (head->dims != 2 && !images)
        return wrong_shape(a, "rows (n, d), or images of type uint8 (n, h, w) or (n, h, w, c)");
    return head->count == 0 ? wrong_shape(a, "no dimension of 0") : DRO_OK;
}

static dro_status read_array(array *a, look *l, dro__table *table)
{
    DRO_TRY(check_array(a));
    *l = (look){0};
    table->n = (int64_t)a->head.shape[0];
    return a->head.dims == 2 ? read_rows(a, l, table) : read_images(a, l, table);
}

static dro_status read_x(const origin *o, int which, look *l, dro__table *table)
{
    array a;
    DRO_TRY(open_array(o, o->names[which], &a));
    dro_status status = read_array(&a, l, table);
    close_array(o, &a);
    return status;
}

/* ---- labels and groups ---- */

static dro_status check_column(const array *a, uint64_t n)
{
    const dro__npy *head = &a->head;
    char text[128];
    bool column = head->dims == 1 || (head->dims == 2 && head->shape[1] == 1);
    bool one_hot = !column && head->dims == 2 && head->shape[0] == n;
    snprintf(text, sizeof text, "(%llu), a number for each example%s", (unsigned long long)n,
             one_hot ? " (numpy.argmax(y, 1) gives that of a one-hot row)" : "");
    return column && head->shape[0] == n ? DRO_OK : wrong_shape(a, text);
}

/* n numbers of any type: as integers, or with `real` as floats. */
static dro_status read_column(const origin *o, int which, const dro__table *table,
                              int64_t **integers, float **floats)
{
    array a;
    DRO_TRY(open_array(o, o->names[which], &a));
    dro_status status = check_column(&a, (uint64_t)table->n);
    if (status == DRO_OK)
        status = floats ? dro__npy_floats(a.source, &a.head, floats)
                        : dro__npy_integers(a.source, &a.head, integers);
    close_array(o, &a);
    return status;
}

/* Distinct values in rising order. */
typedef struct value_set {
    int64_t *values;
    size_t count, capacity;
} value_set;

/* The number of values below this one; *found if it is there itself. */
static size_t rank(const value_set *set, int64_t value, bool *found)
{
    size_t low = 0, high = set->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (set->values[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    *found = low < set->count && set->values[low] == value;
    return low;
}

static dro_status collect(const origin *o, int which, const int64_t *values, int64_t n,
                          value_set *set)
{
    bool found;
    for (int64_t i = 0; i < n; i++) {
        size_t at = rank(set, values[i], &found);
        if (found)
            continue;
        if (set->count == VALUES_MAX)
            return dro__fail(o->data->ctx, DRO_ERR_DATA,
                             "%s: row %lld: more than %d distinct values: expected class or group "
                             "numbers (target=real keeps labels as real numbers)",
                             o->names[which], (long long)i, VALUES_MAX);
        DRO_TRY(dro__grow(o->data->ctx, (void **)&set->values, &set->capacity, set->count + 1,
                          sizeof *set->values));
        memmove(set->values + at + 1, set->values + at, (set->count - at) * sizeof *set->values);
        set->values[at] = values[i];
        set->count++;
    }
    return DRO_OK;
}

static dro_status number(dro_context *ctx, const value_set *set, const int64_t *values, int64_t n,
                         int32_t **numbers)
{
    bool found;
    *numbers = dro__alloc((size_t)n, sizeof **numbers);
    if (!*numbers)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %lld labels", (long long)n);
    for (int64_t i = 0; i < n; i++)
        (*numbers)[i] = (int32_t)rank(set, values[i], &found);
    return DRO_OK;
}

static dro_status name_values(dro_context *ctx, const value_set *set, char ***names, int32_t *count)
{
    *names = dro__alloc(set->count, sizeof **names);
    if (!*names)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %zu names", set->count);
    *count = (int32_t)set->count;
    for (size_t k = 0; k < set->count; k++) {
        (*names)[k] = dro__alloc(24, 1);
        if (!(*names)[k])
            return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %zu names", set->count);
        snprintf((*names)[k], 24, "%lld", (long long)set->values[k]);
    }
    return DRO_OK;
}

/* Columns first and second (of the test set, if there is one) become numbers of the same names. */
static dro_status read_numbers(const origin *o, int first, int second, int32_t *count,
                               char ***names, int32_t **numbers[2])
{
    dro__table *tables = o->data->split;
    int64_t *values[2] = {NULL, NULL};
    const int which[2] = {first, second};
    value_set set = {0};
    dro_status status = DRO_OK;
    for (int s = 0; s < 2 && status == DRO_OK && o->names[which[s]]; s++) {
        status = read_column(o, which[s], &tables[s], &values[s], NULL);
        if (status == DRO_OK)
            status = collect(o, which[s], values[s], tables[s].n, &set);
    }
    for (int s = 0; s < 2 && status == DRO_OK && values[s]; s++)
        status = number(o->data->ctx, &set, values[s], tables[s].n, numbers[s]);
    if (status == DRO_OK)
        status = name_values(o->data->ctx, &set, names, count);
    dro__free(values[0]);
    dro__free(values[1]);
    dro__free(set.values);
    return status;
}

/* All zeros, a class that no model has. */
static dro_status without_labels(dro_data *d, bool real)
{
    dro__table *train = &d->split[DRO_TRAIN];
    size_t n = (size_t)train->n;
    char *name = NULL;
    d->unlabelled = "labels=FILE.npy, of an .npz labels=NAME";
    if (real) {
        train->targets = dro__alloc(n, sizeof *train->targets);
    } else {
        train->labels = dro__alloc(n, sizeof *train->labels);
        d->class_names = dro__alloc(1, sizeof *d->class_names);
        name = dro__alloc(2, 1);
    }
    if (name && d->class_names)
        name[0] = '?', d->class_names[0] = name, d->classes = 1;
    else
        dro__free(name);
    if (real ? !train->targets : !train->labels || !d->classes)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %zu labels", n);
    return DRO_OK;
}

static dro_status read_labels(const origin *o)
{
    dro_data *d = o->data;
    dro__table *train = &d->split[DRO_TRAIN], *test = &d->split[DRO_TEST];
    const char *target = dro__option(d, "target");
    bool real = target && strcmp(target, "real") == 0;
    int32_t **labels[2] = {&train->labels, &test->labels};
    int32_t **groups[2] = {&train->groups, &test->groups};
    if (target && !real && strcmp(target, "class") != 0)
        return dro__fail(d->ctx, DRO_ERR_RANGE, "target=%.40s: expected class or real", target);
    if (!o->names[Y])
        return without_labels(d, real);
    if (real)
        DRO_TRY(read_column(o, Y, train, NULL, &train->targets));
    if (real && o->names[TEST_Y])
        DRO_TRY(read_column(o, TEST_Y, test, NULL, &test->targets));
    if (!real)
        DRO_TRY(read_numbers(o, Y, TEST_Y, &d->classes, &d->class_names, labels));
    if (o->names[GROUPS])
        DRO_TRY(read_numbers(o, GROUPS, TEST_GROUPS, &d->groups, &d->group_names, groups));
    return DRO_OK;
}

static dro_status compare_heads(const origin *o, const array *x, int column)
{
    array y;
    DRO_TRY(check_array(x));
    if (dro__npy_too_short(x->source, &x->head))
        return DRO_OK;
    DRO_TRY(open_array(o, o->names[column], &y));
    dro_status status = check_column(&y, x->head.shape[0]);
    close_array(o, &y);
    return status;
}

/* Checks that there is a label for each row, by two headers before anything large is read. */
static dro_status compare_counts(const origin *o, int rows, int column)
{
    uint64_t read = o->data->bytes_read; /* an array that is read twice counts once */
    struct stat about;
    array x;
    for (int k = 0; k < 2 && !o->npz; k++)
        if (stat(o->names[k ? column : rows], &about) != 0 || !S_ISREG(about.st_mode))
            return DRO_OK; /* it can be opened at most once */
    DRO_TRY(open_array(o, o->names[rows], &x));
    dro_status status = compare_heads(o, &x, column);
    close_array(o, &x);
    o->data->bytes_read = read;
    return status;
}

static dro_status read_all(const origin *o)
{
    dro_data *d = o->data;
    look a, b;
    if (o->names[Y])
        DRO_TRY(compare_counts(o, X, Y));
    if (o->names[TEST_X])
        DRO_TRY(compare_counts(o, TEST_X, TEST_Y));
    DRO_TRY(read_x(o, X, &a, &d->split[DRO_TRAIN]));
    b = a;
    if (o->names[TEST_X])
        DRO_TRY(read_x(o, TEST_X, &b, &d->split[DRO_TEST]));
    if (a.kind != b.kind || a.channels != b.channels || a.height != b.height ||
        a.width != b.width || a.features != b.features)
        return dro__fail(d->ctx, DRO_ERR_DATA,
                         "%s: test examples differ in shape from those of %s: expected the same",
                         o->names[TEST_X], o->names[X]);
    d->kind = a.kind;
    d->channels = a.channels;
    d->height = a.height;
    d->width = a.width;
    d->features = a.features;
    return read_labels(o);
}

static dro_status open_npy(dro_data *data)
{
    origin o = {.data = data};
    bool npz;
    DRO_TRY(is_npz(data, data->spec.path, &npz));
    dro_status status = npz ? open_npz(&o, data->spec.path) : DRO_OK;
    if (status == DRO_OK)
        status = choose_names(&o);
    if (status == DRO_OK)
        status = read_all(&o);
    dro__npz_close(o.npz);
    dro__free(o.bytes);
    return status;
}

static const char *const npy_options[] = {"x",      "labels", "test",  "test_labels", "test_groups",
                                          "groups", "target", "scale", NULL};

static const char *const endings[] = {"npy", "npz", NULL};

const dro__format dro__format_npy = {
    .name = "npy",
    .endings = endings,
    .usage = "X.npy,labels=Y.npy[,test=X.npy,test_labels=Y.npy][,groups=G.npy][,target=real]"
             "[,scale=standard|none] or FILE.npz[,x=NAME][,labels=NAME]",
    .summary = "NumPy arrays: rows, or images as uint8",
    .options = npy_options,
    .open = open_npy,
};
