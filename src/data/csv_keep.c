/* The encoding of a CSV file as a text that is kept with a model, and other files read by it: their
 * cells become the features that the model was trained on, whatever those files hold and in
 * whatever order.
 *
 * Lines of words between single spaces; a text is written 'TEXT, every byte that is no letter or
 * digit as %XX:
 *
 *     csv 1 COLUMNS LABEL header|plain classes|real dense|sparse MISSING
 *     label NAME
 *     dropped NAME
 *     limited|tailed|number|plain NAME CENTRE FACTOR [UNIT MOST]
 *     words NAME missing|whole COUNT CATEGORY ...
 *
 * One line for each column. tailed: limited, with a feature for what is beyond the limit. Behind
 * the first word of a column of numbers: $ and the unit of formatted numbers, @ and the order of
 * dates; then a comma where decimal commas are read; then + with a feature for what the limit takes
 * off, its unit and the most of training; last ? with an indicator of missing values.
 *
 * LABEL is the label's column from 0, MISSING the text of missing=, ' without one. With a header
 * the columns of a file are found by their names and others are skipped; without, by their
 * places. The label may be missing. Nothing in a text is trusted. */
#include "csv.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MOST = 1 << 24 }; /* bytes; a larger encoding is not kept */

/* ---- writing ---- */

typedef struct writer {
    char *text; /* NULL: only measured */
    size_t used;
} writer;

static void put(writer *w, const char *text)
{
    size_t size = strlen(text);
    if (w->text)
        memcpy(w->text + w->used, text, size + 1);
    w->used += size;
}

static void put_text(writer *w, const char *text)
{
    char code[4];
    put(w, " '");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        snprintf(code, sizeof code, c < 128 && isalnum(c) ? "%c" : "%%%02X", c);
        put(w, code);
    }
}

static void put_number(writer *w, double value)
{
    char text[40];
    snprintf(text, sizeof text, " %.17g", value);
    for (char *c = text; *c; c++)
        *c = *c == ',' ? '.' : *c; /* where the locale writes one */
    put(w, text);
}

static void put_categories(writer *w, const dro__column *c, const size_t *order)
{
    char head[64];
    snprintf(head, sizeof head, " %s %zu", c->missing ? "missing" : "whole", c->categories.count);
    put(w, head);
    for (size_t k = 0; k < c->categories.count; k++)
        put_text(w, c->categories.names[order[k]]);
}

static const char *kind_of(const dro__column *c)
{
    if (c->left_out)
        return c->dropped ? "dropped" : "label";
    if (!c->numeric)
        return "words";
    if (c->limited)
        return c->tail ? "tailed" : "limited";
    return c->plain ? "plain" : "number";
}

static dro_status put_column(writer *w, const dro__csv *csv, const dro__column *c, const char *name)
{
    put(w, "\n");
    put(w, kind_of(c));
    char date[4], unit[4];
    snprintf(date, sizeof date, "@%d", c->date % 10);
    snprintf(unit, sizeof unit, "$%d", c->unit % 10);
    put(w, c->numeric && !c->left_out && c->date ? date : "");
    put(w, c->numeric && !c->left_out && c->formatted && !c->date ? unit : "");
    put(w, c->numeric && !c->left_out && c->commas && !c->date ? "," : "");
    put(w, c->numeric && !c->left_out && c->excess ? "+" : "");
    put(w, c->numeric && !c->left_out && c->missing ? "?" : "");
    put_text(w, name);
    if (c->left_out)
        return DRO_OK;
    if (c->numeric) {
        put_number(w, c->centre);
        put_number(w, c->factor);
        for (int i = 0; c->excess && i < 2; i++)
            put_number(w, i ? c->excess_most : c->excess_unit);
        return DRO_OK;
    }
    size_t *order = dro__alloc(c->categories.count + 1, sizeof *order);
    if (!order)
        return dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for the encoding");
    for (size_t k = 0; k < c->categories.count; k++)
        order[c->rank[k]] = k;
    put_categories(w, c, order);
    dro__free(order);
    return DRO_OK;
}

static dro_status put_all(writer *w, const dro__csv *csv, const dro__csv_form *form,
                          const dro__columns *cols, bool dense)
{
    char head[128];
    const char *name = csv->header;
    snprintf(head, sizeof head, "csv 1 %zu %zu %s %s %s", cols->count, form->label,
             csv->header ? "header" : "plain", form->real ? "real" : "classes",
             dense ? "dense" : "sparse");
    put(w, head);
    put_text(w, form->missing.refuse ? "refuse" : form->missing.also ? form->missing.also : "");
    for (size_t k = 0; k < cols->count; k++) {
        DRO_TRY(put_column(w, csv, &cols->at[k], name ? name : ""));
        name = name ? dro__csv_next(name) : NULL;
    }
    return DRO_OK;
}

dro_status dro__csv_keep(const dro__csv *csv, const dro__csv_form *form, const dro__columns *cols,
                         bool dense, char **text)
{
    writer w = {0};
    *text = NULL;
    DRO_TRY(put_all(&w, csv, form, cols, dense));
    if (w.used > TEXT_MOST)
        return DRO_OK;
    w.text = dro__alloc(w.used + 1, 1);
    if (!w.text)
        return dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for the encoding");
    w.used = 0;
    dro_status status = put_all(&w, csv, form, cols, dense);
    if (status == DRO_OK)
        *text = w.text;
    else
        dro__free(w.text);
    return status;
}

/* ---- reading ---- */

typedef struct words {
    dro_context *ctx;
    const char *at;
    char *text; /* the word at hand, as long as the whole */
} words;

static dro_status damaged(const words *w, const char *expected)
{
    return dro__fail(w->ctx, DRO_ERR_DATA,
                     "the encoding in the weights file is damaged: expected %s", expected);
}

/* The next word, up to a space or the end of the line. */
static char *next(words *w)
{
    w->at += *w->at == ' ' || *w->at == '\n';
    size_t size = strcspn(w->at, " \n");
    memcpy(w->text, w->at, size);
    w->text[size] = '\0';
    w->at += size;
    return w->text;
}

/* One of two words. */
static dro_status next_choice(words *w, const char *yes, const char *no, bool *value)
{
    const char *word = next(w);
    *value = strcmp(word, yes) == 0;
    return *value || strcmp(word, no) == 0 ? DRO_OK : damaged(w, yes);
}

static dro_status next_count(words *w, size_t most, size_t *value)
{
    const char *word = next(w);
    size_t digits = strspn(word, "0123456789");
    *value = 0;
    if (digits == 0 || digits > 9 || word[digits])
        return damaged(w, "a count");
    for (; *word; word++)
        *value = 10 * *value + (size_t)(*word - '0');
    return *value <= most ? DRO_OK : damaged(w, "a smaller count");
}

static dro_status next_number(words *w, double *value)
{
    const char *end = dro__number_double(next(w), value);
    return end && !*end && isfinite(*value) ? DRO_OK : damaged(w, "a number");
}

/* A text, decoded in place in w->text. */
static dro_status next_text(words *w)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *from = next(w);
    char *to = w->text;
    if (*from++ != '\'')
        return damaged(w, "a text");
    while (*from) {
        const char *high = *from == '%' && from[1] ? strchr(digits, from[1]) : NULL;
        const char *low = high && from[2] ? strchr(digits, from[2]) : NULL;
        if (*from == '%' && (!low || (high == digits && low == digits)))
            return damaged(w, "two digits after %");
        *to++ = *from == '%' ? (char)((high - digits) << 4 | (low - digits)) : *from;
        from += *from == '%' ? 3 : 1;
    }
    *to = '\0';
    return DRO_OK;
}

static dro_status copy_text(const words *w, char **to)
{
    size_t size = strlen(w->text) + 1;
    *to = dro__alloc(size, 1);
    if (!*to)
        return dro__fail(w->ctx, DRO_ERR_MEMORY, "no memory for the encoding");
    memcpy(*to, w->text, size);
    return DRO_OK;
}

static dro_status read_categories(words *w, dro__column *c)
{
    size_t count;
    int32_t number;
    DRO_TRY(next_choice(w, "missing", "whole", &c->missing));
    DRO_TRY(next_count(w, DRO__CSV_CATEGORIES_MAX, &count));
    for (size_t k = 0; k < count; k++) {
        DRO_TRY(next_text(w));
        DRO_TRY(dro__names_add(w->ctx, &c->categories, w->text, strlen(w->text), &number));
        if ((size_t)number != k)
            return damaged(w, "categories that differ");
    }
    c->rank = dro__alloc(count + 1, sizeof *c->rank);
    if (!c->rank)
        return dro__fail(w->ctx, DRO_ERR_MEMORY, "no memory for the encoding");
    for (size_t k = 0; k < count; k++)
        c->rank[k] = (int32_t)k; /* they are written in order */
    c->features = count + c->missing + 1;
    return DRO_OK;
}

static dro_status read_column(words *w, dro__kept *kept, size_t k)
{
    dro__column *c = &kept->columns.at[k];
    if (*w->at != '\n')
        return damaged(w, "a line for each column");
    char *word = next(w);
    size_t length = strlen(word);
    c->missing = length && word[length - 1] == '?';
    length -= c->missing;
    c->excess = length && word[length - 1] == '+';
    word[length -= c->excess] = '\0';
    c->commas = length && word[length - 1] == ',';
    length -= c->commas;
    word[length] = '\0';
    c->formatted = length > 2 && word[length - 2] == '$';
    if (c->formatted) {
        c->unit = word[length - 1] - '0';
        word[length - 2] = '\0';
        if (c->unit < 0 || c->unit > DRO__CSV_UNITS)
            return damaged(w, "a unit");
    }
    if (length > 2 && word[length - 2] == '@') {
        c->date = word[length - 1] - '0';
        word[length - 2] = '\0';
    }
    c->dropped = strcmp(word, "dropped") == 0;
    c->left_out = c->dropped || strcmp(word, "label") == 0;
    c->plain = strcmp(word, "plain") == 0;
    c->tail = strcmp(word, "tailed") == 0;
    c->limited = c->tail || strcmp(word, "limited") == 0;
    c->numeric = c->plain || c->limited || strcmp(word, "number") == 0;
    c->odd_row = -1;
    c->blanks = c->numeric && strcmp(kept->missing, "refuse") != 0;
    bool dated = c->date == DRO__DATE_YMD || c->date == DRO__DATE_MDY || c->date == DRO__DATE_DMY;
    if (c->date && !(c->numeric && dated))
        return damaged(w, "the order of a date");
    if ((c->left_out && !c->dropped) != (k == kept->label) ||
        !(c->left_out || c->numeric || !strcmp(word, "words")) ||
        ((c->commas || c->missing || c->formatted) && !c->numeric) || (c->missing && c->plain) ||
        (c->excess && !c->limited))
        return damaged(w, "label, number or words");
    DRO_TRY(next_text(w));
    DRO_TRY(copy_text(w, &kept->names[k]));
    if (c->numeric) {
        DRO_TRY(next_number(w, &c->centre));
        DRO_TRY(next_number(w, &c->factor));
        DRO_TRY(c->excess ? next_number(w, &c->excess_unit) : DRO_OK);
        DRO_TRY(c->excess ? next_number(w, &c->excess_most) : DRO_OK);
        if (c->excess && !(c->excess_unit > 0 && c->excess_most >= 0))
            return damaged(w, "a positive number");
        c->features = 1 + c->missing + c->tail + c->excess;
    } else if (!c->left_out) {
        DRO_TRY(read_categories(w, c));
    }
    c->feature = kept->columns.features;
    kept->columns.features += c->features;
    return kept->columns.features < INT32_MAX ? DRO_OK : damaged(w, "fewer features");
}

static dro_status read_all(words *w, dro__kept *kept)
{
    size_t count;
    if (strcmp(next(w), "csv") != 0 || strcmp(next(w), "1") != 0)
        return damaged(w, "csv 1");
    DRO_TRY(next_count(w, DRO__CSV_COLUMNS_MAX, &count));
    DRO_TRY(next_count(w, DRO__CSV_COLUMNS_MAX, &kept->label));
    if (kept->label >= count)
        return damaged(w, "a label among the columns");
    DRO_TRY(next_choice(w, "header", "plain", &kept->header));
    DRO_TRY(next_choice(w, "real", "classes", &kept->real));
    DRO_TRY(next_choice(w, "dense", "sparse", &kept->dense));
    DRO_TRY(next_text(w));
    DRO_TRY(copy_text(w, &kept->missing));
    if (count > strlen(w->at))
        return damaged(w, "a line for each column");
    kept->columns.at = dro__alloc(count, sizeof *kept->columns.at);
    kept->names = dro__alloc(count, sizeof *kept->names);
    if (!kept->columns.at || !kept->names)
        return dro__fail(w->ctx, DRO_ERR_MEMORY, "no memory for the encoding");
    kept->columns.count = count;
    for (size_t k = 0; k < count; k++)
        DRO_TRY(read_column(w, kept, k));
    return *w->at ? damaged(w, "its end") : DRO_OK;
}

dro_status dro__csv_kept_read(dro_context *ctx, const char *text, dro__kept *kept)
{
    words w = {.ctx = ctx, .at = text, .text = dro__alloc(strlen(text) + 1, 1)};
    *kept = (dro__kept){0};
    if (!w.text)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for the encoding");
    dro_status status = read_all(&w, kept);
    dro__free(w.text);
    if (status != DRO_OK)
        dro__csv_kept_free(kept);
    return status;
}

void dro__csv_kept_free(dro__kept *kept)
{
    for (size_t k = 0; kept->names && k < kept->columns.count; k++)
        dro__free(kept->names[k]);
    dro__free(kept->names);
    dro__free(kept->missing);
    dro__columns_free(&kept->columns);
    *kept = (dro__kept){0};
}

/* ---- another file ---- */

/* The column with this name; the one at `likely` if there are several. */
static size_t find(const dro__csv *csv, const char *name, size_t likely)
{
    const char *cell = csv->header;
    size_t found = DRO__CSV_NO_COLUMN;
    for (size_t k = 0; cell && k < csv->columns; k++, cell = dro__csv_next(cell))
        if ((found == DRO__CSV_NO_COLUMN || k == likely) && strcmp(cell, name) == 0)
            found = k;
    return found;
}

size_t dro__csv_kept_label(const dro__kept *kept, const dro__csv *csv)
{
    if (kept->header && csv->header)
        return find(csv, kept->names[kept->label], kept->label);
    return csv->columns == kept->columns.count ? kept->label : DRO__CSV_NO_COLUMN;
}

/* The column of the file that is column k of the training file. */
static size_t place(const dro__kept *kept, const dro__csv *csv, size_t label, size_t k)
{
    if (kept->header && csv->header)
        return find(csv, kept->names[k], k);
    if (csv->columns == kept->columns.count)
        return k;
    return label == DRO__CSV_NO_COLUMN && csv->columns + 1 == kept->columns.count
               ? k - (k > kept->label)
               : DRO__CSV_NO_COLUMN;
}

dro_status dro__csv_kept_fit(dro__kept *kept, const dro__csv *csv, size_t label, dro__columns *cols)
{
    char name[64], own[64];
    size_t before = 0;
    snprintf(own, sizeof own, kept->header ? "%.40s" : "%.0s%zu", kept->names[kept->label],
             kept->label + 1);
    cols->at = dro__alloc(csv->columns, sizeof *cols->at);
    if (!cols->at)
        return dro__fail(csv->ctx, DRO_ERR_MEMORY, "no memory for %zu columns", csv->columns);
    cols->count = csv->columns;
    cols->features = kept->columns.features;
    for (size_t k = 0; k < cols->count; k++)
        cols->at[k].left_out = true;
    for (size_t k = 0; k < kept->columns.count; k++) {
        if (kept->columns.at[k].left_out)
            continue;
        size_t at = place(kept, csv, label, k);
        snprintf(name, sizeof name, kept->header ? "'%.40s'" : "%.0s%zu", kept->names[k], k + 1);
        if (at != DRO__CSV_NO_COLUMN && at == label)
            return dro__fail(csv->ctx, DRO_ERR_DATA,
                             "%s: the label is column %s, which is a feature of the model: "
                             "expected label=%s, as in training",
                             csv->name, name, own);
        if (at == DRO__CSV_NO_COLUMN)
            return dro__fail(csv->ctx, DRO_ERR_DATA,
                             "%s: no column %s, which the model was trained on", csv->name, name);
        if (!cols->at[at].left_out)
            return dro__fail(csv->ctx, DRO_ERR_DATA,
                             "%s: column %s: the model was trained on several of this name: "
                             "expected them all",
                             csv->name, name);
        cols->at[at] = kept->columns.at[k];
        kept->columns.at[k] = (dro__column){.left_out = true}; /* it has moved */
        cols->mixed = cols->mixed || at < before;
        before = at;
    }
    return DRO_OK;
}
