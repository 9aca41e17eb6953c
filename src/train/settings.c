/* The settings of a run: the run's own rows, and one value over all rows, those of networks and
 * optimisers too. */
#include "text.h"
#include "train.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEST_WORD(name, code, title, better, unit, meaning) "|" #name
#define DRO__BEST_WORDS                                     "none" DRO_METRIC_LIST(BEST_WORD)

#define ROW(name, kind, fallback, least, most, value, meaning)                                     \
    {{#name, kind, fallback, least, most, value, meaning}, offsetof(dro__train_settings, name)},
#define TEXT(name, value, fallback, meaning)                                                       \
    ROW(name, DRO_PARAM_TEXT, fallback, 0, 0, value, meaning)
#define TIME(name, fallback, meaning) ROW(name, DRO_PARAM_TIME, fallback, 0, 1e9, NULL, meaning)
#define INTEGER(name, fallback, least, most, meaning)                                              \
    ROW(name, DRO_PARAM_INTEGER, fallback, least, most, NULL, meaning)
#define REAL(name, fallback, least, most, meaning)                                                 \
    ROW(name, DRO_PARAM_REAL, fallback, least, most, NULL, meaning)
#define CHOICE(name, fallback, words, meaning)                                                     \
    ROW(name, DRO_PARAM_CHOICE, fallback, 0, 0, words, meaning)

static const dro__param_row own[] = {
#include "settings.def"
    DRO__PARAMS_END,
};

const dro__param_row *const dro__train_tables[DRO__TABLE_MAX] = {own};
static const dro__param_row *const network_tables[DRO__TABLE_MAX] = {dro__params_net};

/* ---- all rows ---- */

/* The settings of optimisers and networks that a short help shows, next to the run's own. */
static const char *const common[] = {"eta",  "objective", "lambda",    "weight_decay", "reg",
                                     "tilt", "loss",      "precision", "deterministic"};

static bool is_common(const char *name)
{
    for (size_t k = 0; k < sizeof common / sizeof common[0]; k++)
        if (strcmp(common[k], name) == 0)
            return true;
    return false;
}

bool dro__net_has(const char *name)
{
    return dro__param_find(network_tables, name) != NULL;
}

bool dro__optimizer_has(const char *optimizer, const char *name)
{
    const dro__param_row *const *tables = dro__optimizer_tables(optimizer);
    return tables && dro__param_find(tables, name);
}

/* Finds the row of a name: of the run, the network, this optimiser, or the first optimiser that has
 * it. */
static const dro__param_row *find_row(const char *optimizer, const char *name)
{
    const dro__param_row *row = dro__param_find(dro__train_tables, name);
    row = row ? row : dro__param_find(network_tables, name);
    if (!row && dro__optimizer_has(optimizer, name))
        row = dro__param_find(dro__optimizer_tables(optimizer), name);
    for (int i = 0; !row && dro_optimizer_name(i); i++)
        row = dro__param_find(dro__optimizer_tables(dro_optimizer_name(i)), name);
    return row;
}

/* Whether a table before those of optimiser number k has the name. */
static bool is_earlier(const char *name, int k)
{
    bool has = dro__param_find(dro__train_tables, name) || dro__net_has(name);
    while (!has && k-- > 0)
        has = dro__optimizer_has(dro_optimizer_name(k), name);
    return has;
}

enum { NAME_SIZE = 64, NAMES_MOST = 256 };

/* All settings in order; built once, as searching the tables is slow. */
static dro_setting all_settings[NAMES_MOST];
static int setting_count;

static void add_setting(const dro__param_row *row, dro_setting_owner owner)
{
    bool usual = owner == DRO_SETTING_RUN || is_common(row->about.name);
    if (setting_count < NAMES_MOST)
        all_settings[setting_count++] = (dro_setting){row->about, owner, usual};
}

static void list_settings(void)
{
    const dro__param_row *row;
    for (int i = 0; (row = dro__param_at(dro__train_tables, i)); i++)
        add_setting(row, DRO_SETTING_RUN);
    for (int i = 0; (row = dro__param_at(network_tables, i)); i++)
        add_setting(row, DRO_SETTING_NETWORK);
    for (int k = 0; dro_optimizer_name(k); k++)
        for (int i = 0; (row = dro__param_at(dro__optimizer_tables(dro_optimizer_name(k)), i)); i++)
            if (!is_earlier(row->about.name, k))
                add_setting(row, DRO_SETTING_OPTIMIZER);
}

dro_status dro_setting_at(int index, dro_setting *setting)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (index < 0 || !setting)
        return DRO_ERR_ARGUMENT;
    pthread_once(&once, list_settings);
    if (index >= setting_count)
        return DRO_ERR_END;
    *setting = all_settings[index];
    return DRO_OK;
}

const char *dro_setting_name(const char *name)
{
    char text[NAME_SIZE];
    snprintf(text, sizeof text, "%s", name ? name : "");
    for (char *c = text; *c; c++)
        *c = *c == '-' ? '_' : *c;
    const dro__param_row *row = find_row("", text);
    return row ? row->about.name : NULL;
}

bool dro_setting_known(const char *optimizer, const char *name)
{
    name = dro_setting_name(name);
    return name && optimizer &&
           (dro__param_find(dro__train_tables, name) || dro__net_has(name) ||
            dro__optimizer_has(optimizer, name));
}

static dro_status refuse_name(dro_context *ctx, const char *name)
{
    dro_setting setting;
    const char *names[NAMES_MOST];
    int count = 0;
    for (; count < NAMES_MOST && dro_setting_at(count, &setting) == DRO_OK; count++)
        names[count] = setting.param.name;
    const char *nearest = dro_nearest(name, names, count);
    if (nearest)
        return dro__fail(ctx, DRO_ERR_NAME, "no setting '%.60s': did you mean '%s'?", name,
                         nearest);
    return dro__fail(ctx, DRO_ERR_NAME, "no setting '%.60s': `dro list settings` lists them", name);
}

/* ---- the value ---- */

dro_status dro_settings_create(dro_context *ctx, dro_settings **settings)
{
    if (!ctx || !settings)
        return DRO_ERR_ARGUMENT;
    dro__forget(ctx);
    *settings = NULL;
    dro_settings *s = dro__alloc(1, sizeof *s);
    if (!s)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for settings");
    s->ctx = ctx;
    *settings = s;
    return DRO_OK;
}

void dro_settings_destroy(dro_settings *s)
{
    for (size_t k = 0; s && k < s->count; k++)
        free(s->items[k].value);
    if (s)
        dro__free(s->items);
    dro__free(s);
}

static dro__given *find_item(const dro_settings *s, const char *name)
{
    for (size_t k = 0; k < s->count; k++)
        if (strcmp(s->items[k].name, name) == 0)
            return &s->items[k];
    return NULL;
}

/* name: of a table. */
static dro_status keep(dro_settings *s, const char *name, const char *value)
{
    dro__given *item = find_item(s, name);
    char *copy = strdup(value);
    if (!copy || (!item && dro__grow(s->ctx, (void **)&s->items, &s->capacity, s->count + 1,
                                     sizeof *s->items) != DRO_OK)) {
        free(copy);
        return dro__fail(s->ctx, DRO_ERR_MEMORY, "no memory for a setting");
    }
    if (item)
        free(item->value);
    else
        s->items[s->count++].name = name;
    item = item ? item : &s->items[s->count - 1];
    item->value = copy;
    return DRO_OK;
}

static dro_status forget(dro_settings *s, const char *name)
{
    dro__given *item = find_item(s, name);
    if (item) {
        free(item->value);
        s->count--;
        memmove(item, item + 1, (size_t)(s->items + s->count - item) * sizeof *item);
    }
    return DRO_OK;
}

static const char *optimizer_of(const dro_settings *s)
{
    const dro__given *item = find_item(s, "optimizer");
    return item ? item->value : dro__param_find(dro__train_tables, "optimizer")->about.fallback;
}

dro_status dro__settings_parse(const dro_settings *s, dro__train_settings *out)
{
    DRO_TRY(dro__params_reset(s->ctx, dro__train_tables, out));
    for (size_t k = 0; k < s->count; k++)
        if (dro__param_find(dro__train_tables, s->items[k].name))
            DRO_TRY(dro__params_set(s->ctx, dro__train_tables, out, NULL, s->items[k].name,
                                    s->items[k].value));
    return DRO_OK;
}

dro_status dro__settings_assign(dro_settings *to, const dro_settings *from)
{
    dro_settings fresh = {.ctx = to->ctx};
    dro_status status = DRO_OK;
    for (size_t k = 0; k < from->count && status == DRO_OK; k++)
        status = keep(&fresh, from->items[k].name, from->items[k].value);
    dro_settings *old = status == DRO_OK ? to : &fresh;
    for (size_t k = 0; k < old->count; k++)
        free(old->items[k].value);
    dro__free(old->items);
    if (status == DRO_OK)
        *to = fresh;
    return status;
}

dro_status dro_settings_copy(const dro_settings *settings, dro_settings **copy)
{
    if (!settings || !copy)
        return DRO_ERR_ARGUMENT;
    dro__forget(settings->ctx);
    DRO_TRY(dro_settings_create(settings->ctx, copy));
    dro_status status = dro__settings_assign(*copy, settings);
    if (status != DRO_OK) {
        dro_settings_destroy(*copy);
        *copy = NULL;
    }
    return status;
}

/* ---- setting one ---- */

static dro_status check_optimizer(dro_context *ctx, const char *name)
{
    const char *names[NAMES_MOST];
    int count = 0;
    while (count < NAMES_MOST && (names[count] = dro_optimizer_name(count)))
        count++;
    if (dro__optimizer_tables(name))
        return DRO_OK;
    const char *nearest = dro_nearest(name, names, count);
    if (nearest)
        return dro__fail(ctx, DRO_ERR_NAME, "no optimiser '%.60s': did you mean '%s'?", name,
                         nearest);
    return dro__fail(ctx, DRO_ERR_NAME, "no optimiser '%.60s': `dro list optimizers` lists them",
                     name);
}

static dro_status set_row(dro_settings *s, const dro__param_row *row, const char *value)
{
    const char *name = row->about.name, *optimizer = optimizer_of(s);
    char text[DRO__TEXT_MAX];
    bool theirs = !dro__param_find(dro__train_tables, name) && !dro__net_has(name) &&
                  dro__optimizer_has(optimizer, name);
    if (strcmp(name, "optimizer") == 0)
        DRO_TRY(check_optimizer(s->ctx, value));
    if (strcmp(name, "model") == 0 && *value && strcmp(value, "auto") != 0)
        DRO_TRY(dro__model_check(s->ctx, value));
    bool objective = strcmp(name, "objective") == 0 || strcmp(name, "report_objective") == 0;
    if (objective && *value)
        DRO_TRY(dro__objective_parse(s->ctx, value, &(dro__objective){0}));
    DRO_TRY(dro__param_normal(s->ctx, row, theirs ? optimizer : NULL, value, text));
    return keep(s, name, text);
}

/* NAME or NAME:STRENGTH. `none` unsets the strength, and any other name unsets a strength of 0: a
 * file with both describes a run without a regulariser. */
static dro_status set_regulariser(dro_settings *s, const dro__param_row *row, const char *value)
{
    char name[NAME_SIZE], strength[NAME_SIZE] = "1";
    const char *colon = strchr(value, ':');
    snprintf(name, sizeof name, "%.*s", (int)strcspn(value, ":"), value);
    DRO_TRY(dro__param_check(s->ctx, row, NULL, name));
    bool none = strcmp(name, "none") == 0;
    dro_settings_get(s, "reg_strength", strength, sizeof strength);
    if (colon && strcmp(name, "ball") == 0)
        DRO_TRY(dro_settings_set(s, "reg_radius", colon + 1));
    else if (colon && dro_regulariser_has_strength(name))
        DRO_TRY(dro_settings_set(s, "reg_strength", colon + 1));
    else if (colon)
        return dro__fail(s->ctx, DRO_ERR_RANGE, "reg=%.60s: %s has no strength: write reg=%s%s",
                         value, name, name,
                         strcmp(name, "box") ? "" : ", with reg_low=A and reg_high=B");
    else if (none || strtod(strength, NULL) == 0)
        DRO_TRY(forget(s, "reg_strength"));
    return keep(s, "reg", name);
}

dro_status dro_settings_set(dro_settings *s, const char *name, const char *value)
{
    if (!s || !name)
        return DRO_ERR_ARGUMENT;
    dro__forget(s->ctx);
    if (!dro_setting_name(name))
        return refuse_name(s->ctx, name);
    name = dro_setting_name(name);
    const dro__param_row *row = find_row(optimizer_of(s), name);
    if (!value)
        return forget(s, name);
    if (strcmp(name, "reg") == 0)
        return set_regulariser(s, row, value);
    if (strcmp(name, "epochs") == 0 && *value)
        DRO_TRY(forget(s, "steps"));
    if (!*value && !*row->about.fallback && row->about.kind == DRO_PARAM_INTEGER)
        return forget(s, name);
    return set_row(s, row, value);
}

dro_status dro_settings_get(const dro_settings *s, const char *name, char *text, size_t size)
{
    if (!s || !name || !text || size == 0)
        return DRO_ERR_ARGUMENT;
    dro__forget(s->ctx);
    if (!dro_setting_name(name))
        return refuse_name(s->ctx, name);
    name = dro_setting_name(name);
    const dro__param_row *row = dro__param_find(dro__train_tables, name);
    const dro__given *item = find_item(s, name);
    if (!row && !item)
        return dro__fail(s->ctx, DRO_ERR_NAME, "'%.60s' was not set", name);
    snprintf(text, size, "%s", item ? item->value : row->about.fallback);
    return DRO_OK;
}

bool dro_settings_given(const dro_settings *s, const char *name)
{
    return s && dro_setting_name(name) && find_item(s, dro_setting_name(name));
}

dro_status dro_settings_item(const dro_settings *s, int index, const char **name,
                             const char **value)
{
    if (!s || index < 0 || !name || !value)
        return DRO_ERR_ARGUMENT;
    dro__forget(s->ctx);
    if ((size_t)index >= s->count)
        return DRO_ERR_END;
    *name = s->items[index].name;
    *value = s->items[index].value;
    return DRO_OK;
}

/* ---- all together ---- */

/* "; cover, recover and ascpg have it" */
static void list_owners(const char *name, char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; dro_optimizer_name(i) && used < size; i++)
        if (dro__optimizer_has(dro_optimizer_name(i), name))
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                     dro_optimizer_name(i));
}

/* A regulariser without a strength, or a strength without a regulariser, does nothing. */
static dro_status check_regulariser(const dro_settings *s)
{
    const dro__given *reg = find_item(s, "reg"), *strength = find_item(s, "reg_strength");
    if (reg && strcmp(reg->value, "none") == 0)
        reg = NULL;
    if (reg && dro_regulariser_has_strength(reg->value) && !strength)
        return dro__fail(s->ctx, DRO_ERR_RANGE,
                         "the regulariser %s does nothing without a strength: write reg=%s:1e-5, "
                         "say",
                         reg->value, reg->value);
    if (strength && strtod(strength->value, NULL) != 0 && !reg)
        return dro__fail(s->ctx, DRO_ERR_RANGE,
                         "reg_strength=%s does nothing without a regulariser: write reg=l2:%s, say",
                         strength->value, strength->value);
    return DRO_OK;
}

/* lambda is kl's, and over none every objective is the mean. A file of settings has the lambda of
 * kl:LAMBDA as well. */
static dro_status check_objective(const dro_settings *s)
{
    const dro__given *objective = find_item(s, "objective"), *lambda = find_item(s, "lambda");
    const dro__given *over = find_item(s, "tilt");
    dro__objective o;
    double value;
    if (!objective || !*objective->value)
        return DRO_OK;
    DRO_TRY(dro__objective_parse(s->ctx, objective->value, &o));
    bool kl = o.kind == DRO__OBJECTIVE_KL, mean = o.kind == DRO__OBJECTIVE_MEAN;
    bool same = kl && lambda && dro__number_double(lambda->value, &value) && value == o.argument;
    bool none = over && strcmp(over->value, "none") == 0 && !find_item(s, "switch_tilt");
    if (lambda && !same)
        return dro__fail(s->ctx, DRO_ERR_RANGE,
                         "objective=%.60s %s: leave out lambda=%s, or write objective=kl:%s",
                         objective->value, kl ? "has its own lambda" : "has no lambda",
                         lambda->value, lambda->value);
    if (!mean && none)
        return dro__fail(s->ctx, DRO_ERR_RANGE,
                         "objective=%.60s over none is the mean loss: leave out over=none, or "
                         "write objective=mean",
                         objective->value);
    return DRO_OK;
}

dro_status dro_settings_check(const dro_settings *s)
{
    if (!s)
        return DRO_ERR_ARGUMENT;
    dro__forget(s->ctx);
    const char *optimizer = optimizer_of(s);
    const dro__param_row *const *tables = dro__optimizer_tables(optimizer);
    for (size_t k = 0; k < s->count; k++) {
        const char *name = s->items[k].name;
        char owners[200];
        if (dro__param_find(dro__train_tables, name) || dro__net_has(name))
            continue;
        const dro__param_row *row = dro__param_find(tables, name);
        list_owners(name, owners, sizeof owners);
        if (!row && strcmp(name, "lambda") == 0 && dro__param_find(tables, "objective"))
            return dro__fail(s->ctx, DRO_ERR_NAME,
                             "%s has no parameter 'lambda': write objective=kl:%s", optimizer,
                             s->items[k].value);
        if (!row)
            return dro__fail(s->ctx, DRO_ERR_NAME, "%s has no parameter '%s', only %s", optimizer,
                             name, owners);
        DRO_TRY(dro__param_check(s->ctx, row, optimizer, s->items[k].value));
    }
    DRO_TRY(check_objective(s));
    return check_regulariser(s);
}

/* ---- a run's ---- */

dro_status dro_train_set(dro_train *t, const char *name, const char *value)
{
    if (!t || !value)
        return DRO_ERR_ARGUMENT;
    dro__forget(t->ctx);
    if (t->running)
        return dro__fail(t->ctx, DRO_ERR_STATE, "this run is in progress: its settings are fixed");
    return dro_settings_set(t->settings, name, value);
}

dro_status dro_train_get(const dro_train *t, const char *name, char *text, size_t size)
{
    return t ? dro_settings_get(t->settings, name, text, size) : DRO_ERR_ARGUMENT;
}

dro_status dro_train_use(dro_train *t, const dro_settings *settings)
{
    if (!t || !settings)
        return DRO_ERR_ARGUMENT;
    dro__forget(t->ctx);
    if (t->running)
        return dro__fail(t->ctx, DRO_ERR_STATE, "this run is in progress: its settings are fixed");
    return dro__settings_assign(t->settings, settings);
}

static dro_status set_net(void *net, const char *name, const char *value)
{
    return dro__net_has(name) ? dro_net_set(net, name, value) : DRO_OK;
}

dro_status dro__apply_net(const dro_train *t, dro_net *net)
{
    const dro_settings *s = t->settings;
    DRO_TRY(dro__recipe_apply(t, set_net, net));
    for (size_t k = 0; k < s->count; k++)
        DRO_TRY(set_net(net, s->items[k].name, s->items[k].value));
    return DRO_OK;
}
