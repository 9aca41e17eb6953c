/* Streams of libsvm rows (format_libsvm.c parses them, line by line here). */
#include "stream.h"
#include "text.h"

#include <string.h>

typedef struct source {
    dro__libsvm reader;
    char *line, *end; /* what is left of the window */
    bool over, sign, zeros, minuses;
    const char *positive; /* this label against all others, or NULL */
    double positive_value;
    const char *names[2]; /* of the classes, with labels=sign or positive= */
} source;

static dro_status read_options(dro__row_reader *r, source *s)
{
    static const char *const reals[] = {"real", NULL}, *const ignores[] = {"ignore", NULL},
                             *const kinds[] = {"sign", "written", NULL};
    dro_data *d = &r->data;
    int labels, real, qid;
    int64_t features;
    int32_t base;
    if (!dro__option(d, "features"))
        return dro__fail(d->ctx, DRO_ERR_ARGUMENT,
                         "no features= in the SPEC of a stream: expected the number of columns, as "
                         "in libsvm:FILE,features=123");
    DRO_TRY(dro__rows_choose(r, "target", reals, &real));
    DRO_TRY(dro__rows_choose(r, "labels", kinds, &labels));
    DRO_TRY(dro__rows_choose(r, "qid", ignores, &qid));
    s->positive = dro__option(d, "positive");
    if ((real && labels == 1) || (s->positive && (real || labels)))
        return dro__fail(d->ctx, DRO_ERR_ARGUMENT,
                         "labels=, positive= and target=: expected one of them");
    const char *end = s->positive ? dro__number_double(s->positive, &s->positive_value) : "";
    if (!end || *end)
        return dro__fail(d->ctx, DRO_ERR_RANGE, "positive=%.40s: expected a label, a number",
                         s->positive);
    DRO_TRY(dro__libsvm_base(d, &base));
    DRO_TRY(dro__option_integer(d, "features", 0, 1, INT32_MAX - 1, &features));
    d->features = (size_t)features;
    s->sign = !real && labels != 2;
    s->names[0] = s->positive ? "other" : "-1";
    s->names[1] = s->positive ? s->positive : "1";
    r->classes = s->names;
    r->class_count = s->sign ? 2 : 0;
    s->reader = (dro__libsvm){.ctx = d->ctx,
                              .name = r->name,
                              .table = &r->row,
                              .base = base,
                              .limit = (int32_t)features,
                              .skip_qid = qid != 0};
    return DRO_OK;
}

static dro_status open_rows(dro__row_reader *r)
{
    r->state = dro__alloc(1, sizeof(source));
    if (!r->state)
        return dro__fail(r->data.ctx, DRO_ERR_MEMORY, "no memory for a stream");
    return read_options(r, r->state);
}

/* labels=sign: the labels are those of two classes, 1 and either -1 or 0, or positive= and all
 * others. */
static dro_status two_classes(const dro__row_reader *r, source *s, float *y)
{
    if (s->positive) {
        *y = *y == (float)s->positive_value ? 1 : -1;
        return DRO_OK;
    }
    if (*y != 1 && *y != 0 && *y != -1)
        return dro__fail(r->data.ctx, DRO_ERR_DATA,
                         "%s: line %lld: label %g: expected 1 and -1, or 1 and 0 (positive=%g "
                         "takes it against all others, target=real reads numbers)",
                         r->name, (long long)r->lines, (double)*y, (double)*y);
    s->zeros |= *y == 0;
    s->names[0] = s->zeros ? "0" : "-1";
    s->minuses |= *y == -1;
    if (s->zeros && s->minuses)
        return dro__fail(r->data.ctx, DRO_ERR_DATA,
                         "%s: line %lld: label %g: expected two classes, but labels 0 and -1 both "
                         "came (positive=1 takes 1 against both)",
                         r->name, (long long)r->lines, (double)*y);
    *y = *y > 0 ? 1 : -1;
    return DRO_OK;
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
    return s->sign ? two_classes(r, s, r->row.targets) : DRO_OK;
}

static void close_rows(dro__row_reader *r)
{
    dro__free(r->state);
}

static uint64_t memory_of(const dro__row_reader *r)
{
    const source *s = r->state;
    return sizeof *s + (s->reader.column_capacity + s->reader.value_capacity) * sizeof(float) +
           s->reader.start_capacity * sizeof(int64_t) + s->reader.target_capacity * sizeof(float);
}

static const char *const options[] = {"features", "base", "shuffle", "target", "labels",
                                      "positive", "qid",  "learn",   "scale",  NULL};

const dro__rows_class dro__rows_libsvm = {
    .format = {.name = "libsvm",
               .usage = "FILE,features=D[,shuffle=N][,seed=N]",
               .options = options},
    .expected = "lines of label index:value",
    .open = open_rows,
    .next = next_row,
    .close = close_rows,
    .memory = memory_of};
