/* list:FILE,root=DIR: a text file of `path label` lines, as ImageNet-LT and Places-LT are given.
 *
 * The label is the last word of a line, a whole number from 0; the path is what stands before it
 * and may hold spaces. There are as many classes as the largest label says; each needs a line of
 * the training file, for training only, as a model may see a part of them. The images are not
 * looked at. A path may not leave the root by itself; a link in the root may, as whoever made the
 * folder wanted it so. */
#include "image_files.h"
#include "image.h"

#include <string.h>

enum { LABEL_MAX = 999999 };

typedef struct lines {
    dro_data *data;
    const char *name;
    dro__files files;
    int64_t line;
    int32_t most;      /* largest label */
    int64_t most_line; /* the first with it */
    bool test;
} lines;

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static dro_status bad_line(const lines *l, const char *why)
{
    return dro__fail(l->data->ctx, DRO_ERR_DATA, "%s: line %lld: %s", l->name, (long long)l->line,
                     why);
}

/* One line [p, end) without its newline. */
static dro_status add_line(lines *l, const char *p, const char *end)
{
    int32_t label = 0;
    while (p < end && is_space(*p))
        p++;
    while (end > p && is_space(end[-1]))
        end--;
    if (p == end)
        return DRO_OK;
    const char *word = end;
    while (word > p && !is_space(word[-1]))
        word--;
    const char *stop = word;
    while (stop > p && is_space(stop[-1]))
        stop--;
    if (stop == p)
        return bad_line(l, "expected `path label`, found one word");
    for (const char *digit = word; digit < end; digit++) {
        if (*digit < '0' || *digit > '9')
            return bad_line(l, "expected a label at the end, a whole number from 0");
        label = 10 * label + (*digit - '0');
        if (label > LABEL_MAX)
            return bad_line(l, "the label is above 999999");
    }
    const char *why = dro__path_refused(p, (size_t)(stop - p));
    if (why)
        return dro__fail(l->data->ctx, DRO_ERR_DATA, "%s: line %lld: the path '%.*s' %s", l->name,
                         (long long)l->line, (int)(stop - p < 100 ? stop - p : 100), p, why);
    if (l->test && (label >= l->data->classes || l->data->counts[DRO_TRAIN][label] == 0))
        return dro__fail(l->data->ctx, DRO_ERR_DATA,
                         "%s: line %lld: label %d: expected one that the training file has",
                         l->name, (long long)l->line, label);
    if (label > l->most) {
        l->most = label;
        l->most_line = l->line;
    }
    return dro__files_add(l->data->ctx, &l->files, p, (size_t)(stop - p), l->line - 1, label);
}

static dro_status read_lines(lines *l, dro__input *input)
{
    char *p, *end;
    for (;;) {
        DRO_TRY(dro__input_lines(input, &p, &end));
        DRO_TRY(dro__fits(l->data->ctx, l->name,
                          l->files.text_capacity + l->files.record_capacity * 3 * sizeof(int64_t)));
        if (p == end)
            return DRO_OK;
        if (l->line == 0 && end - p >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
            p += 3; /* a byte order mark */
        while (p < end) {
            char *newline = memchr(p, '\n', (size_t)(end - p));
            l->line++;
            DRO_TRY(add_line(l, p, newline));
            p = newline + 1;
        }
    }
}

/* After the training file: checks which labels it has. */
static dro_status close_labels(const lines *l)
{
    dro_data *d = l->data;
    int32_t k = 0;
    d->classes = l->most + 1;
    DRO_TRY(dro__count_split(d, DRO_TRAIN));
    while (k < d->classes && d->counts[DRO_TRAIN][k] > 0)
        k++;
    if (k == d->classes)
        return DRO_OK;
    DRO_TRY(dro__remark(d,
                        "%s: line %lld: label %d, but no line has label %d: expected all from 0 on",
                        l->name, (long long)l->most_line, l->most, k));
    d->untrained = d->remarks.texts[d->remarks.count - 1];
    return DRO_OK;
}

dro_status dro__list_read(dro_data *d, dro__input *input, const char *root, dro_split split)
{
    lines l = {.data = d,
               .name = dro__path_tail(dro__input_name(input)),
               .files = {.table = &d->split[split], .dir = root},
               .most = -1,
               .test = split == DRO_TEST};
    DRO_TRY(read_lines(&l, input));
    if (d->split[split].n == 0)
        return dro__fail(d->ctx, DRO_ERR_DATA, "%s: is empty: expected lines of `path label`",
                         l.name);
    return l.test ? DRO_OK : close_labels(&l);
}

static dro_status read_file(dro_data *d, const char *path, const char *root, dro_split split)
{
    dro__input *input;
    DRO_TRY(dro__input_open(d->ctx, path, &input));
    dro_status status = dro__list_read(d, input, root, split);
    d->bytes_read += dro__input_fetched(input);
    dro__input_close(input);
    return status;
}

static dro_status open_list(dro_data *d)
{
    const char *root, *test = dro__option(d, "test");
    DRO_TRY(dro__files_root(d, &root));
    DRO_TRY(read_file(d, d->spec.path, root, DRO_TRAIN));
    if (test)
        DRO_TRY(read_file(d, test, root, DRO_TEST));
    return dro__files_open(d);
}

static const char *const options[] = {"root", "test", DRO__FILES_OPTIONS, NULL};

const dro__format dro__format_list = {
    .name = "list",
    .usage = "FILE,root=DIR[,test=FILE2][,channels=1|3][,size=N]",
    .summary = "images named by lines of `path label` (ImageNet-LT, Places-LT)",
    .options = options,
    .files = true,
    .record = "line",
    .open = open_list};
