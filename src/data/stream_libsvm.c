/* Streams of libsvm rows (format_libsvm.c parses them, line by line here). */
#include "stream.h"
#include "text.h"

#include <math.h>
#include <string.h>

/* SIGN: 1 and either -1 or 0. CLASSES: any number; those of the first rows, or of classes=. */
typedef enum labels { SIGN, CLASSES, WRITTEN, ONE } labels;

typedef struct source {
    dro__libsvm reader;
    char *line, *end; /* what is left of the window */
    bool over, zeros, minuses;
    labels labels;
    const char *positive; /* ONE: this label against all others */
    double positive_value;
    const char *pair[2]; /* names with SIGN and ONE */
    dro__classes classes;
    const char **sorted; /* (classes) names, borrowed */
    bool from_zero;      /* labels=classes: y is 0 and 1 of two classes too */
} source;

static dro_status set_names(dro__row_reader *r, source *s)
{
    const dro__classes *c = &s->classes;
    s->sorted = dro__alloc(c->count, sizeof *s->sorted);
    if (!s->sorted)
        return dro__fail(r->data.ctx, DRO_ERR_MEMORY, "no memory for %zu classes", c->count);
    for (size_t k = 0; k < c->count; k++)
        s->sorted[k] = dro__classes_name(c, k);
    r->classes = s->sorted;
    r->class_count = (int32_t)c->count;
    return DRO_OK;
}

static dro_status read_options(dro__row_reader *r, source *s)
{
    static const char *const reals[] = {"real", NULL}, *const ignores[] = {"ignore", NULL},
                             *const kinds[] = {"sign", "classes", "written", NULL};
    dro_data *d = &r->data;
    int chosen, real, qid;
    int64_t features;
    int32_t base;
    if (!dro__option(d, "features"))
        return dro__fail(d->ctx, DRO_ERR_ARGUMENT,
                         "no features= in the SPEC of a stream: expected the number of columns, as "
                         "in libsvm:FILE,features=123");
    DRO_TRY(dro__rows_choose(r, "target", reals, &real));
    DRO_TRY(dro__rows_choose(r, "labels", kinds, &chosen));
    DRO_TRY(dro__rows_choose(r, "qid", ignores, &qid));
    s->positive = dro__option(d, "positive");
    DRO_TRY(dro__rows_one_way(r, chosen > 0, real > 0));
    const char *end = s->positive ? dro__number_double(s->positive, &s->positive_value) : "";
    if (!end || *end)
        return dro__fail(d->ctx, DRO_ERR_RANGE, "positive=%.40s: expected a label, a number",
                         s->positive);
    DRO_TRY(dro__libsvm_base(d, &base));
    DRO_TRY(dro__option_integer(d, "features", 0, 1, INT32_MAX - 1, &features));
    d->features = (size_t)features;
    s->labels = chosen ? (labels)(chosen - 1) : CLASSES;
    s->labels = s->positive ? ONE : real ? WRITTEN : s->labels;
    s->from_zero = chosen > 0;
    s->pair[0] = s->positive ? "other" : "-1";
    s->pair[1] = s->positive ? s->positive : "1";
    r->classes = s->pair;
    r->class_count = s->labels == WRITTEN ? 0 : 2;
    s->reader = (dro__libsvm){.ctx = d->ctx,
                              .name = r->name,
                              .classes = s->labels == CLASSES ? &s->classes : NULL,
                              .table = &r->row,
                              .base = base,
                              .limit = (int32_t)features,
                              .skip_qid = qid != 0};
    DRO_TRY(dro__libsvm_listed(d, &s->reader));
    r->learns = s->labels == CLASSES && !s->classes.closed;
    s->classes.expected =
        r->learns ? "one that the first rows have (classes=A:B:C lists all, learn=N reads more "
                    "rows first)"
                  : "one that classes= lists";
    if (s->classes.closed && s->classes.count < 2)
        return dro__fail(d->ctx, DRO_ERR_RANGE,
                         "classes=: expected two or more, as in classes=1:2");
    return s->classes.closed ? set_names(r, s) : DRO_OK;
}

static dro_status open_rows(dro__row_reader *r)
{
    r->state = dro__alloc(1, sizeof(source));
    if (!r->state)
        return dro__fail(r->data.ctx, DRO_ERR_MEMORY, "no memory for a stream");
    r->row.targets = dro__alloc(1, sizeof *r->row.targets);
    if (!r->row.targets)
        return dro__fail(r->data.ctx, DRO_ERR_MEMORY, "no memory for a stream");
    DRO_TRY(read_options(r, r->state));
    source *s = r->state;
    s->reader.target_capacity = 1;
    return DRO_OK;
}

/* SIGN: two classes, labelled 1 and either -1 or 0. ONE: the label of positive=, and all others. */
static dro_status two_classes(const dro__row_reader *r, source *s, float *y)
{
    if (s->positive) {
        *y = *y == (float)s->positive_value ? 1 : -1;
        return DRO_OK;
    }
    if (*y != 1 && *y != 0 && *y != -1)
        return dro__fail(r->data.ctx, DRO_ERR_DATA,
                         "%s: line %lld: label %g: expected 1 and -1, or 1 and 0 (classes=A:B:C "
                         "lists more, positive=%g takes it against all others, target=real reads "
                         "numbers)",
                         r->name, (long long)r->lines, (double)*y, (double)*y);
    s->zeros |= *y == 0;
    s->pair[0] = s->zeros ? "0" : "-1";
    s->minuses |= *y == -1;
    if (s->zeros && s->minuses)
        return dro__fail(r->data.ctx, DRO_ERR_DATA,
                         "%s: line %lld: label %g: expected two classes, but labels 0 and -1 both "
                         "came (positive=1 takes 1 against both)",
                         r->name, (long long)r->lines, (double)*y);
    *y = *y > 0 ? 1 : -1;
    return DRO_OK;
}

/* Whether the labels so far are those of labels=sign. */
static bool are_signs(const dro__classes *c)
{
    bool zeros = false, minuses = false;
    for (size_t k = 0; k < c->count; k++) {
        zeros = zeros || c->values[k] == 0;
        minuses = minuses || c->values[k] == -1;
        if (fabs(c->values[k]) > 1)
            return false;
    }
    return !zeros || !minuses;
}

static float target_of(const source *s, int32_t class)
{
    if (s->classes.count > 2 || s->from_zero)
        return (float)class;
    return class ? 1 : -1;
}

/* In the first rows, classes are numbered in the order of appearance. If their labels are 1 and -1,
 * or 1 and 0, or only one of these, the rest is read with labels=sign: the other label may come
 * later. */
static dro_status learn(dro__row_reader *r, dro__table *first)
{
    source *s = r->state;
    dro__classes *c = &s->classes;
    int32_t *rank;
    if (!s->from_zero && are_signs(c)) {
        s->labels = SIGN;
        s->reader.classes = NULL;
        for (int64_t i = 0; i < first->n; i++) {
            first->targets[i] = (float)c->values[(int32_t)first->targets[i]];
            DRO_TRY(two_classes(r, s, &first->targets[i]));
        }
        return DRO_OK;
    }
    if (c->count < 2 && first->n > 0)
        return dro__fail(r->data.ctx, DRO_ERR_DATA,
                         "%s: the first %lld rows all have the label %s: expected two classes or "
                         "more (learn=N reads more rows first, classes=A:B:C lists them)",
                         r->name, (long long)first->n, dro__classes_name(c, 0));
    r->data.learned = true;
    DRO_TRY(dro__classes_close(r->data.ctx, c, &rank));
    for (int64_t i = 0; i < first->n; i++)
        first->targets[i] = target_of(s, rank[(int32_t)first->targets[i]]);
    dro__free(rank);
    return set_names(r, s);
}

static dro_status next_row(dro__row_reader *r, bool *got)
{
    source *s = r->state;
    r->row.n = 0;
    while (r->row.n == 0) {
        if (s->line == s->end && !s->over)
            DRO_TRY(dro__input_lines(r->input, &s->line, &s->end));
        s->over = s->over || s->line == s->end;
        if (!s->over && r->file != dro__input_file(r->input)) {
            r->file = dro__input_file(r->input);
            s->reader.lines = 0;
        }
        *got = !s->over;
        if (s->over)
            return DRO_OK;
        char *next = (char *)memchr(s->line, '\n', (size_t)(s->end - s->line)) + 1;
        size_t length = (size_t)(next - s->line);
        r->longest = length > r->longest ? length : r->longest;
        dro_status status = dro__libsvm_rows(&s->reader, s->line, next);
        r->lines = s->reader.lines;
        DRO_TRY(status);
        s->line = next;
    }
    r->unfinished = s->line == s->end && dro__input_unfinished(r->input);
    if (s->labels == CLASSES)
        r->row.targets[0] =
            s->classes.closed ? target_of(s, r->row.labels[0]) : (float)r->row.labels[0];
    return s->labels == SIGN || s->labels == ONE ? two_classes(r, s, r->row.targets) : DRO_OK;
}

static void close_rows(dro__row_reader *r)
{
    source *s = r->state;
    if (!s)
        return;
    dro__classes_free(&s->classes);
    dro__free(s->sorted);
    dro__free(s);
}

static uint64_t memory_of(const dro__row_reader *r)
{
    const source *s = r->state;
    return sizeof *s + dro__names_bytes(&s->classes.spellings) +
           s->classes.count * (sizeof *s->classes.values + sizeof *s->sorted) +
           (s->reader.column_capacity + s->reader.value_capacity) * sizeof(float) +
           s->reader.start_capacity * sizeof(int64_t) + s->reader.target_capacity * sizeof(float);
}

static const char *const options[] = {"features", "base", "shuffle", "target", "labels", "positive",
                                      "classes",  "qid",  "learn",   "scale",  NULL};

const dro__rows_class dro__rows_libsvm = {
    .format = {.name = "libsvm",
               .usage = "FILE,features=D[,shuffle=N][,seed=N]",
               .options = options},
    .expected = "lines of label index:value",
    .open = open_rows,
    .next = next_row,
    .close = close_rows,
    .memory = memory_of,
    .learn = learn};
