/* The list of many runs: from the flags of the command to the arguments of each `dro train`. */
#include "runs.h"

#include <stdlib.h>
#include <string.h>

static const cli_option flags[] = {CLI_TRAIN_OPTIONS, CLI_OPTIONS_END};

/* ---- names ---- */

static bool listed(dro_status (*param)(int, dro_param *), const char *name)
{
    dro_param p;
    for (int i = 0; param(i, &p) == DRO_OK; i++)
        if (strcmp(p.name, name) == 0)
            return true;
    return false;
}

/* Parameters that do not depend on the optimiser. */
static bool is_common(const char *name)
{
    return strcmp(name, "config") == 0 || strcmp(name, "precision") == 0 ||
           listed(dro_train_param, name) || listed(dro_net_param, name);
}

bool cli_runs_knows(const char *optimizer, const char *name)
{
    dro_param p;
    for (int i = 0; dro_optimizer_param(optimizer, i, &p) == DRO_OK; i++)
        if (strcmp(p.name, name) == 0)
            return true;
    return is_common(name);
}

/* The parameter that a flag stands for. */
static void param_of(const char *flag, char name[64])
{
    snprintf(name, 64, "%s", strcmp(flag, "lr") == 0 ? "eta" : flag);
    for (char *c = name; *c; c++)
        *c = *c == '-' ? '_' : *c;
}

int cli_runs_split(const char *text, const char **parts, int room)
{
    int count = 0;
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t length = strcspn(at, ",");
        char *copy = length && count < room ? malloc(length + 1) : NULL;
        if (!copy)
            return -1;
        memcpy(copy, at, length);
        copy[length] = '\0';
        parts[count++] = copy;
    }
    return count;
}

/* ---- values ---- */

int cli_runs_value(const cli_runs *runs, const char *optimizer, const char *name, const char *value)
{
    if (listed(dro_train_param, name))
        return cli_train_set(cli_name(runs->args), runs->train, name, value);
    if (is_common(name))
        return 0;
    return cli_train_value(cli_name(runs->args), optimizer, name, value);
}

/* ---- opening ---- */

/* Values of the run's own parameters are checked here, before anything is started. */
static int check_values(cli_runs *runs)
{
    const char *value, *command = cli_name(runs->args), *config = cli_text(runs->args, "config");
    int status = config ? cli_train_config(command, runs->train, config, "") : 0;
    for (const cli_option *f = flags; f->name && status == 0; f++) {
        char name[64];
        param_of(f->name, name);
        for (int k = 0; status == 0 && (value = cli_given(runs->args, f->name, k)); k++)
            if (listed(dro_train_param, name))
                status = cli_train_set(command, runs->train, name, value);
    }
    return status;
}

int cli_runs_open(cli_runs *runs, const cli_args *args, const char *folder)
{
    *runs = (cli_runs){.args = args, .folder = folder, .lock = -1};
    runs->began = cli_seconds();
    int rank;
    dro_comm_started(&rank, NULL);
    cli_mute(rank > 0);
    cli_thread_ready();
    runs->ctx = cli_train_context(args, NULL);
    if (!runs->ctx)
        return 1;
    runs->jobs = (int)cli_integer(args, "jobs");
    runs->threads = dro_context_threads(runs->ctx) / runs->jobs;
    runs->threads = runs->threads < 1 ? 1 : runs->threads;
    if (dro_train_create(runs->ctx, &runs->train) != DRO_OK)
        return cli_fail("%s", dro_context_error(runs->ctx));
    return check_values(runs);
}

/* ---- flags for all, and for one ---- */

/* "recover.lambda=5" to name "lambda" and, if it names one, the optimiser. */
static bool split_set(const char *pair, char optimizer[64], char name[64])
{
    size_t length = strcspn(pair, "="), dot = strcspn(pair, ".=");
    bool dotted = pair[dot] == '.';
    size_t start = dotted ? dot + 1 : 0;
    if (!pair[length] || length == start || length - start >= 64 || dot >= 64)
        return false;
    snprintf(optimizer, 64, "%.*s", dotted ? (int)dot : 0, pair);
    snprintf(name, 64, "%.*s", (int)(length - start), pair + start);
    return true;
}

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
        snprintf(text + used, size - used, "%s%s",
                 k == 0           ? ""
                 : k + 1 == count ? " and "
                                  : ", ",
                 list[k]);
    }
}

static bool meant(const char *name, const char *const *optimizers, int count)
{
    for (int k = 0; k < count; k++)
        if (cli_runs_knows(optimizers[k], name))
            return true;
    return false;
}

static int check_set(const cli_runs *runs, const char *pair, const char *const *optimizers,
                     int count)
{
    const char *command = cli_name(runs->args), *value = strchr(pair, '=');
    char one[64], name[64], all[512];
    join(all, sizeof all, optimizers, count);
    if (!split_set(pair, one, name))
        return cli_usage("%s: --set %s: expected NAME=VALUE, or OPTIMISER.NAME=VALUE for one",
                         command, pair);
    if (*one && !among(one, optimizers, count))
        return cli_usage("%s: --set %s: no run is by '%s', only by %s", command, pair, one, all);
    if (*one && !cli_runs_knows(one, name))
        return cli_usage("%s: --set %s: %s has no parameter '%s': 'dro list optimizers %s' lists "
                         "them",
                         command, pair, one, name, one);
    if (!*one && !meant(name, optimizers, count))
        return cli_usage("%s: --set %s: %s %s no parameter '%s'", command, pair, all,
                         count > 1 ? "have" : "has", name);
    int status = 0;
    for (int k = 0; k < count && status == 0; k++)
        if ((!*one || strcmp(one, optimizers[k]) == 0) && cli_runs_knows(optimizers[k], name))
            status = cli_runs_value(runs, optimizers[k], name, value + 1);
    return status;
}

/* A flag that was given must mean something to one of them, and its value be right for those. */
static int check_flag(const cli_runs *runs, const char *flag, const char *const *optimizers,
                      int count)
{
    char name[64], all[512];
    int status = 0;
    param_of(flag, name);
    join(all, sizeof all, optimizers, count);
    if (!meant(name, optimizers, count))
        return cli_usage("%s: --%s: %s %s no %s", cli_name(runs->args), flag, all,
                         count > 1 ? "have" : "has", name);
    for (int k = 0; k < count && status == 0; k++)
        if (strcmp(flag, "reg") != 0 && !is_common(name) && cli_runs_knows(optimizers[k], name))
            status = cli_runs_value(runs, optimizers[k], name, cli_text(runs->args, flag));
    return status;
}

int cli_runs_check(const cli_runs *runs, const char *const *optimizers, int count)
{
    const char *command = cli_name(runs->args), *names[CLI_NAMES];
    int known = cli_optimizers(names);
    for (int k = 0; k < count; k++)
        if (!among(optimizers[k], names, known)) {
            const char *nearest = cli_nearest(optimizers[k], names, known);
            return cli_usage("%s: no optimiser '%s': %s%s%s", command, optimizers[k],
                             nearest ? "did you mean '" : "'dro list optimizers",
                             nearest ? nearest : "", nearest ? "'?" : "' lists them");
        } else if (among(optimizers[k], optimizers, k)) {
            return cli_usage("%s: '%s' is named twice", command, optimizers[k]);
        }
    int status = 0;
    for (const cli_option *f = flags; f->name && status == 0; f++)
        if (strcmp(f->name, "set") != 0 && cli_given(runs->args, f->name, 0))
            status = check_flag(runs, f->name, optimizers, count);
    for (int k = 0; status == 0 && cli_given(runs->args, "set", k); k++)
        status = check_set(runs, cli_given(runs->args, "set", k), optimizers, count);
    return status;
}

/* ---- one run ---- */

static void add_word(json_t *words, const char *flag, const char *value)
{
    char text[8192];
    snprintf(text, sizeof text, "--%s=%s", flag, value);
    json_array_append_new(words, cli_text_json(text));
}

static void add_flags(json_t *words, const cli_args *args, const char *optimizer)
{
    const char *value;
    char one[64], name[64];
    if (cli_given(args, "backend", 0))
        add_word(words, "backend", cli_text(args, "backend"));
    for (const cli_option *f = flags; f->name; f++) {
        param_of(f->name, name);
        if (among(f->name, (const char *const[]){"data", "seed", "set"}, 3) ||
            !cli_given(args, f->name, 0) || !cli_runs_knows(optimizer, name))
            continue;
        add_word(words, f->name, cli_text(args, f->name));
    }
    for (int own = 0; own < 2; own++) /* what is for one wins over what is for all */
        for (int k = 0; (value = cli_given(args, "set", k)); k++)
            if (split_set(value, one, name) && (*one != '\0') == own &&
                (!*one || strcmp(one, optimizer) == 0) && cli_runs_knows(optimizer, name))
                add_word(words, "set", value + (*one ? strlen(one) + 1 : 0));
}

cli_one *cli_runs_add(cli_runs *runs, const char *name, const char *optimizer, long long seed,
                      const char *data, const char *const *own, int count)
{
    char number[32];
    if (runs->count == runs->room) {
        int room = runs->room ? 2 * runs->room : 64;
        cli_one *more = realloc(runs->list, (size_t)room * sizeof *more);
        if (!more) {
            cli_fail("no memory for %d runs", room);
            return NULL;
        }
        runs->list = more;
        runs->room = room;
    }
    cli_one *one = &runs->list[runs->count];
    *one =
        (cli_one){.name = strdup(name), .optimizer = optimizer, .words = json_array(), .pipe = -1};
    if (!one->name || !one->words) {
        cli_fail("no memory for a run");
        return NULL;
    }
    runs->count++;
    snprintf(number, sizeof number, "%lld", seed);
    data = data ? data : cli_text(runs->args, "data");
    if (data)
        add_word(one->words, "data", data);
    add_word(one->words, "optimizer", optimizer);
    add_word(one->words, "seed", number);
    add_flags(one->words, runs->args, optimizer);
    for (int k = 0; k < count; k++)
        if (strncmp(own[k], "config=", 7) == 0)
            add_word(one->words, "config", own[k] + 7);
        else
            add_word(one->words, "set", own[k]);
    return one;
}

/* ---- what each will be ---- */

/* `dro train` as one of many is given it. */
const cli_option cli_one_options[] = {CLI_TRAIN_TEXT("optimizer", "NAME", "the optimiser"),
                                      CLI_TRAIN_OPTIONS, CLI_OPTIONS_END};

/* The command's parser hands its arguments to `settle`; this is where it finds the run. */
static dro_train *settling;

static int settle(const cli_args *args)
{
    return cli_train_settings(args, settling);
}

static bool is_stdin(const char *data)
{
    const char *path = strchr(data, ':');
    return path && path[1] == '-' && (path[2] == '\0' || path[2] == ',');
}

/* The data of the first run is that of all. */
static int check_data(cli_runs *runs, const cli_one *one, const dro_train *train)
{
    char data[4096], all[4096];
    const char *command = cli_name(runs->args);
    dro_train_get(train, "data", data, sizeof data);
    if (is_stdin(data))
        return cli_usage("%s: %s: every run reads the data, which standard input gives once: put "
                         "it into a file",
                         command, data);
    if (one == runs->list)
        return cli_train_set(command, runs->train, "data", data);
    dro_train_get(runs->train, "data", all, sizeof all);
    return strcmp(data, all) == 0
               ? 0
               : cli_usage("%s: %s would be on %s and %s on %s: give --data, which is for all",
                           command, runs->list[0].name, all, one->name, data);
}

int cli_runs_take(const cli_runs *runs, const cli_one *one, dro_train **train)
{
    const cli_command command = {
        .name = cli_name(runs->args), .options = cli_one_options, .run = settle};
    char *words[CLI_WORDS];
    int count = 0;
    for (size_t i = 0; i < json_array_size(one->words) && count < CLI_WORDS; i++)
        words[count++] = (char *)json_string_value(json_array_get(one->words, i));
    if (dro_train_create(runs->ctx, &settling) != DRO_OK)
        return cli_fail("%s", dro_context_error(runs->ctx));
    int status = cli_run(&command, count, words);
    *train = settling;
    if (status)
        dro_train_destroy(settling);
    return status;
}

int cli_runs_settle(cli_runs *runs)
{
    int status = 0;
    for (int k = 0; k < runs->count && status == 0; k++) {
        dro_train *train;
        status = cli_runs_take(runs, &runs->list[k], &train);
        if (status)
            return status;
        status = check_data(runs, &runs->list[k], train);
        dro_train_destroy(train);
    }
    return status;
}
