/* Described parameters: parse, check against the table, print. Numbers are written with a point,
 * whatever the locale of the program we are part of. */
#define _GNU_SOURCE /* newlocale, uselocale */
#include "base.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names that other libraries use. Those with `taken` are accepted as aliases; for the others the
 * error suggests our name. */
static const struct {
    const char *theirs, *ours;
    bool taken;
} usual[] = {
    {"lr", "eta", true},
    {"over", "tilt", true},
    {"learning_rate", "eta", false},
    {"step_size", "eta", false},
    {"stepsize", "eta", false},
    {"batch_size", "batch", false},
    {"batchsize", "batch", false},
    {"minibatch", "batch", false},
    {"wd", "weight_decay", false},
    {"dataset", "data", false},
    {"stream", "progressive", false},
    {"network", "model", false},
    {"label_smoothing", "smoothing", false},
    {"gamma", "focal_gamma", false},
    {"criterion", "loss", false},
    {"random_state", "seed", false},
    {"regularizer", "reg", false},
    {"regulariser", "reg", false},
    {"early_stopping", "patience", false},
    {"target", "label", false},
    {"output", "out", false},
};

enum { USUAL = sizeof usual / sizeof usual[0] };

static const char *taken_as(const char *name)
{
    for (int k = 0; k < USUAL; k++)
        if (usual[k].taken && strcmp(usual[k].theirs, name) == 0)
            return usual[k].ours;
    return name;
}

/* The tables are walked from the last to the first, so that a later row hides an earlier one. */
const dro__param_row *dro__param_find(const dro__param_row *const *tables, const char *name)
{
    name = taken_as(name);
    for (int t = DRO__TABLE_MAX - 1; t >= 0; t--)
        for (const dro__param_row *row = tables[t]; row && row->about.name; row++)
            if (strcmp(row->about.name, name) == 0)
                return row;
    return NULL;
}

static bool named_before(const dro__param_row *const *tables, int table, const char *name)
{
    for (int t = 0; t < table; t++)
        for (const dro__param_row *row = tables[t]; row && row->about.name; row++)
            if (strcmp(row->about.name, name) == 0)
                return true;
    return false;
}

const dro__param_row *dro__param_at(const dro__param_row *const *tables, int index)
{
    for (int t = 0; t < DRO__TABLE_MAX; t++)
        for (const dro__param_row *row = tables[t]; row && row->about.name; row++)
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

/* "90s", "30m", "2h" or seconds. */
static bool parse_time(const char *text, double *value)
{
    static const struct {
        char letter;
        double seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}};
    char number[64];
    size_t length = strlen(text);
    double unit = 1;
    if (length == 0 || length >= sizeof number)
        return false;
    memcpy(number, text, length + 1);
    for (size_t k = 0; k < sizeof units / sizeof units[0]; k++)
        if (number[length - 1] == units[k].letter) {
            unit = units[k].seconds;
            number[length - 1] = '\0';
            break;
        }
    if (!parse_real(number, value))
        return false;
    *value *= unit;
    return true;
}

/* What would be right, after the name and the value that are wrong. */
static dro_status refuse(dro_context *ctx, const dro_param *about, const char *owner,
                         const char *value)
{
    char right[DRO__ERROR_SIZE / 2];
    switch (about->kind) {
    case DRO_PARAM_CHOICE:
        snprintf(right, sizeof right, "one of %s", about->choices);
        break;
    case DRO_PARAM_LIST:
        snprintf(right, sizeof right, "up to %d numbers from %g to %g, as in 60,90", DRO__LIST_MAX,
                 about->low, about->high);
        break;
    case DRO_PARAM_INTEGER:
        snprintf(right, sizeof right, "a whole number from %.15g to %.15g", about->low,
                 about->high);
        break;
    case DRO_PARAM_TIME:
        snprintf(right, sizeof right, "a time, as in 90s, 30m or 2h");
        break;
    case DRO_PARAM_TEXT:
        snprintf(right, sizeof right, "at most %d characters, in UTF-8", DRO__TEXT_MAX - 1);
        break;
    case DRO_PARAM_REAL:
        snprintf(right, sizeof right, "a number from %g to %g", about->low, about->high);
        break;
    }
    return dro__fail(ctx, DRO_ERR_RANGE, "%s%s%s=%.60s: expected %s", owner ? owner : "",
                     owner ? ": " : "", about->name, value, right);
}

/* Writes the value into its field; false, and nothing is written, if it is not allowed. */
static bool parse(const dro_param *about, const char *value, void *field)
{
    double real;
    int index;
    switch (about->kind) {
    case DRO_PARAM_CHOICE:
        index = find_choice(about->choices, value);
        if (index >= 0)
            *(int32_t *)field = index;
        return index >= 0;
    case DRO_PARAM_LIST:
        return parse_list(about, value, field);
    case DRO_PARAM_TEXT:
        if (strlen(value) >= DRO__TEXT_MAX)
            return false;
        if (dro__utf8_wrong(value, strlen(value))) /* config.json could not hold it */
            return false;
        memcpy(field, value, strlen(value) + 1);
        return true;
    case DRO_PARAM_INTEGER:
        if (!*value && !*about->fallback) { /* chosen for the data */
            *(int64_t *)field = 0;
            return true;
        }
        if (!parse_real(value, &real) || !in_range(about, real) || real != floor(real))
            return false;
        *(int64_t *)field = (int64_t)real;
        return true;
    case DRO_PARAM_TIME:
    case DRO_PARAM_REAL:
        break;
    }
    bool read = about->kind == DRO_PARAM_TIME ? parse_time(value, &real) : parse_real(value, &real);
    if (!read || !in_range(about, real))
        return false;
    *(double *)field = real;
    return true;
}

static dro_status assign(dro_context *ctx, const dro__param_row *row, void *settings,
                         const char *owner, const char *value)
{
    bool right = parse(&row->about, value, (char *)settings + row->offset);
    return right ? DRO_OK : refuse(ctx, &row->about, owner, value);
}

dro_status dro__params_reset(dro_context *ctx, const dro__param_row *const *tables, void *settings)
{
    const dro__param_row *row;
    for (int i = 0; (row = dro__param_at(tables, i)); i++)
        DRO_TRY(assign(ctx, row, settings, "default", row->about.fallback));
    return DRO_OK;
}

/* A letter as it is compared: small, and - as _. */
static int plain(char letter)
{
    return letter == '-' ? '_' : tolower((unsigned char)letter);
}

static bool begins(const char *name, const char *word)
{
    while (*word && plain(*word) == plain(*name))
        word++, name++;
    return !*word;
}

/* Letters that must change to turn a into b. */
static int distance(const char *a, const char *b)
{
    enum { MOST = 62 };
    int row[MOST + 1], n = (int)strlen(b);
    if (n > MOST || strlen(a) > MOST)
        return MOST;
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 0; a[i]; i++) {
        int corner = row[0];
        row[0] = i + 1;
        for (int j = 0; j < n; j++) {
            int change = corner + (plain(a[i]) != plain(b[j]));
            int other = 1 + (row[j] < row[j + 1] ? row[j] : row[j + 1]);
            corner = row[j + 1];
            row[j + 1] = change < other ? change : other;
        }
    }
    return row[n];
}

const char *dro_nearest(const char *word, const char *const *names, int count)
{
    const char *nearest = NULL;
    if (!word || !names)
        return NULL;
    int length = (int)strlen(word), best = length < 4 ? 2 : 3 + (length > 6);
    best = best < length ? best : length;
    for (int k = 0; k < USUAL; k++)
        for (int i = 0; i < count && distance(word, usual[k].theirs) == 0; i++)
            if (distance(usual[k].ours, names[i]) == 0)
                return names[i];
    for (int i = 0; i < count; i++) {
        int d = distance(word, names[i]);
        if (strlen(word) > 1 && d && begins(names[i], word))
            d = 1;
        if (d < best)
            best = d, nearest = names[i];
    }
    return nearest;
}

static dro_status unknown_name(dro_context *ctx, const dro__param_row *const *tables,
                               const char *owner, const char *name)
{
    enum { NAMES = 128 };
    const dro__param_row *row;
    const char *names[NAMES];
    int count = 0;
    char all[DRO__ERROR_SIZE / 2];
    size_t used = 0;
    for (; count < NAMES && (row = dro__param_at(tables, count)); count++) {
        names[count] = row->about.name;
        if (used < sizeof all)
            used += (size_t)snprintf(all + used, sizeof all - used, "%s%s", count ? " " : "",
                                     row->about.name);
    }
    const char *nearest = dro_nearest(name, names, count);
    if (nearest)
        return dro__fail(ctx, DRO_ERR_NAME, "%s has no parameter '%.60s': did you mean '%s'?",
                         owner, name, nearest);
    return dro__fail(ctx, DRO_ERR_NAME, "%s has no parameter '%.60s'; it has: %s%s", owner, name,
                     all, used >= sizeof all ? " ..." : "");
}

dro_status dro__params_set(dro_context *ctx, const dro__param_row *const *tables, void *settings,
                           const char *owner, const char *name, const char *value)
{
    const dro__param_row *row = dro__param_find(tables, name);
    if (!row)
        return unknown_name(ctx, tables, owner, name);
    return assign(ctx, row, settings, owner, value);
}

static void print_value(const dro__param_row *row, const void *settings, char *text, size_t size)
{
    const void *field = (const char *)settings + row->offset;
    switch (row->about.kind) {
    case DRO_PARAM_CHOICE:
        print_choice(row->about.choices, *(const int32_t *)field, text, size);
        break;
    case DRO_PARAM_INTEGER:
        if (*(const int64_t *)field == 0 && !*row->about.fallback)
            text[0] = '\0'; /* chosen for the data */
        else
            snprintf(text, size, "%lld", (long long)*(const int64_t *)field);
        break;
    case DRO_PARAM_TIME:
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

void dro__params_print(const dro__param_row *row, const void *settings, char *text, size_t size)
{
    locale_t mine, before = plain_numbers(&mine);
    print_value(row, settings, text, size);
    restore_numbers(before, mine);
}

dro_status dro__param_normal(dro_context *ctx, const dro__param_row *row, const char *owner,
                             const char *value, char text[DRO__TEXT_MAX])
{
    union {
        char text[DRO__TEXT_MAX];
        dro__list list;
        int64_t integer;
    } parsed;
    const dro__param_row here = {row->about, 0};
    DRO_TRY(assign(ctx, &here, &parsed, owner, value));
    if (row->about.kind == DRO_PARAM_INTEGER || row->about.kind == DRO_PARAM_TIME)
        dro__params_print(&here, &parsed, text, DRO__TEXT_MAX);
    else
        snprintf(text, DRO__TEXT_MAX, "%s", value);
    return DRO_OK;
}

dro_status dro__param_check(dro_context *ctx, const dro__param_row *row, const char *owner,
                            const char *value)
{
    char text[DRO__TEXT_MAX];
    return dro__param_normal(ctx, row, owner, value, text);
}
