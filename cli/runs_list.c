/* The list of many runs: from the options of the command to the settings of each run. */
#include "runs.h"

#include <stdlib.h>
#include <string.h>

int cli_runs_split(const char *text, const char **parts, int capacity)
{
    int count = 0;
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t length = strcspn(at, ",");
        char *copy = length && count < capacity ? malloc(length + 1) : NULL;
        if (!copy)
            return -1;
        memcpy(copy, at, length);
        copy[length] = '\0';
        parts[count++] = copy;
    }
    return count;
}

int cli_runs_open(cli_runs *runs, const cli_args *args, const char *folder)
{
    const char *config = cli_text(args, "config");
    *runs = (cli_runs){.args = args, .folder = folder, .lock = -1};
    runs->began = cli_seconds();
    cli_thread_ready();
    runs->config = config ? cli_config_load(config) : NULL;
    if (config && !runs->config)
        return 1;
    runs->ctx = cli_config_context(args, runs->config);
    if (!runs->ctx)
        return 1;
    runs->jobs = (int)cli_integer(args, "jobs");
    runs->threads = dro_context_threads(runs->ctx) / runs->jobs;
    runs->threads = runs->threads < 1 ? 1 : runs->threads;
    return 0;
}

/* ---- options for all, and for one ---- */

static bool among(const char *word, const char *const *list, int count)
{
    for (int k = 0; k < count; k++)
        if (strcmp(word, list[k]) == 0)
            return true;
    return false;
}

static void join(char *text, size_t size, const char *const *list, int count)
{
    *text = '\0';
    for (int k = 0; k < count; k++) {
        size_t used = strlen(text);
        const char *between = k + 1 == count ? " and " : ", ";
        snprintf(text + used, size - used, "%s%s", k ? between : "", list[k]);
    }
}

static bool meant(const char *name, const char *const *optimizers, int count)
{
    for (int k = 0; k < count; k++)
        if (dro_setting_known(optimizers[k], name))
            return true;
    return false;
}

static int check_pair(const cli_runs *runs, const cli_pair *p, const char *const *optimizers,
                      int count)
{
    const char *command = cli_name(runs->args);
    char all[512];
    join(all, sizeof all, optimizers, count);
    if (p->optimizer[0] && !among(p->optimizer, optimizers, count))
        return cli_usage("%s: %s.%s: no run uses '%s', only %s", command, p->optimizer, p->name,
                         p->optimizer, all);
    if (!dro_setting_name(p->name)) {
        cli_scope scope = {.command = command, .ctx = runs->ctx};
        dro_settings_create(runs->ctx, &scope.settings);
        int status = cli_settings_set(&scope, p->name, p->value); /* says what would be right */
        dro_settings_destroy(scope.settings);
        return status;
    }
    if (p->optimizer[0] ? dro_setting_known(p->optimizer, p->name)
                        : meant(p->name, optimizers, count))
        return 0;
    return cli_usage("%s: %s %s no parameter '%s'", command, p->optimizer[0] ? p->optimizer : all,
                     p->optimizer[0] || count == 1 ? "has" : "have", p->name);
}

int cli_runs_check(const cli_runs *runs, const char *const *optimizers, int count)
{
    const char *command = cli_name(runs->args), *names[CLI_NAMES];
    int known = cli_optimizers(names), status = 0;
    for (int k = 0; k < count; k++)
        if (!among(optimizers[k], names, known)) {
            const char *nearest = dro_nearest(optimizers[k], names, known);
            return cli_usage("%s: no optimiser '%s': %s%s%s", command, optimizers[k],
                             nearest ? "did you mean '" : "'dro list optimizers",
                             nearest ? nearest : "", nearest ? "'?" : "' lists them");
        } else if (among(optimizers[k], optimizers, k)) {
            return cli_usage("%s: '%s' is named twice", command, optimizers[k]);
        }
    cli_pair p;
    for (int k = 0; status == 0 && cli_settings_given(runs->args, k, &p, &status); k++)
        if (status == 0 && p.name[0])
            status = check_pair(runs, &p, optimizers, count);
    return status;
}

/* ---- one run ---- */

/* An arm's own file replaces --config. Its settings of the reported F may belong to another
 * comparison. */
static int take_config(const cli_runs *runs, cli_scope *scope, const char *file)
{
    static const char *const others[] = {"report_objective", "report_lambda", "report_like",
                                         "report_tilt"};
    json_t *document = file ? cli_config_load(file) : json_incref(runs->config);
    if (file && !document)
        return 1;
    int status = 0;
    if (document)
        status = cli_config_take(scope, file ? file : cli_text(runs->args, "config"), document);
    json_decref(document);
    for (size_t k = 0; k < sizeof others / sizeof others[0] && document; k++) {
        char value[64];
        dro_settings_get(scope->settings, others[k], value, sizeof value);
        if (file || !*value || strcmp(value, "0") == 0 || strcmp(value, "own") == 0)
            dro_settings_set(scope->settings, others[k], NULL);
    }
    return status;
}

static const char *config_of(const cli_arm *arm)
{
    const char *file = NULL;
    for (int k = 0; k < arm->count; k++)
        if (strncmp(arm->pairs[k], "config=", 7) == 0)
            file = arm->pairs[k] + 7;
    return file;
}

static int take_arm(cli_scope *scope, const cli_arm *arm)
{
    cli_pair p;
    int status = 0;
    bool objective = false, lambda = false;
    for (int k = 0; k < arm->count && status == 0; k++) {
        if (strncmp(arm->pairs[k], "config=", 7) == 0)
            continue;
        status = cli_settings_pair(scope->command, arm->pairs[k], &p);
        status = status ? status : cli_settings_set(scope, p.name, p.value);
        objective = objective || strcmp(p.name, "objective") == 0;
        lambda = lambda || strcmp(p.name, "lambda") == 0;
    }
    if (objective && !lambda) /* that of all arms is not for this one */
        cli_settings_objective(scope);
    return status;
}

/* The arm's name, and the seed: that of the settings plus the number of the run. */
static int take_seed(cli_scope *scope, cli_one *one, const cli_arm *arm, int k)
{
    char text[32], name[300];
    dro_settings_get(scope->settings, "seed", text, sizeof text);
    snprintf(text, sizeof text, "%lld", strtoll(text, NULL, 10) + k);
    snprintf(name, sizeof name, "%.200s-seed%s", arm->name, text);
    one->name = strdup(name);
    if (!one->name)
        return cli_fail("no memory for a run");
    return cli_settings_set(scope, "seed", text);
}

static cli_one *grow(cli_runs *runs)
{
    if (runs->count == runs->capacity) {
        int capacity = runs->capacity ? 2 * runs->capacity : 64;
        cli_one *more = realloc(runs->list, (size_t)capacity * sizeof *more);
        if (!more) {
            cli_fail("no memory for %d runs", capacity);
            return NULL;
        }
        runs->list = more;
        runs->capacity = capacity;
    }
    cli_one *one = &runs->list[runs->count++];
    *one = (cli_one){.pipe = -1};
    return one;
}

int cli_runs_add(cli_runs *runs, const cli_arm *arm, int seed)
{
    cli_one *one = grow(runs);
    cli_scope scope = {.command = cli_name(runs->args), .ctx = runs->ctx, .only = arm->optimizer};
    if (!one)
        return 1;
    one->optimizer = arm->optimizer;
    if (dro_settings_create(runs->ctx, &one->settings) != DRO_OK)
        return cli_fail("%s", dro_context_error(runs->ctx));
    scope.settings = one->settings;
    int status = cli_settings_set(&scope, "optimizer", arm->optimizer);
    status = status ? status : take_config(runs, &scope, config_of(arm));
    status = status ? status : cli_settings_take(&scope, runs->args);
    status = status ? status : take_arm(&scope, arm);
    return status ? status : take_seed(&scope, one, arm, seed);
}

/* ---- all of them ---- */

static bool is_stdin(const char *data)
{
    const char *path = strchr(data, ':');
    return path && path[1] == '-' && (path[2] == '\0' || path[2] == ',');
}

int cli_runs_check_each(cli_runs *runs)
{
    char data[4096], all[4096];
    const char *command = cli_name(runs->args);
    int status = 0;
    for (int k = 0; k < runs->count && status == 0; k++) {
        const cli_one *one = &runs->list[k];
        cli_scope scope = {.command = command, .ctx = runs->ctx, .settings = one->settings};
        dro_settings_get(runs->list[0].settings, "data", all, sizeof all);
        dro_settings_get(one->settings, "data", data, sizeof data);
        status = cli_settings_check(&scope);
        if (status == 0 && is_stdin(data))
            status = cli_usage("%s: %s: every run reads the data, but standard input can be read "
                               "only once: use a file",
                               command, data);
        if (status == 0 && strcmp(data, all) != 0)
            status =
                cli_usage("%s: %s would use %s and %s would use %s: give --data for all of them",
                          command, runs->list[0].name, all, one->name, data);
    }
    return status;
}

json_t *cli_runs_settings(const cli_runs *runs, const cli_one *one)
{
    const char *name, *value;
    json_t *object = json_object();
    if (cli_given(runs->args, "backend", 0))
        json_object_set_new(object, "backend", cli_text_json(cli_text(runs->args, "backend")));
    for (int k = 0; dro_settings_item(one->settings, k, &name, &value) == DRO_OK; k++)
        json_object_set_new(object, name, cli_text_json(value));
    return object;
}
