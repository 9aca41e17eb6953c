/* One F for many runs: the lambda and the tilt that all of them report it for. */
#include "runs.h"

#include <stdlib.h>
#include <string.h>

enum { VALUE = 64 };

/* What a run minimises at its end; lambda "": its optimiser's default, which depends on the data. */
typedef struct aim {
    char lambda[VALUE], tilt[VALUE];
} aim;

/* A setting that was given, or else that of the recipe; "" if neither has it. A recipe's rows for some data only are
 * not known before the data are. */
static void value_of(const dro_train *train, const char *optimizer, const char *name,
                     char value[VALUE])
{
    char recipe[VALUE];
    dro_recipe r;
    *value = '\0';
    dro_train_get(train, "recipe", recipe, sizeof recipe);
    for (int k = 0; dro_recipe_setting(k, &r) == DRO_OK; k++)
        if (strcmp(r.recipe, recipe) == 0 && strcmp(r.name, name) == 0 && !r.data &&
            (!r.optimizer || strcmp(r.optimizer, optimizer) == 0))
            snprintf(value, VALUE, "%s", r.value);
    dro_train_get(train, name, value, VALUE);
}

static aim aim_of(const dro_train *train, const char *optimizer)
{
    aim a;
    char step[VALUE], later[VALUE];
    value_of(train, optimizer, "lambda", a.lambda);
    value_of(train, optimizer, "tilt", a.tilt);
    value_of(train, optimizer, "switch_step", step);
    if (strtod(step, NULL) > 0) {
        value_of(train, optimizer, "switch_lambda", later);
        if (strtod(later, NULL) > 0)
            memcpy(a.lambda, later, VALUE);
        value_of(train, optimizer, "switch_tilt", later);
        if (*later && strcmp(later, "same") != 0)
            memcpy(a.tilt, later, VALUE);
    }
    if (!*a.tilt)
        strcpy(a.tilt, "example");
    return a;
}

/* The words' last value of a setting, or NULL. */
static const char *word_of(const cli_one *one, const char *prefix)
{
    const char *found = NULL;
    size_t index;
    json_t *word;
    json_array_foreach(one->words, index, word)
    {
        const char *text = json_string_value(word);
        if (text && strncmp(text, prefix, strlen(prefix)) == 0)
            found = text + strlen(prefix);
    }
    return found;
}

static void add_set(const cli_one *one, const char *name, const char *value)
{
    char text[256];
    snprintf(text, sizeof text, "--set=%s=%s", name, value);
    json_array_append_new(one->words, cli_text_json(text));
}

/* What the command line says wins; a file that is an arm's own does not: it may be another comparison's. */
static void report_for(const cli_one *one, const aim *a, const char *like)
{
    bool given = word_of(one, "--set=report_lambda=") != NULL;
    if (!given && *a->lambda)
        add_set(one, "report_lambda", a->lambda);
    else if (!given && word_of(one, "--config="))
        add_set(one, "report_lambda", "0");
    if (!given && !*a->lambda && !word_of(one, "--set=report_like="))
        add_set(one, "report_like", like);
    if (!word_of(one, "--set=report_tilt="))
        add_set(one, "report_tilt", a->tilt);
}

int cli_runs_same_objective(cli_runs *runs)
{
    char value[VALUE];
    const cli_one *first = NULL;
    aim a = {"", ""};
    for (int k = 0; k < runs->count && !first; k++) {
        const cli_one *one = &runs->list[k];
        dro_train *train;
        if (!cli_runs_knows(one->optimizer, "lambda"))
            continue;
        int status = cli_runs_take(runs, one, &train);
        if (status)
            return status;
        a = aim_of(train, one->optimizer);
        dro_train_destroy(train);
        if (strcmp(a.tilt, "none") != 0)
            first = one;
    }
    if (!first)
        return 0;
    /* a file for all may say it */
    if (dro_train_get(runs->train, "report_lambda", value, VALUE) == DRO_OK &&
        strtod(value, NULL) > 0)
        memcpy(a.lambda, value, VALUE);
    if (dro_train_get(runs->train, "report_tilt", value, VALUE) == DRO_OK &&
        strcmp(value, "own") != 0)
        memcpy(a.tilt, value, VALUE);
    for (int k = 0; k < runs->count; k++)
        report_for(&runs->list[k], &a, first->optimizer);
    return 0;
}
