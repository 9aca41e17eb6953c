/* One F for many runs: the objective and the tilt that all of them report it for. Runs that name
 * different objectives have none, and each reports its own. */
#include "runs.h"

#include <stdlib.h>
#include <string.h>

enum { VALUE = 64 };

/* What a run minimises at its end. objective "": kl with lambda; lambda "": its optimiser's
 * default, which depends on the data. */
typedef struct aim {
    char objective[VALUE], lambda[VALUE], tilt[VALUE];
} aim;

/* A setting that was given, or that of the recipe; "" if neither has it. Rows of a recipe for some
 * data only are unknown before the data. */
static void value_of(const dro_settings *settings, const char *optimizer, const char *name,
                     char value[VALUE])
{
    char recipe[VALUE];
    dro_recipe r;
    *value = '\0';
    dro_settings_get(settings, "recipe", recipe, sizeof recipe);
    for (int k = 0; dro_recipe_setting(k, &r) == DRO_OK; k++)
        if (strcmp(r.recipe, recipe) == 0 && strcmp(r.name, name) == 0 && !r.data &&
            (!r.optimizer || strcmp(r.optimizer, optimizer) == 0))
            snprintf(value, VALUE, "%s", r.value);
    dro_settings_get(settings, name, value, VALUE);
}

static aim aim_of(const dro_settings *settings, const char *optimizer)
{
    aim a;
    char step[VALUE], later[VALUE];
    value_of(settings, optimizer, "objective", a.objective);
    value_of(settings, optimizer, "lambda", a.lambda);
    value_of(settings, optimizer, "tilt", a.tilt);
    value_of(settings, optimizer, "switch_step", step);
    if (strtod(step, NULL) > 0) {
        value_of(settings, optimizer, "switch_lambda", later);
        if (strtod(later, NULL) > 0)
            memcpy(a.lambda, later, VALUE);
        value_of(settings, optimizer, "switch_tilt", later);
        if (*later && strcmp(later, "same") != 0)
            memcpy(a.tilt, later, VALUE);
    }
    if (!*a.tilt)
        strcpy(a.tilt, "example");
    return a;
}

static bool is_robust(const cli_one *one, const aim *a)
{
    bool mean = strcmp(a->objective, "mean") == 0 || strcmp(a->tilt, "none") == 0;
    return !mean && (*a->objective || dro_setting_known(one->optimizer, "lambda"));
}

static bool is_given(const dro_settings *s)
{
    static const char *const names[] = {"report_objective", "report_lambda", "report_like"};
    bool given = false;
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        given = given || dro_settings_given(s, names[k]);
    return given;
}

/* What was given wins. */
static int report_for(const cli_runs *runs, const cli_one *one, const aim *a, const char *like)
{
    cli_scope scope = {
        .command = cli_name(runs->args), .ctx = runs->ctx, .settings = one->settings};
    int status = 0;
    if (!is_given(one->settings)) {
        if (*a->objective)
            status = cli_settings_set(&scope, "report_objective", a->objective);
        else if (*a->lambda)
            status = cli_settings_set(&scope, "report_lambda", a->lambda);
        else
            status = cli_settings_set(&scope, "report_like", like);
    }
    if (status == 0 && !dro_settings_given(one->settings, "report_tilt"))
        status = cli_settings_set(&scope, "report_tilt", a->tilt);
    return status;
}

int cli_runs_same_objective(cli_runs *runs, bool *same)
{
    const cli_one *first = NULL;
    aim a = {"", "", ""};
    *same = true;
    for (int k = 0; k < runs->count; k++) {
        const cli_one *one = &runs->list[k];
        aim theirs = aim_of(one->settings, one->optimizer);
        if (!is_robust(one, &theirs))
            continue;
        if (!first)
            a = theirs;
        else if (strcmp(a.objective, theirs.objective) != 0 && !is_given(one->settings))
            *same = false;
        first = first ? first : one;
    }
    int status = 0;
    for (int k = 0; k < runs->count && first && *same && status == 0; k++)
        status = report_for(runs, &runs->list[k], &a, first->optimizer);
    return status;
}
