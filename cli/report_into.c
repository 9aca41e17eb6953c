/* The table of a report as Markdown, and its place in a document: between a line <!-- NAME --> and
 * the next line <!-- end -->. The rest of the document does not change. */
#include "runs.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { COLUMNS = 16 };

typedef struct column {
    const char *word;
    dro_measure measure; /* of its values */
    double reach;        /* if not NaN: the cost until F was at most this */
    bool stay;           /* for good */
} column;

/* ---- which columns ---- */

static int read_column(const char *word, column *c)
{
    char name[64];
    const char *colon = strchr(word, ':');
    char *end = NULL;
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, ":"), word);
    *c = (column){.word = word, .reach = colon ? strtod(colon + 1, &end) : NAN};
    for (int k = 0; k < DRO_MEASURES; k++)
        if (strcmp(dro_measure_name((dro_measure)k), name) == 0) {
            bool pace = k == DRO_MEASURE_SECONDS || k == DRO_MEASURE_EXAMPLES;
            c->measure = (dro_measure)k;
            bool valid = colon && pace && end != colon + 1 && isfinite(c->reach);
            c->stay = valid && strcmp(end, ":stay") == 0;
            if (!colon || (valid && (c->stay || !*end)))
                return 0;
        }
    return cli_usage("report: --columns %s: expected metrics as in accuracy,rare_accuracy, or "
                     "examples:F and seconds:F: until F is reached, examples:F:stay: for good",
                     word);
}

/* ---- the table ---- */

static void print_value(FILE *out, dro_measure measure, double value, double error)
{
    bool percent = strcmp(dro_measure_unit(measure), "%") == 0;
    double factor = percent ? 100 : 1;
    const char *form = percent                           ? "%.2f"
                       : measure == DRO_MEASURE_SECONDS  ? "%.1f"
                       : measure == DRO_MEASURE_EXAMPLES ? "%.0f"
                                                         : "%.4f";
    fprintf(out, form, percent ? cli_percent(value) : value);
    if (isfinite(error)) {
        fputs(" \xc2\xb1 ", out);
        fprintf(out, form, factor * error);
    }
}

static int print_cell(FILE *out, dro_report *report, int32_t index, const dro_report_method *m,
                      const column *c)
{
    dro_statistic s = m->measures[c->measure];
    if (!isnan(c->reach) &&
        dro_report_reach(report, index, c->reach, c->stay, c->measure, &s) != DRO_OK)
        return cli_fail("no memory for the report");
    fputs(" ", out);
    if (s.count)
        print_value(out, c->measure, s.mean, s.error);
    else
        fputs(isnan(c->reach) ? "-" : "not reached", out);
    if (s.count && s.count < m->runs)
        fprintf(out, " (%d of %d)", (int)s.count, (int)m->runs);
    fputs(" |", out);
    return 0;
}

static void print_head(FILE *out, const column *columns, int count)
{
    fputs("| method | runs |", out);
    for (int k = 0; k < count; k++) {
        const char *unit = dro_measure_unit(columns[k].measure);
        if (isnan(columns[k].reach))
            fprintf(out, " %s%s%s |", dro_measure_title(columns[k].measure), *unit ? " " : "",
                    unit);
        else
            fprintf(out, " %s until F \xe2\x89\xa4 %g%s |",
                    columns[k].measure == DRO_MEASURE_SECONDS ? "seconds" : "examples",
                    columns[k].reach, columns[k].stay ? " for good" : "");
    }
    fputs("\n| --- | ---: |", out);
    for (int k = 0; k < count; k++)
        fputs(" ---: |", out);
    fputs("\n", out);
}

static int print_table(FILE *out, dro_report *report, const column *columns, int count)
{
    dro_report_method m;
    int status = 0;
    print_head(out, columns, count);
    for (int32_t i = 0; status == 0 && dro_report_method_get(report, i, &m) == DRO_OK; i++) {
        fprintf(out, "| %s | %d", m.name, (int)m.runs);
        if (m.diverged)
            fprintf(out, " (%d diverged)", (int)m.diverged);
        fputs(" |", out);
        for (int k = 0; k < count && status == 0; k++)
            status = print_cell(out, report, i, &m, &columns[k]);
        fputs("\n", out);
    }
    return status;
}

/* ---- the document ---- */

static char *read_all(const char *path)
{
    struct stat about;
    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode)) {
        errno = EINVAL;
        return NULL;
    }
    FILE *file = fopen(path, "rb");
    size_t size = 0, capacity = 1 << 16, got;
    char *text = file ? malloc(capacity + 1) : NULL;
    while (text && (got = fread(text + size, 1, capacity - size, file)) > 0)
        if ((size += got) == capacity) {
            char *more = realloc(text, 2 * capacity + 1);
            if (!more)
                free(text);
            text = more;
            capacity *= 2;
        }
    if (text && ferror(file)) {
        free(text);
        text = NULL;
    }
    if (text)
        text[size] = '\0';
    if (file)
        fclose(file);
    return text;
}

static int write_all(const char *path, const char *text)
{
    cli_file file;
    int status = cli_file_open(&file, path);
    if (status)
        return status;
    fputs(text, file.to);
    return cli_file_close(&file, 0);
}

/* The document with `table` at its place; NULL: it has no such place. */
static char *placed(const char *document, const char *name, const char *table)
{
    char mark[200], *made = NULL;
    snprintf(mark, sizeof mark, "<!-- %.150s -->\n", name);
    const char *begin = strstr(document, mark);
    const char *end = begin ? strstr(begin, "<!-- end -->") : NULL;
    if (!end)
        return NULL;
    size_t head = (size_t)(begin - document) + strlen(mark);
    size_t size = head + strlen(table) + strlen(end) + 1;
    if ((made = malloc(size)))
        snprintf(made, size, "%.*s%s%s", (int)head, document, table, end);
    return made;
}

static int place(const char *where, const char *table)
{
    char path[4096];
    const char *hash = strrchr(where, '#');
    if (!hash || hash == where || !hash[1] || hash - where >= (long)sizeof path)
        return cli_usage("report: --into %s: expected FILE#NAME", where);
    snprintf(path, sizeof path, "%.*s", (int)(hash - where), where);
    char *document = read_all(path);
    if (!document)
        return cli_fail("%s: cannot read it: %s", path, strerror(errno));
    char *made = placed(document, hash + 1, table);
    int status = 0;
    if (!made)
        status =
            cli_fail("%s: no line <!-- %s --> with a line <!-- end --> after it", path, hash + 1);
    else if (strcmp(made, document) != 0)
        status = write_all(path, made);
    free(document);
    free(made);
    return status;
}

int cli_report_into(dro_report *report, const char *where, const char *words)
{
    static const char *parts[COLUMNS]; /* the texts are never freed */
    column columns[COLUMNS];
    char *table = NULL;
    size_t size = 0;
    int count = cli_runs_split(words, parts, COLUMNS), status = 0;
    if (count < 1)
        return cli_usage("report: --columns %s: expected up to %d metrics with commas between",
                         words, COLUMNS);
    for (int k = 0; k < count && status == 0; k++)
        status = read_column(parts[k], &columns[k]);
    FILE *out = status ? NULL : open_memstream(&table, &size);
    if (!out)
        return status ? status : cli_fail("no memory for the report");
    status = print_table(out, report, columns, count);
    bool whole = !ferror(out);
    whole = fclose(out) == 0 && whole && table; /* without memory it is NULL */
    if (status == 0)
        status = whole ? place(where, table) : cli_fail("no memory for the report");
    free(table);
    return status;
}
