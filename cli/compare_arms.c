/* --arm of compare: "NAME: OPTIMISER SETTING=VALUE ...", one arm of a comparison with settings of
 * its own. The words live as long as the program. */
#include "runs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_name(const char *name)
{
    size_t length = strlen(name);
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("-_.+=", *c))
            return false;
    return length > 0 && length <= 60 && *name != '.' && !strstr(name, "-seed");
}

/* Cuts the text into the arm's name, its optimiser and its settings. */
static int split(const char *text, cli_arm *arm)
{
    char *copy = strdup(text), *colon = copy ? strchr(copy, ':') : NULL, *rest = NULL;
    *arm = (cli_arm){.name = copy};
    if (colon)
        *colon = '\0';
    if (!colon || !is_name(copy))
        return cli_usage(
            "compare: --arm '%s': expected NAME: OPTIMISER SETTING=VALUE ..., the name "
            "of letters, digits, - _ . + =",
            text);
    arm->optimizer = strtok_r(colon + 1, " \t\n", &rest);
    for (char *word; (word = strtok_r(NULL, " \t\n", &rest));) {
        if (arm->count == CLI_ARM_PAIRS)
            return cli_usage("compare: --arm '%s': more than %d settings", arm->name,
                             CLI_ARM_PAIRS);
        arm->pairs[arm->count++] = word;
    }
    if (!arm->optimizer)
        return cli_usage("compare: --arm '%s': no optimiser after the name", arm->name);
    return 0;
}

/* Refuses what an arm may not set; values are checked when its runs are made. */
static int check_pair(const cli_arm *arm, const char *pair)
{
    char name[64];
    const char *equals = strchr(pair, '=');
    if (!equals || equals == pair || equals - pair >= (long)sizeof name)
        return cli_usage("compare: --arm '%s': '%s': expected SETTING=VALUE", arm->name, pair);
    snprintf(name, sizeof name, "%.*s", (int)(equals - pair), pair);
    if (strcmp(name, "config") == 0)
        return access(equals + 1, R_OK) == 0
                   ? 0
                   : cli_fail("compare: --arm '%s': cannot read %s", arm->name, equals + 1);
    if (dro_setting_name(name) && !dro_setting_known(arm->optimizer, name))
        return cli_usage("compare: --arm '%s': %s has no parameter '%s': 'dro list optimizers %s' "
                         "lists them",
                         arm->name, arm->optimizer, name, arm->optimizer);
    if (strcmp(name, "optimizer") == 0)
        return cli_usage("compare: --arm '%s': %s cannot be set for an arm", arm->name, name);
    if (strcmp(name, "data") == 0 || strcmp(name, "seed") == 0)
        return cli_usage("compare: --arm '%s': %s is the same for all: give --%s instead",
                         arm->name, name, name);
    return 0;
}

int cli_arms_read(const cli_runs *runs, cli_arm *arms, int capacity, int *count)
{
    const char *text, *optimizers[CLI_ARMS];
    int status = 0, distinct = 0;
    *count = 0;
    for (int k = 0; status == 0 && (text = cli_given(runs->args, "arm", k)); k++) {
        if (k == capacity)
            return cli_usage("compare: more than %d arms", capacity);
        status = split(text, &arms[k]);
        bool known = false;
        for (int i = 0; status == 0 && i < k; i++) {
            if (strcmp(arms[i].name, arms[k].name) == 0)
                status = cli_usage("compare: two arms are called '%s'", arms[k].name);
            known = known || strcmp(arms[i].optimizer, arms[k].optimizer) == 0;
        }
        if (status == 0 && !known)
            optimizers[distinct++] = arms[k].optimizer;
        *count += status == 0;
    }
    if (status == 0 && *count)
        status = cli_runs_check(runs, optimizers, distinct);
    for (int k = 0; k < *count; k++)
        for (int i = 0; i < arms[k].count && status == 0; i++)
            status = check_pair(&arms[k], arms[k].pairs[i]);
    return status;
}

/* ---- what is not the same for all ---- */

/* A setting of an arm's first run, as text; "" where it is not known. */
static void setting_of(const cli_runs *runs, int arm, const char *name, char text[80])
{
    char path[4700];
    snprintf(path, sizeof path, "%s/%s/config.json", runs->folder, runs->list[arm].name);
    json_t *config = cli_file_json(path);
    const json_t *value = json_object_get(config, name);
    text[0] = '\0';
    if (json_is_string(value))
        snprintf(text, 80, "%s", json_string_value(value));
    else if (json_is_number(value))
        snprintf(text, 80, "%.15g", json_number_value(value));
    json_decref(config);
}

bool cli_arms_differ(const cli_runs *runs, const cli_arm *arms, int count, const char *name,
                     char *text, size_t size)
{
    char first[80], value[80];
    bool differ = false;
    size_t used = (size_t)snprintf(text, size, "note: the arms differ in %s:", name);
    setting_of(runs, 0, name, first);
    for (int k = 0; k < count; k++) {
        setting_of(runs, k, name, value);
        differ = differ || strcmp(value, first) != 0;
        if (used < size)
            used += (size_t)snprintf(text + used, size - used, "%s %s %s", k ? "," : "",
                                     arms[k].name, *value ? value : "unknown");
    }
    return differ;
}
