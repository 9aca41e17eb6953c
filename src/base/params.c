/* Described parameters: parse, check against the table, print. Numbers are written with a point, whatever
 * the locale of the program we are part of. */
#define _GNU_SOURCE /* newlocale, uselocale */
#include "base.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The tables are walked from the last to the first, so that a later row hides an earlier one. */
const dro__param *dro__param_find(const dro__param *const *tables, const char *name)
{
    for (int t = DRO__TABLE_MAX - 1; t >= 0; t--)
        for (const dro__param *row = tables[t]; row && row->about.name; row++)
            if (strcmp(row->about.name, name) == 0)
                return row;
    return NULL;
}

static bool named_before(const dro__param *const *tables, int table, const char *name)
{
    for (int t = 0; t < table; t++)
        for (const dro__param *row = tables[t]; row && row->about.name; row++)
            if (strcmp(row->about.name, name) == 0)
                return true;
    return false;
}

const dro__param *dro__param_at(const dro__param *const *tables, int index)
{
    for (int t = 0; t < DRO__TABLE_MAX; t++)
        for (const dro__param *row = tables[t]; row && row->about.name; row++)
            if (!named_before(tables, t, row->about.name) && index-- == 0)
                return dro__param_find(tables, row->about.name);
    return NULL;
}

/* The numbers of the "C" locale for this thread, until restored. */
static locale_t plain_numbers(locale_t *mine)
{
    *mine = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    return *mine ? uselocale(*mine) : (locale_t)0;
}

static void restore_numbers(locale_t before, locale_t mine)
{
    if (!mine)
        return;
    uselocale(before);
    freelocale(mine);
}

/* One number, all of the text; false otherwise. NaN is no number here. */
static bool parse_real(const char *text, double *value)
{
    char *end;
    locale_t mine, before = plain_numbers(&mine);
    errno = 0;
    *value = strtod(text, &end);
    restore_numbers(before, mine);
    return end != text && *end == '\0' && !isnan(*value) && !(errno == ERANGE && fabs(*value) > 1);
}

static bool in_range(const dro_param *about, double value)
{
    return value >= about->low && value <= about->high;
}

static int find_choice(const char *choices, const char *word)
{
    size_t length = strlen(word);
    int index = 0;
    for (const char *p = choices; p; index++) {
        const char *bar = strchr(p, '|');
        size_t size = bar ? (size_t)(bar - p) : strlen(p);
        if (size == length && memcmp(p, word, size) == 0)
            return index;
        p = bar ? bar + 1 : NULL;
    }
    return -1;
}

static void print_choice(const char *choices, int index, char *text, size_t size)
{
    const char *p = choices;
    while (index-- > 0)
        p = strchr(p, '|') + 1;
    snprintf(text, size, "%.*s", (int)strcspn(p, "|"), p);
}

static bool parse_list(const dro_param *about, const char *value, dro__list *list)
{
    dro__list parsed = {0};
    while (*value) {
        char word[64];
        size_t length = strcspn(value, ",");
        if (length == 0 || length >= sizeof word || parsed.count == DRO__LIST_MAX)
            return false;
        memcpy(word, value, length);
        word[length] = '\0';
        double *slot = &parsed.values[parsed.count++];
        if (!parse_real(word, slot) || !in_range(about, *slot))
            return false;
        value += length;
        if (*value == ',' && *++value == '\0')
            return false;
    }
    *list = parsed;
    return true;
}

/* Writes the value into its field, or says what would be right. */
static dro_status assign(dro_context *ctx, const dro__param *row, void *settings, const char *owner,
                         const char *value)
{
    const dro_param *about = &row->about;
    void *field = (char *)settings + row->offset;
    double real;
    switch (about->kind) {
    case DRO_PARAM_CHOICE: {
        int index = find_choice(about->choices, value);
        if (index < 0)
            return dro__fail(ctx, DRO_ERR_RANGE, "%s: %s=%.60s: expected one of %s", owner,
                             about->name, value, about->choices);
        *(int32_t *)field = index;
        return DRO_OK;
    }
    case DRO_PARAM_LIST:
        if (!parse_list(about, value, field))
            return dro__fail(ctx, DRO_ERR_RANGE,
                             "%s: %s=%.60s: expected up to %d numbers from %g to %g, as in 60,90",
                             owner, about->name, value, DRO__LIST_MAX, about->low, about->high);
        return DRO_OK;
    case DRO_PARAM_INTEGER:
        if (!parse_real(value, &real) || !in_range(about, real) || real != floor(real))
            return dro__fail(ctx, DRO_ERR_RANGE,
                             "%s: %s=%.60s: expected a whole number from %.15g to %.15g", owner,
                             about->name, value, about->low, about->high);
        *(int64_t *)field = (int64_t)real;
        return DRO_OK;
    case DRO_PARAM_TEXT:
        if (strlen(value) >= DRO__TEXT_MAX)
            return dro__fail(ctx, DRO_ERR_RANGE, "%s: %s is longer than %d characters", owner,
                             about->name, DRO__TEXT_MAX - 1);
        memcpy(field, value, strlen(value) + 1);
        return DRO_OK;
    case DRO_PARAM_REAL:
        break;
    }
    if (!parse_real(value, &real) || !in_range(about, real))
        return dro__fail(ctx, DRO_ERR_RANGE, "%s: %s=%.60s: expected a number from %g to %g", owner,
                         about->name, value, about->low, about->high);
    *(double *)field = real;
    return DRO_OK;
}

dro_status dro__params_reset(dro_context *ctx, const dro__param *const *tables, void *settings)
{
    const dro__param *row;
    for (int i = 0; (row = dro__param_at(tables, i)); i++)
        DRO_TRY(assign(ctx, row, settings, "default", row->about.fallback));
    return DRO_OK;
}

/* How many letters must change to turn a into b, at most (rows are short). */
static int distance(const char *a, const char *b)
{
    int above[64], here[64];
    int n = (int)strlen(b);
    if (n > 62 || strlen(a) > 62)
        return 99;
    for (int j = 0; j <= n; j++)
        above[j] = j;
    for (int i = 0; a[i]; i++) {
        here[0] = i + 1;
        for (int j = 0; j < n; j++) {
            int best = above[j] + (a[i] != b[j]);
            if (above[j + 1] + 1 < best)
                best = above[j + 1] + 1;
            if (here[j] + 1 < best)
                best = here[j] + 1;
            here[j + 1] = best;
        }
        memcpy(above, here, sizeof above);
    }
    return above[n];
}

static dro_status unknown_name(dro_context *ctx, const dro__param *const *tables, const char *owner,
                               const char *name)
{
    const dro__param *row;
    const char *nearest = NULL;
    int best = 4;
    char all[DRO__ERROR_SIZE / 2];
    size_t used = 0;
    for (int i = 0; (row = dro__param_at(tables, i)); i++) {
        int d = distance(name, row->about.name);
        if (d < best)
            best = d, nearest = row->about.name;
        if (used < sizeof all)
            used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? " " : "",
                                     row->about.name);
    }
    if (nearest)
        return dro__fail(ctx, DRO_ERR_NAME, "%s has no parameter '%.60s': did you mean '%s'?",
                         owner, name, nearest);
    return dro__fail(ctx, DRO_ERR_NAME, "%s has no parameter '%.60s'; it has: %s%s", owner, name,
                     all, used >= sizeof all ? " ..." : "");
}

dro_status dro__params_set(dro_context *ctx, const dro__param *const *tables, void *settings,
                           const char *owner, const char *name, const char *value)
{
    const dro__param *row = dro__param_find(tables, name);
    if (!row)
        return unknown_name(ctx, tables, owner, name);
    return assign(ctx, row, settings, owner, value);
}

static void print_value(const dro__param *row, const void *settings, char *text, size_t size)
{
    const void *field = (const char *)settings + row->offset;
    switch (row->about.kind) {
    case DRO_PARAM_CHOICE:
        print_choice(row->about.choices, *(const int32_t *)field, text, size);
        break;
    case DRO_PARAM_INTEGER:
        snprintf(text, size, "%lld", (long long)*(const int64_t *)field);
        break;
    case DRO_PARAM_REAL:
        snprintf(text, size, "%.17g", *(const double *)field);
        break;
    case DRO_PARAM_TEXT:
        snprintf(text, size, "%s", (const char *)field);
        break;
    case DRO_PARAM_LIST: {
        const dro__list *list = field;
        size_t used = 0;
        if (size)
            text[0] = '\0';
        for (int i = 0; i < list->count && used < size; i++)
            used += (size_t)snprintf(text + used, size - used, "%s%.17g", i ? "," : "",
                                     list->values[i]);
        break;
    }
    }
}

void dro__params_print(const dro__param *row, const void *settings, char *text, size_t size)
{
    locale_t mine, before = plain_numbers(&mine);
    print_value(row, settings, text, size);
    restore_numbers(before, mine);
}
