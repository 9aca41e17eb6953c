/* libsvm text: `label index:value index:value ...  # comment`, one example per line.
 *
 * Indices rise along a line and count from 1 (base=0: from 0); a model keeps which. The label is a
 * number; equal numbers are one class, whatever their spelling, and classes are sorted by value.
 * target=real keeps the numbers themselves. Without test=, the file FILE.t beside FILE is the test
 * split, as the LIBSVM collection names it. A test label that training does not have is an error
 * (classes= lists all of them). Values are correctly rounded floats; zeros that are written are
 * kept. */
#include "text.h"
#include "stream.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES_MAX = 65536, INDEX_MAX = INT32_MAX - 1, SHOWN = 48 };

/* ---- classes ---- */

void dro__classes_free(dro__classes *c)
{
    dro__names_free(&c->spellings);
    dro__free(c->class_of);
    dro__free(c->values);
    dro__free(c->named_by);
    *c = (dro__classes){0};
}

static dro_status add_spelling(dro_context *ctx, dro__classes *c, const char *text, size_t length,
                               int32_t number)
{
    int32_t spelling;
    DRO_TRY(dro__names_add(ctx, &c->spellings, text, length, &spelling));
    DRO_TRY(dro__grow(ctx, (void **)&c->class_of, &c->class_capacity, c->spellings.count,
                      sizeof *c->class_of));
    c->class_of[spelling] = number;
    return DRO_OK;
}

/* The class of a whole number in a new spelling: an old class, the next one, or -1 if there are too
 * many. Each class is also found by its plain spelling ("1" for "+1"). */
static dro_status class_of_value(dro_context *ctx, dro__classes *c, double value, const char *text,
                                 size_t length, int32_t *number)
{
    char plain[32];
    size_t size = (size_t)snprintf(plain, sizeof plain, "%lld", (long long)value);
    int32_t spelling = dro__names_find(&c->spellings, plain, size);
    *number = spelling < 0 ? -1 : c->class_of[spelling];
    if (*number >= 0) /* a closed set does not grow, however many spellings a stream has */
        return c->closed ? DRO_OK : add_spelling(ctx, c, text, length, *number);
    if (c->closed || c->count == CLASSES_MAX)
        return DRO_OK;
    DRO_TRY(
        dro__grow(ctx, (void **)&c->values, &c->value_capacity, c->count + 1, sizeof *c->values));
    DRO_TRY(dro__grow(ctx, (void **)&c->named_by, &c->name_capacity, c->count + 1,
                      sizeof *c->named_by));
    c->values[c->count] = value;
    c->named_by[c->count] = (int32_t)c->spellings.count;
    *number = (int32_t)c->count++;
    DRO_TRY(add_spelling(ctx, c, text, length, *number));
    return add_spelling(ctx, c, plain, size, *number);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

dro_status dro__classes_close(dro_context *ctx, dro__classes *c, int32_t **rank)
{
    double *sorted = dro__alloc(c->count, sizeof *sorted);
    int32_t *names = dro__alloc(c->count, sizeof *names), *to = dro__alloc(c->count, sizeof *to);
    if (!sorted || !names || !to) {
        dro__free(sorted), dro__free(names), dro__free(to);
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for %zu classes", c->count);
    }
    memcpy(sorted, c->values, c->count * sizeof *sorted);
    qsort(sorted, c->count, sizeof *sorted, by_value);
    for (size_t k = 0; k < c->count; k++) {
        double *place = bsearch(&c->values[k], sorted, c->count, sizeof *sorted, by_value);
        to[k] = (int32_t)(place - sorted);
        names[to[k]] = c->named_by[k];
    }
    for (size_t k = 0; k < c->spellings.count; k++)
        c->class_of[k] = to[c->class_of[k]];
    dro__free(c->values), dro__free(c->named_by);
    c->values = sorted;
    c->named_by = names;
    c->closed = true;
    *rank = to;
    return DRO_OK;
}

const char *dro__classes_name(const dro__classes *c, size_t number)
{
    return c->spellings.names[c->named_by[number]];
}

/* ---- rows ---- */

static dro_status bad(const dro__libsvm *r, const char *at, const char *what, const char *expected)
{
    char shown[SHOWN];
    return dro__fail(r->ctx, DRO_ERR_DATA, "%s: line %lld: %s %s: expected %s", r->name,
                     (long long)r->lines + 1, what, dro__text_show(at, shown, sizeof shown),
                     expected);
}

static inline bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static inline bool ends_word(char c)
{
    return is_blank(c) || c == '\n' || c == '#';
}

/* A spelling that was not seen before. */
static dro_status new_spelling(dro__libsvm *r, const char *text, size_t length, int32_t *number)
{
    dro__classes *c = r->classes;
    double value;
    const char *end = dro__number_double(text, &value);
    if (!end || end != text + length)
        return bad(r, text, "label", "one number, then index:value ...");
    if (!(fabs(value) <= 0x1p53) || value != floor(value))
        return bad(r, text, "label", "a whole number (target=real reads real-valued targets)");
    DRO_TRY(class_of_value(r->ctx, c, value, text, length, number));
    if (*number < 0 && c->closed)
        return bad(r, text, "label",
                   c->expected ? c->expected
                               : "one that the training file has, or a list as in classes=0:1");
    if (*number < 0)
        return bad(r, text, "one more label",
                   "at most 65536 (target=real reads real-valued targets)");
    return DRO_OK;
}

static dro_status read_label(dro__libsvm *r, const char **at)
{
    dro__table *t = r->table;
    const char *p = *at, *end = p;
    size_t n = (size_t)t->n;
    DRO_TRY(dro__grow(r->ctx, (void **)&t->starts, &r->start_capacity, n + 2, sizeof *t->starts));
    t->starts[0] = 0;
    if (!r->classes) {
        DRO_TRY(dro__grow(r->ctx, (void **)&t->targets, &r->target_capacity, n + 1,
                          sizeof *t->targets));
        end = dro__number_float(p, &t->targets[n]);
        if (!end || !ends_word(*end) || !isfinite(t->targets[n]))
            return bad(r, p, "target", "one finite number, then index:value ...");
        *at = end;
        return DRO_OK;
    }
    while (!ends_word(*end))
        end++;
    int32_t spelling = dro__names_find(&r->classes->spellings, p, (size_t)(end - p));
    int32_t number = spelling < 0 ? -1 : r->classes->class_of[spelling];
    if (spelling < 0)
        DRO_TRY(new_spelling(r, p, (size_t)(end - p), &number));
    DRO_TRY(dro__grow(r->ctx, (void **)&t->labels, &r->label_capacity, n + 1, sizeof *t->labels));
    t->labels[n] = number;
    *at = end;
    return DRO_OK;
}

/* Reports what is wrong with the pair at p, or skips it if it is qid:N. */
static dro_status odd_pair(dro__libsvm *r, const char **at)
{
    const char *p = *at, *q = p;
    if (strncmp(p, "qid:", 4) == 0) {
        if (!r->skip_qid)
            return bad(r, p, "found",
                       "index:value (qid=ignore reads past the qid of ranking data)");
        while (!ends_word(*q))
            q++;
        *at = q;
        return DRO_OK;
    }
    uint64_t index = 0;
    for (; *q >= '0' && *q <= '9'; q++)
        index = index < INT32_MAX ? 10 * index + (uint64_t)(*q - '0') : index;
    if (q == p || *q != ':')
        return bad(r, p, "found", "index:value");
    if (index > INDEX_MAX)
        return bad(r, p, "index of", "at most 2147483646");
    if (index == 0 && r->base == 1)
        return bad(r, p, "index of", "1 or more (base=0 reads files that count from 0)");
    return bad(r, p, "value of", "a finite number");
}

static dro_status bad_order(const dro__libsvm *r, const char *p, int64_t column, int64_t last)
{
    if (column <= last)
        return dro__fail(r->ctx, DRO_ERR_DATA,
                         "%s: line %lld: index %lld after %lld: expected increasing indices",
                         r->name, (long long)r->lines + 1, (long long)column + r->base,
                         (long long)last + r->base);
    char shown[SHOWN];
    return dro__fail(r->ctx, DRO_ERR_DATA,
                     "%s: line %lld: index of %s: expected at most %lld, as features=%d says",
                     r->name, (long long)r->lines + 1, dro__text_show(p, shown, sizeof shown),
                     (long long)r->limit - 1 + r->base, r->limit);
}

/* The pairs of a line, from p on, into arrays that are large enough. *at becomes the line's end. */
static dro_status read_pairs(dro__libsvm *r, const char **at, int64_t *place)
{
    int32_t *columns = r->table->columns;
    float *values = r->table->values;
    const char *p = *at;
    int64_t k = *place, last = -1, limit = r->limit ? r->limit : INT32_MAX;
    for (;;) {
        while (is_blank(*p))
            p++;
        if (*p == '\n' || *p == '#')
            break;
        const char *word = p;
        uint32_t index = 0;
        while ((unsigned char)(*p - '0') < 10 && p - word < 10)
            index = 10 * index + (uint32_t)(*p++ - '0'); /* wraps only beyond 4294967295 */
        const char *end = *p == ':' ? dro__number_float(p + 1, &values[k]) : NULL;
        int64_t column = (int64_t)index - r->base;
        if (!end || p == word || !ends_word(*end) || !isfinite(values[k]) || index > INDEX_MAX ||
            (p - word == 10 && *word > '2') || column < 0) {
            p = word;
            DRO_TRY(odd_pair(r, &p));
            continue;
        }
        if (column <= last || column >= limit)
            return bad_order(r, word, column, last);
        columns[k++] = (int32_t)(last = column);
        p = end;
    }
    if (last >= r->features) {
        r->features = (int32_t)last + 1;
        r->widest = r->lines + 1;
    }
    *place = k;
    *at = p;
    return DRO_OK;
}

dro_status dro__libsvm_rows(dro__libsvm *r, const char *begin, const char *end)
{
    dro__table *t = r->table;
    int64_t place = t->n > 0 ? t->starts[t->n] : 0;
    /* A pair takes four bytes or more ("1:1 "). */
    size_t most = (size_t)place + (size_t)(end - begin) / 4 + 1;
    DRO_TRY(dro__grow(r->ctx, (void **)&t->columns, &r->column_capacity, most, sizeof *t->columns));
    DRO_TRY(dro__grow(r->ctx, (void **)&t->values, &r->value_capacity, most, sizeof *t->values));
    if (r->lines == 0 && end - begin >= 3 && memcmp(begin, "\xef\xbb\xbf", 3) == 0)
        begin += 3; /* a byte-order mark */
    for (const char *p = begin; p < end; r->lines++) {
        while (is_blank(*p))
            p++;
        if (*p != '\n' && *p != '#') {
            DRO_TRY(read_label(r, &p));
            DRO_TRY(read_pairs(r, &p, &place));
            t->starts[++t->n] = place;
        }
        if (*p == '#')
            p = memchr(p, '\n', (size_t)(end - p));
        p++;
    }
    return DRO_OK;
}

/* ---- what a model keeps ---- */

dro_status dro__libsvm_base(dro_data *d, int32_t *base)
{
    static const char *const kept[] = {"libsvm 1 base=0", "libsvm 1 base=1"};
    int64_t value, model = d->given ? strcmp(d->given, kept[1]) == 0 : 1;
    if (d->given && strcmp(d->given, kept[model]) != 0)
        return dro__fail(d->ctx, DRO_ERR_DATA,
                         "the encoding in the weights file is damaged: expected %s or %s", kept[0],
                         kept[1]);
    DRO_TRY(dro__option_integer(d, "base", model, 0, 1, &value));
    if (d->given && value != model)
        return dro__fail(
            d->ctx, DRO_ERR_ARGUMENT,
            "base=%d: the model was trained with base=%d: expected the same, or no base=",
            (int)value, (int)model);
    *base = (int32_t)value;
    if (d->given)
        return DRO_OK;
    d->encoding = dro__alloc(strlen(kept[value]) + 1, 1);
    if (!d->encoding)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for the encoding");
    strcpy(d->encoding, kept[value]);
    return DRO_OK;
}

/* ---- the format ---- */

static dro_status read_file(dro_data *d, const char *path, dro__libsvm *r)
{
    dro__input *input;
    char *begin, *end;
    DRO_TRY(dro__input_open_all(d->ctx, path, &input));
    r->name = dro__input_name(input);
    dro_status status;
    size_t file = 0;
    do {
        status = dro__input_lines(input, &begin, &end);
        if (file != dro__input_file(input)) {
            file = dro__input_file(input);
            r->lines = 0;
        }
        if (status == DRO_OK && begin < end)
            status = dro__libsvm_rows(r, begin, end);
        if (status == DRO_ERR_MEMORY)
            dro__fail(d->ctx, status,
                      "%s: no memory after line %lld: expected a file that fits (a stream reads "
                      "larger ones)",
                      r->name, (long long)r->lines);
        if (status == DRO_OK)
            status = dro__fits(
                d->ctx, r->name,
                (r->label_capacity + r->target_capacity + r->column_capacity + r->value_capacity) *
                        sizeof(float) +
                    r->start_capacity * sizeof *r->table->starts);
    } while (status == DRO_OK && begin < end);
    if (status == DRO_OK && r->table->n == 0)
        status = dro__fail(d->ctx, DRO_ERR_DATA,
                           "%s: has no rows: expected lines of label index:value", r->name);
    if (dro__input_path(input, 0))
        r->widest = 0; /* find the file of the line */
    d->bytes_read += dro__input_fetched(input);
    dro__input_close(input);
    return status;
}

dro_status dro__libsvm_listed(dro_data *d, dro__libsvm *r)
{
    const char *list = dro__option(d, "classes");
    const char *name = r->name;
    int32_t number, *rank;
    if (!list || !r->classes)
        return DRO_OK;
    r->name = "classes=";
    for (const char *p = list; *p;) {
        size_t length = strcspn(p, ":");
        char word[64] = {0};
        memcpy(word, p, length < sizeof word ? length : sizeof word - 1);
        bool fits = length > 0 && length < sizeof word;
        dro_status status = fits ? new_spelling(r, word, length, &number) : DRO_ERR_RANGE;
        if (status == DRO_ERR_MEMORY)
            return status;
        if (status != DRO_OK)
            return dro__fail(d->ctx, DRO_ERR_RANGE,
                             "classes=%.60s: expected whole numbers, as in classes=-1:1", list);
        p += length + (p[length] == ':');
    }
    r->name = name;
    DRO_TRY(dro__classes_close(d->ctx, r->classes, &rank));
    dro__free(rank);
    return DRO_OK;
}

/* After the training file: its classes are all there are. */
static dro_status close_classes(dro_data *d, dro__classes *c, dro__table *train)
{
    int32_t *rank;
    if (c->closed)
        return DRO_OK;
    DRO_TRY(dro__classes_close(d->ctx, c, &rank));
    for (int64_t i = 0; i < train->n; i++)
        train->labels[i] = rank[train->labels[i]];
    dro__free(rank);
    return DRO_OK;
}

static dro_status take_names(dro_data *d, const dro__classes *c)
{
    d->class_names = dro__alloc(c->count, sizeof *d->class_names);
    if (!d->class_names)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %zu classes", c->count);
    d->classes = (int32_t)c->count;
    for (size_t k = 0; k < c->count; k++) {
        const char *name = dro__classes_name(c, k);
        d->class_names[k] = dro__alloc(strlen(name) + 1, 1);
        if (!d->class_names[k])
            return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %zu classes", c->count);
        strcpy(d->class_names[k], name);
    }
    return DRO_OK;
}

/* The test file: test=, or FILE.t if it is there; *path is NULL or freed with dro__free. */
static dro_status test_path(dro_data *d, char **path)
{
    const char *given = dro__option(d, "test"), *train = d->spec.path;
    *path = NULL;
    if (given)
        return dro__path_join(d->ctx, given, "", path);
    size_t length = strlen(train);
    if (strcmp(train, "-") == 0)
        return DRO_OK;
    char *beside = dro__alloc(length + 3, 1);
    if (!beside)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for a path");
    memcpy(beside, train, length);
    memcpy(beside + length, ".t", 3);
    if (dro__file_exists(beside))
        *path = beside;
    else
        dro__free(beside);
    return DRO_OK;
}

static dro_status read_both(dro_data *d, dro__libsvm *r, const char *test)
{
    DRO_TRY(dro__libsvm_listed(d, r));
    r->table = &d->split[DRO_TRAIN];
    DRO_TRY(read_file(d, d->spec.path, r));
    if (r->classes)
        DRO_TRY(close_classes(d, r->classes, &d->split[DRO_TRAIN]));
    if (test) {
        dro__libsvm second = {.ctx = r->ctx,
                              .classes = r->classes,
                              .table = &d->split[DRO_TEST],
                              .base = r->base,
                              .limit = r->limit,
                              .skip_qid = r->skip_qid,
                              .features = r->features};
        DRO_TRY(read_file(d, test, &second));
        r->features = second.features;
        d->widest_in = second.widest ? DRO_TEST : DRO_TRAIN;
        r->widest = second.widest ? second.widest : r->widest;
    }
    d->widest = r->limit ? 0 : r->widest;
    d->kind = DRO_DATA_SPARSE;
    d->features = r->limit ? (size_t)r->limit : (size_t)r->features;
    if (d->features == 0)
        return dro__fail(d->ctx, DRO_ERR_DATA, "%s: no row has a feature: expected index:value",
                         d->spec.path);
    return r->classes ? take_names(d, r->classes) : DRO_OK;
}

static dro_status choose(dro_data *d, const char *name, const char *only, bool *chosen)
{
    const char *value = dro__option(d, name);
    *chosen = value != NULL;
    if (value && strcmp(value, only) != 0)
        return dro__fail(d->ctx, DRO_ERR_RANGE, "%s=%.40s: expected %s=%s or nothing", name, value,
                         name, only);
    return DRO_OK;
}

static dro_status open_libsvm(dro_data *d)
{
    dro__classes classes = {0};
    dro__libsvm reader = {.ctx = d->ctx};
    int64_t limit;
    bool real;
    char *test;
    DRO_TRY(choose(d, "target", "real", &real));
    DRO_TRY(choose(d, "qid", "ignore", &reader.skip_qid));
    DRO_TRY(dro__libsvm_base(d, &reader.base));
    DRO_TRY(dro__option_integer(d, "features", 0, 1, INT32_MAX - 1, &limit));
    DRO_TRY(test_path(d, &test));
    reader.limit = (int32_t)limit;
    reader.classes = real ? NULL : &classes;
    dro_status status = read_both(d, &reader, test);
    dro__classes_free(&classes);
    dro__free(test);
    return status;
}

static const char *const options[] = {"test",   "features", "base",  "classes",
                                      "target", "qid",      "scale", NULL};

static const char *const endings[] = {"libsvm", "svm", "svmlight", NULL};

const dro__format dro__format_libsvm = {
    .name = "libsvm",
    .stream = &dro__rows_libsvm,
    .endings = endings,
    .usage = "FILE[,test=FILE][,features=D][,base=0|1][,classes=-1:1][,target=real][,qid=ignore]"
             "[,scale=standard|none]",
    .summary = "sparse rows, `label index:value ...` (FILE.t beside FILE is the test split)",
    .options = options,
    .open = open_libsvm};
