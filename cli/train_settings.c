/* Settings of a run: flags, --set, and config files (an earlier run's config.json, or a small TOML). */
#define _GNU_SOURCE
#include "train.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names ---- */

static bool own(const char *name)
{
    dro_param p;
    for (int i = 0; dro_train_param(i, &p) == DRO_OK; i++)
        if (strcmp(p.name, name) == 0)
            return true;
    return false;
}

static int collect(const dro_train *train, const char **names, int room)
{
    static char optimizer[4096];
    static dro_param p; /* names are static texts */
    int count = 0;
    dro_train_get(train, "optimizer", optimizer, sizeof optimizer);
    for (int i = 0; count < room && dro_train_param(i, &p) == DRO_OK; i++)
        names[count++] = p.name;
    for (int i = 0; count < room && dro_net_param(i, &p) == DRO_OK; i++)
        names[count++] = p.name;
    for (int i = 0; count < room && dro_optimizer_param(optimizer, i, &p) == DRO_OK; i++)
        names[count++] = p.name;
    return count;
}

enum { ROOM = 256 };

static bool knows(const dro_train *train, const char *name)
{
    const char *names[ROOM];
    int count = collect(train, names, ROOM);
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

int cli_train_check(const char *command, const dro_train *train, const char *name)
{
    const char *names[ROOM];
    char optimizer[4096];
    int count = collect(train, names, ROOM);
    if (knows(train, name))
        return 0;
    dro_train_get(train, "optimizer", optimizer, sizeof optimizer);
    const char *nearest = cli_nearest(name, names, count);
    if (nearest)
        return cli_usage("%s: %s has no parameter '%s': did you mean '%s'?", command, optimizer,
                         name, nearest);
    return cli_usage("%s: %s has no parameter '%s': 'dro list optimizers %s' lists them", command,
                     optimizer, name, optimizer);
}

static int check_optimizer(const char *command, const char *name)
{
    const char *names[CLI_NAMES];
    int count = cli_optimizers(names);
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return 0;
    const char *nearest = cli_nearest(name, names, count);
    if (nearest)
        return cli_usage("%s: no optimiser '%s': did you mean '%s'?", command, name, nearest);
    return cli_usage("%s: no optimiser '%s': 'dro list optimizers' lists them", command, name);
}

/* "90s", "30m", "2h" or seconds. */
static bool seconds_of(const char *text, char *out, size_t size)
{
    char *end;
    double value = strtod(text, &end);
    double unit = strcmp(end, "h") == 0                   ? 3600
                  : strcmp(end, "m") == 0                 ? 60
                  : strcmp(end, "s") == 0 || *end == '\0' ? 1
                                                          : 0;
    if (end == text || !(value > 0) || !isfinite(value) || unit == 0)
        return false;
    snprintf(out, size, "%.17g", value * unit);
    return true;
}

static dro_context *context_of; /* holds the error texts */

static dro_status no_forward(void *user, const float *w, const dro_batch *parts, int part_count,
                             float *losses)
{
    (void)user, (void)w, (void)parts, (void)part_count, (void)losses;
    return DRO_ERR_STATE;
}

static dro_status no_backward(void *user, const float *w, const dro_batch *parts, int part_count,
                              const float *coef, float *const *grads)
{
    (void)user, (void)w, (void)parts, (void)part_count, (void)coef, (void)grads;
    return DRO_ERR_STATE;
}

int cli_train_value(const char *command, const char *optimizer, const char *name, const char *value)
{
    dro_problem problem = {.dim = 1, .n = 1, .forward = no_forward, .backward = no_backward};
    dro_optimizer *opt = NULL;
    dro_status status = dro_optimizer_create(context_of, optimizer, &problem, &opt);
    status = status ? status : dro_optimizer_set(opt, name, value);
    dro_optimizer_destroy(opt);
    return status ? cli_usage("%s: %s", command, dro_context_error(context_of)) : 0;
}

static bool has(const char *optimizer, const char *name)
{
    dro_param p;
    for (int i = 0; dro_optimizer_param(optimizer, i, &p) == DRO_OK; i++)
        if (strcmp(p.name, name) == 0)
            return true;
    return false;
}

static int set(const char *command, dro_train *train, const char *name, const char *value)
{
    char seconds[40];
    if (strcmp(name, "optimizer") == 0) {
        int status = check_optimizer(command, value);
        if (status)
            return status;
    }
    if (strcmp(name, "max_time") == 0) {
        if (!seconds_of(value, seconds, sizeof seconds) && strcmp(value, "0") != 0)
            return cli_usage("%s: --max-time %s: expected a time, as in 90s, 30m or 2h", command,
                             value);
        if (strcmp(value, "0") != 0)
            value = seconds;
    }
    char optimizer[4096];
    dro_train_get(train, "optimizer", optimizer, sizeof optimizer);
    if (!own(name) && has(optimizer, name)) {
        int status = cli_train_value(command, optimizer, name, value);
        if (status)
            return status;
    }
    if (dro_train_set(train, name, value) == DRO_OK)
        return 0;
    return cli_usage("%s", dro_context_error(context_of));
}

int cli_train_set(const char *command, dro_train *train, const char *name, const char *value)
{
    return set(command, train, name, value);
}

/* ---- config.json ---- */

/* backend and threads, which are not the run's own: cli_train_context. */
static bool is_machine(const char *name)
{
    return strcmp(name, "backend") == 0 || strcmp(name, "threads") == 0;
}

static void value_text(const json_t *value, char *text, size_t size)
{
    if (json_is_string(value))
        snprintf(text, size, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(text, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_boolean(value))
        snprintf(text, size, "%s", json_is_true(value) ? "yes" : "no");
    else
        snprintf(text, size, "%.17g", json_number_value(value));
}

/* The settings of an object; `all`: also names that are the optimiser's or the network's. */
static int take_object(const char *command, dro_train *train, const char *path, json_t *object,
                       bool all)
{
    const char *key;
    json_t *value;
    char text[4096];
    json_object_foreach(object, key, value)
    {
        bool machine = is_machine(key) || strcmp(key, "version") == 0;
        if (json_is_object(value) || json_is_array(value) || json_is_null(value) || machine)
            continue;
        if (!all && !own(key))
            return cli_fail("%s: no setting '%s' of the run: an optimiser's belongs into "
                            "optimizer_settings, a network's into network_settings",
                            path, key);
        value_text(value, text, sizeof text);
        int status = set(command, train, key, text);
        if (status)
            return status;
    }
    return 0;
}

static int take_json(const char *command, dro_train *train, const char *path, json_t *document,
                     const char *optimizer)
{
    char chosen[4096];
    int status = take_object(command, train, path, document, false);
    if (status == 0)
        status =
            take_object(command, train, path, json_object_get(document, "network_settings"), true);
    dro_train_get(train, "optimizer", chosen, sizeof chosen);
    /* another optimiser than the file's has its own defaults */
    if (status == 0 && (!optimizer || strcmp(chosen, optimizer) == 0))
        status = take_object(command, train, path, json_object_get(document, "optimizer_settings"),
                             true);
    return status;
}

/* ---- a small TOML: name = value, [tables], comments ---- */

static bool is_toml(const char *path)
{
    size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".toml") == 0;
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    for (size_t n = strlen(text); n && isspace((unsigned char)text[n - 1]); n--)
        text[n - 1] = '\0';
    return text;
}

/* "text" 'text' 1.5 true [60, 90] to the text of a setting; false if it is none of them. */
static bool toml_value(char *value, char *out, size_t size)
{
    size_t n = strlen(value), used = 0;
    char end = value[0] == '[' ? ']' : value[0] == '"' || value[0] == '\'' ? value[0] : '\0';
    if (end && (n < 2 || value[n - 1] != end))
        return false;
    if (end) {
        value[n - 1] = '\0';
        value++;
    }
    for (; *value && used + 1 < size; value++)
        if (end != ']' || !strchr(" \"'", *value))
            out[used++] = *value;
    out[used] = '\0';
    if (!end && strcmp(out, "true") == 0)
        snprintf(out, size, "yes");
    if (!end && strcmp(out, "false") == 0)
        snprintf(out, size, "no");
    return used > 0 || end;
}

static void cut_comment(char *line)
{
    char quote = '\0';
    for (; *line; line++) {
        if (quote)
            quote = *line == quote ? '\0' : quote;
        else if (*line == '"' || *line == '\'')
            quote = *line;
        else if (*line == '#')
            *line = '\0';
        if (!*line)
            return;
    }
}

/* [optimizer_settings] and [network_settings] are there for the eye: names are enough. */
static int check_table(const char *table, const char *path, int number)
{
    size_t n = strlen(table);
    if (table[n - 1] != ']')
        return path ? cli_fail("%s: line %d: %s: expected ] at the end", path, number, table) : 1;
    if (strcmp(table, "[optimizer_settings]") == 0 || strcmp(table, "[network_settings]") == 0)
        return 0;
    return path ? cli_fail("%s: line %d: no table %s: there are [optimizer_settings] and "
                           "[network_settings]; the run's own settings stand above them",
                           path, number, table)
                : 1;
}

/* The next setting of the file, its name as a setting's; 0, -1 at the end, or the exit status after a line
 * (without one if path is NULL). */
static int next_toml(FILE *file, const char *path, int *number, char *line, size_t size,
                     char **name, char *value, size_t room)
{
    while (fgets(line, (int)size, file)) {
        ++*number;
        cut_comment(line);
        *name = trim(line);
        char *equals = strchr(*name, '=');
        if (**name == '[' && check_table(*name, path, *number))
            return 1;
        if (!**name || **name == '[')
            continue;
        if (!equals)
            return path ? cli_fail("%s: line %d: expected name = value", path, *number) : 1;
        *equals = '\0';
        *name = trim(*name);
        if (!toml_value(trim(equals + 1), value, room))
            return path ? cli_fail("%s: line %d: %s has no value that can be read", path, *number,
                                   *name)
                        : 1;
        for (char *c = *name; *c; c++)
            *c = *c == '-' ? '_' : *c;
        if (strcmp(*name, "lr") == 0)
            *name = (char *)"eta";
        return 0;
    }
    return -1;
}

/* The optimiser first: it decides which names there are. optimizer: that of the command line, or NULL. */
static int take_toml(const char *command, dro_train *train, const char *path, FILE *file,
                     const char *optimizer)
{
    char line[8192], value[4096], *name, place[4400];
    int status = optimizer && *optimizer ? set(command, train, "optimizer", optimizer) : 0;
    for (int pass = 0; pass < 2 && status == 0; pass++) {
        int number = 0;
        rewind(file);
        while ((status = next_toml(file, path, &number, line, sizeof line, &name, value,
                                   sizeof value)) == 0) {
            bool chooses = strcmp(name, "optimizer") == 0;
            if (is_machine(name) || chooses != (pass == 0) || (chooses && optimizer && *optimizer))
                continue;
            snprintf(place, sizeof place, "%.4000s: line %d", path, number);
            if (!optimizer ||
                *optimizer) /* "": for several optimisers, which are looked at later */
                status = cli_train_check(place, train, name);
            status = status ? status : set(place, train, name, value);
            if (status)
                return status;
        }
        status = status < 0 ? 0 : status;
    }
    return status;
}

int cli_train_config(const char *command, dro_train *train, const char *path, const char *optimizer)
{
    struct stat about;
    if (stat(path, &about) != 0)
        return cli_fail("%s: cannot read the settings: %s", path, strerror(errno));
    if (S_ISDIR(about.st_mode))
        return cli_fail("%s: is a folder: expected a file, as in %s/config.json", path, path);
    if (is_toml(path)) {
        FILE *file = fopen(path, "r");
        if (!file)
            return cli_fail("%s: cannot read the settings: %s", path, strerror(errno));
        int status = take_toml(command, train, path, file, optimizer);
        fclose(file);
        return status;
    }
    json_error_t error;
    json_t *document = json_load_file(path, 0, &error);
    if (!document && error.line < 1)
        return cli_fail("%s", error.text);
    if (!document)
        return cli_fail("%s: line %d: %s", path, error.line, error.text);
    int status = json_is_object(document)
                     ? take_json(command, train, path, document, optimizer)
                     : cli_fail("%s: expected settings: a run's config.json, or a .toml", path);
    json_decref(document);
    return status;
}

/* backend and threads of a file, as JSON: an object, or NULL. */
static json_t *machine_of(const char *path)
{
    char line[8192], value[4096], *name;
    if (!is_toml(path))
        return json_load_file(path, 0, NULL);
    FILE *file = fopen(path, "r");
    json_t *found = json_object();
    int number = 0;
    while (file &&
           next_toml(file, NULL, &number, line, sizeof line, &name, value, sizeof value) == 0) {
        if (strcmp(name, "backend") == 0)
            json_object_set_new(found, name, cli_text_json(value));
        else if (strcmp(name, "threads") == 0)
            json_object_set_new(found, name, json_integer(atoi(value)));
    }
    if (file)
        fclose(file);
    return found;
}

/* Ranks that share all processors of a machine share them out; those that were bound to some have their own. */
static int threads_of_rank(void)
{
    int local, ranks = dro_comm_started(NULL, &local);
    long all = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t own;
    if (ranks == 1 || sched_getaffinity(0, sizeof own, &own) != 0 || CPU_COUNT(&own) < all)
        return 0;
    return all / local > 1 ? (int)(all / local) : 1;
}

dro_context *cli_train_context(const cli_args *args, const char *config)
{
    json_t *document = config ? machine_of(config) : NULL;
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
    json_decref(document);
    context_of = ctx;
    return ctx;
}

/* ---- the command line ---- */

static int take_set(const char *command, dro_train *train, const char *pair)
{
    char name[128];
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair || equals - pair >= (long)sizeof name)
        return cli_usage("%s: --set %s: expected --set NAME=VALUE", command, pair);
    snprintf(name, sizeof name, "%.*s", (int)(equals - pair), pair);
    int status = cli_train_check(command, train, name);
    if (status == 0 && strcmp(name, "precision") == 0)
        status = cli_precision(command, "--set precision=", equals + 1, context_of);
    return status ? status : set(command, train, name, equals + 1);
}

/* A whole number from 1 on; how large it may be is the setting's to say. */
static bool is_count(const char *value)
{
    char *end;
    double number = strtod(value, &end);
    return end != value && !*end && number >= 1 && number == floor(number);
}

/* The setting that a flag stands for: its name with _, but for a few. */
static int take_flag(const cli_args *args, const char *command, dro_train *train, const char *flag)
{
    char name[64];
    const char *value = cli_given(args, flag, 0);
    if (!value)
        return 0;
    for (int k = 0; cli_given(args, flag, k); k++)
        value = cli_given(args, flag, k); /* the last one counts */
    if (strcmp(flag, "reg") == 0)
        return cli_reg_take(command, train, value);
    bool counts =
        strcmp(flag, "batch") == 0 || strcmp(flag, "epochs") == 0 || strcmp(flag, "steps") == 0;
    if (counts && !is_count(value))
        return cli_usage(
            "%s: --%s %s: expected a whole number from 1 on; without --%s it is chosen "
            "for the data",
            command, flag, value, flag);
    snprintf(name, sizeof name, "%s", strcmp(flag, "lr") == 0 ? "eta" : flag);
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : *c;
    char optimizer[4096];
    dro_train_get(train, "optimizer", optimizer, sizeof optimizer);
    if (!knows(train, name))
        return cli_usage("%s: --%s: %s has no %s", command, flag, optimizer, name);
    return set(command, train, name, value);
}

/* The network's own setting. */
static int take_precision(const cli_args *args, const char *command, dro_train *train)
{
    const char *word = cli_text(args, "precision");
    int status = cli_precision(command, "--precision ", word, context_of);
    return status || !word ? status : set(command, train, "precision", word);
}

int cli_train_settings(const cli_args *args, dro_train *train)
{
    static const char *const flags[] = {
        "optimizer",  "recipe", "data",     "model",        "epochs",        "steps",
        "batch",      "lr",     "lambda",   "weight-decay", "reg",           "tilt",
        "loss",       "seed",   "init",     "train-only",   "augment",       "size",
        "eval-every", "best",   "patience", "max-time",     "on-divergence", "report-every"};
    const char *command = cli_name(args), *config = cli_text(args, "config");
    int status = 0;
    if (config)
        status = cli_train_config(command, train, config, cli_given(args, "optimizer", 0));
    if (status == 0 && cli_given(args, "epochs", 0) && cli_given(args, "steps", 0))
        status = cli_usage("%s: --epochs and --steps exclude each other", command);
    if (status == 0 && cli_given(args, "epochs", 0)) /* wins over a file's steps */
        status = set(command, train, "steps", "0");
    for (size_t k = 0; k < sizeof flags / sizeof flags[0] && status == 0; k++)
        status = take_flag(args, command, train, flags[k]);
    if (status == 0)
        status = take_precision(args, command, train);
    for (int k = 0; status == 0 && cli_given(args, "set", k); k++)
        status = take_set(command, train, cli_given(args, "set", k));
    return status ? status : cli_reg_check(args, train);
}
