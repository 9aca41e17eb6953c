/* The settings of a run: from config files (an earlier run's config.json, or any JSON object of
 * names and values) and from the command line. */
#define _GNU_SOURCE
#include "train.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- config files ---- */

enum { THREADS_MAX = 4096 }; /* as of --threads */

static bool is_group(const char *key)
{
    return strcmp(key, "optimizer_settings") == 0 || strcmp(key, "network_settings") == 0;
}

/* What a value must be and is not; NULL: it is that. */
static const char *wrong_value(const char *key, const json_t *value)
{
    size_t k;
    json_t *each;
    if (strcmp(key, "optimizer") == 0 || strcmp(key, "backend") == 0 || strcmp(key, "version") == 0)
        return json_is_string(value) ? NULL : "a text";
    if (strcmp(key, "threads") == 0) {
        json_int_t count = json_is_integer(value) ? json_integer_value(value) : -1;
        return count >= 0 && count <= THREADS_MAX ? NULL : "a whole number from 0 to 4096";
    }
    bool fine = json_is_string(value) || json_is_number(value) || json_is_boolean(value) ||
                json_is_array(value);
    json_array_foreach((json_t *)value, k, each) fine = fine && json_is_number(each);
    return fine ? NULL : "a text, a number, true, false or a list of numbers";
}

static bool check_values(const char *path, json_t *object, bool grouped)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        bool group = !grouped && is_group(key);
        const char *expected = group ? NULL : wrong_value(key, value);
        if (group && !json_is_object(value))
            expected = "an object of settings";
        if (expected)
            return cli_fail("%s: %s: expected %s", path, key, expected), false;
        if (group && !check_values(path, value, true))
            return false;
    }
    return true;
}

json_t *cli_config_load(const char *path)
{
    struct stat about;
    json_error_t error;
    bool input = strcmp(path, "-") == 0;
    if (input && dro_comm_started(NULL, NULL) > 1) {
        cli_fail("--config -: of several ranks only rank 0 has standard input: write the settings "
                 "to a file");
        return NULL;
    }
    if (!input && stat(path, &about) != 0) {
        cli_fail("%s: cannot read the settings: %s", path, strerror(errno));
        return NULL;
    }
    if (!input && S_ISDIR(about.st_mode)) {
        cli_fail("%s: is a folder: expected a file, as in %s/config.json", path, path);
        return NULL;
    }
    if (!input && !S_ISREG(about.st_mode)) {
        cli_fail("%s: is a pipe or a device: expected a file, or - for standard input", path);
        return NULL;
    }
    if (!input && about.st_size == 0) {
        cli_fail("%s: is empty: expected settings, as in {\"data\": \"csv:FILE,label=y\"}", path);
        return NULL;
    }
    json_t *document = input ? json_loadf(stdin, JSON_REJECT_DUPLICATES, &error)
                             : json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!document && input && error.position <= 0) /* cannot be read, or has nothing */
        cli_fail("standard input: is empty: expected settings, as in {\"data\": "
                 "\"csv:FILE,label=y\"}");
    else if (!document && error.line < 1)
        cli_fail("%s", error.text);
    else if (!document)
        cli_fail("%s: line %d: %s", path, error.line, error.text);
    else if (!json_is_object(document))
        cli_fail("%s: expected settings: a run's config.json, or another JSON object", path);
    else if (json_object_size(document) == 0) /* the user does not mean the built-in defaults */
        cli_fail(
            "%s: has no settings: expected at least one, as in {\"data\": \"csv:FILE,label=y\"}",
            path);
    if (json_is_object(document))
        json_object_del(document, "sweep"); /* of best.json: what the sweep measured */
    if (json_object_size(document) > 0 && check_values(path, document, false))
        return document;
    json_decref(document);
    return NULL;
}

/* The text of a setting's value, perhaps in `text`. A list is written with commas. */
static const char *value_text(const json_t *value, char *text, size_t size)
{
    size_t used = 0, k;
    json_t *each;
    *text = '\0';
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_integer(value))
        snprintf(text, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_boolean(value))
        snprintf(text, size, "%s", json_is_true(value) ? "yes" : "no");
    else if (json_is_real(value))
        snprintf(text, size, "%.17g", json_number_value(value));
    json_array_foreach((json_t *)value, k, each)
    {
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%.17g", k ? "," : "",
                                     json_number_value(each));
    }
    return text;
}

/* Names in a file that are not settings: of the machine, for cli_config_context(), and about the
 * file. */
static bool is_other(const char *name)
{
    return strcmp(name, "backend") == 0 || strcmp(name, "threads") == 0 ||
           strcmp(name, "version") == 0;
}

/* A whole number that depends on the data if not given; files of runs say 0 there. */
static bool is_chosen(const char *name, const char *value)
{
    const dro_setting *s = cli_setting(name);
    return s && s->param.kind == DRO_PARAM_INTEGER && !*s->param.fallback &&
           strcmp(value, "0") == 0;
}

static int take_object(cli_scope *scope, const char *path, json_t *object)
{
    const char *key;
    json_t *value;
    char number[4097]; /* longer than a setting may be */
    json_object_foreach(object, key, value)
    {
        bool skipped = is_other(key) || is_group(key) || strcmp(key, "optimizer") == 0;
        const char *text = skipped ? "" : value_text(value, number, sizeof number);
        if (skipped || is_chosen(key, text) ||
            (scope->only && dro_setting_name(key) && !dro_setting_known(scope->only, key)))
            continue;
        /* the name of `name` in older files */
        const char *name = strcmp(key, "label") == 0 ? "name" : key;
        if (dro_settings_set(scope->settings, name, text) != DRO_OK)
            return cli_usage("%s: %s: %s", scope->command, path, dro_context_error(scope->ctx));
    }
    return 0;
}

int cli_config_take(cli_scope *scope, const char *path, json_t *document)
{
    const char *theirs = json_string_value(json_object_get(document, "optimizer"));
    const char *ours = scope->only ? scope->only : scope->optimizer;
    if (!ours && theirs && dro_settings_set(scope->settings, "optimizer", theirs) != DRO_OK)
        return cli_usage("%s: %s: %s", scope->command, path, dro_context_error(scope->ctx));
    int status = take_object(scope, path, document);
    if (status == 0)
        status = take_object(scope, path, json_object_get(document, "network_settings"));
    /* another optimiser than the file's has its own defaults */
    if (status == 0 && (!ours || (theirs && strcmp(ours, theirs) == 0)))
        status = take_object(scope, path, json_object_get(document, "optimizer_settings"));
    return status;
}

/* Ranks that share all processors of a machine divide them; ranks that are bound to some use
 * those. */
static int threads_of_rank(void)
{
    int local, ranks = dro_comm_started(NULL, &local);
    long all = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t own;
    if (ranks == 1 || sched_getaffinity(0, sizeof own, &own) != 0 || CPU_COUNT(&own) < all)
        return 0;
    return all / local > 1 ? (int)(all / local) : 1;
}

dro_context *cli_config_context(const cli_args *args, const json_t *document)
{
    const char *backend = cli_given(args, "backend", 0), *threads = cli_given(args, "threads", 0);
    const char *theirs = json_string_value(json_object_get(document, "backend"));
    int count = threads ? (int)cli_integer(args, "threads")
                        : (int)json_integer_value(json_object_get(document, "threads"));
    if (!threads && dro_comm_started(NULL, NULL) > 1)
        count = threads_of_rank();
    dro_context *ctx = NULL;
    dro_status status = dro_context_create(backend ? backend : theirs, count, &ctx);
    const char *name = backend ? backend : theirs ? theirs : "auto";
    if (status != DRO_OK)
        cli_backend_fail(name, status);
    return ctx;
}

/* ---- the command line ---- */

int cli_settings_set(const cli_scope *scope, const char *name, const char *value)
{
    if (dro_settings_set(scope->settings, name, value) != DRO_OK)
        return cli_usage("%s: %s", scope->command, dro_context_error(scope->ctx));
    bool precise = strcmp(name, "precision") == 0; /* a file also lists what was not used */
    return precise ? cli_precision(scope->command, "precision=", value, scope->ctx) : 0;
}

int cli_settings_pair(const char *command, const char *pair, cli_pair *out)
{
    size_t length = strcspn(pair, "="), dot = strcspn(pair, ".=");
    size_t start = pair[dot] == '.' ? dot + 1 : 0;
    if (!pair[length] || length == start || length - start >= sizeof out->name ||
        dot >= sizeof out->optimizer)
        return cli_usage("%s: --set %s: expected --set NAME=VALUE", command, pair);
    snprintf(out->optimizer, sizeof out->optimizer, "%.*s", start ? (int)dot : 0, pair);
    snprintf(out->name, sizeof out->name, "%.*s", (int)(length - start), pair + start);
    out->value = pair + length + 1;
    return 0;
}

bool cli_settings_given(const cli_args *args, int k, cli_pair *out, int *status)
{
    const char *value, *option = cli_given_at(args, k, &value);
    *status = 0;
    if (!option)
        return false;
    *out = (cli_pair){.value = value};
    if (strcmp(option, "set") == 0)
        *status = cli_settings_pair(cli_name(args), value, out);
    else if (dro_setting_name(option) && strcmp(option, "optimizer") != 0)
        snprintf(out->name, sizeof out->name, "%s", option);
    return true;
}

int cli_label_spec(const cli_args *args, const char *data, char *spec, size_t size)
{
    const char *label = cli_text(args, "label"), *given = strstr(data, ",label=");
    char option[512] = ",label=";
    size_t used = strlen(option);
    for (const char *p = label ? label : ""; *p && used < sizeof option - 2; p++) {
        if (*p == ',' || *p == '\\')
            option[used++] = '\\';
        option[used++] = *p;
    }
    option[used] = '\0';
    bool same = given && strncmp(given, option, used) == 0 && (!given[used] || given[used] == ',');
    if (label && given && !same)
        return cli_usage("%s: --label %s, but --data says %s: give one of them", cli_name(args),
                         label, given + 1);
    return snprintf(spec, size, "%s%s", data, label && !given ? option : "") < (int)size
               ? 0
               : cli_usage("%s: --data is too long", cli_name(args));
}

/* --label COLUMN: label= of the data. */
static int take_label(const cli_scope *scope, const cli_args *args)
{
    char data[4096], spec[4096];
    if (!cli_text(args, "label"))
        return 0;
    if (dro_settings_get(scope->settings, "data", data, sizeof data) != DRO_OK)
        return cli_usage("%s: %s", scope->command, dro_context_error(scope->ctx));
    int status = cli_label_spec(args, data, spec, sizeof spec);
    return status ? status : cli_settings_set(scope, "data", spec);
}

void cli_settings_objective(const cli_scope *scope)
{
    char objective[64] = "";
    if (dro_settings_given(scope->settings, "objective"))
        dro_settings_get(scope->settings, "objective", objective, sizeof objective);
    if (*objective)
        dro_settings_set(scope->settings, "lambda", NULL);
}

int cli_settings_take(cli_scope *scope, const cli_args *args)
{
    cli_pair p;
    int status = 0;
    bool lambda = false;
    if (cli_given(args, "epochs", 0) && cli_given(args, "steps", 0))
        return cli_usage("%s: --epochs and --steps exclude each other", scope->command);
    for (int own = 0; own < 2; own++) /* a setting for one optimiser overrides one for all */
        for (int k = 0; status == 0 && cli_settings_given(args, k, &p, &status); k++) {
            bool for_one = p.optimizer[0] != '\0';
            bool skipped =
                scope->only && dro_setting_name(p.name) && !dro_setting_known(scope->only, p.name);
            if (status || !p.name[0] || for_one != (own == 1) || skipped)
                continue;
            if (for_one && (!scope->only || strcmp(scope->only, p.optimizer) != 0))
                continue;
            status = cli_settings_set(scope, p.name, p.value);
            lambda = lambda || strcmp(p.name, "lambda") == 0;
        }
    if (!lambda) /* a file of settings has one */
        cli_settings_objective(scope);
    return status ? status : take_label(scope, args);
}

int cli_settings_check(const cli_scope *scope)
{
    if (dro_settings_check(scope->settings) == DRO_OK)
        return 0;
    return cli_usage("%s: %s", scope->command, dro_context_error(scope->ctx));
}
