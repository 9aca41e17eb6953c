/* --grid, --random and --by: which settings are tried. A random value is a function of (seed,
 * number of the setting, number of the axis), so that a resumed sweep draws the same ones. */
#include "sweep.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the axes ---- */

/* Whether a text is a range like "0.1..10"; its ends may be in any order. */
static bool read_range(const char *text, cli_axis *axis)
{
    const char *dots = strstr(text, "..");
    char low[64], *end, *last;
    if (!dots || dots == text || dots - text >= (long)sizeof low)
        return false;
    snprintf(low, sizeof low, "%.*s", (int)(dots - text), text);
    axis->low = strtod(low, &end);
    axis->high = strtod(dots + 2, &last);
    return *end == '\0' && last != dots + 2 && *last == '\0' && isfinite(axis->low) &&
           isfinite(axis->high);
}

static int check_name(const cli_sweep *sweep, const char *optimizer, const char *name)
{
    static const char *const not_here[] = {"seed", "data", "optimizer", "progressive"};
    for (size_t k = 0; k < sizeof not_here / sizeof not_here[0]; k++)
        if (strcmp(name, not_here[k]) == 0)
            return cli_usage("sweep: --grid %s: give --%s instead", name, name);
    for (int k = 0; k < sweep->axis_count; k++)
        if (strcmp(sweep->axes[k].name, name) == 0)
            return cli_usage("sweep: --grid %s is given twice", name);
    if (strcmp(name, "config") != 0 && dro_setting_name(name) &&
        !dro_setting_known(optimizer, name))
        return cli_usage("sweep: --grid %s: %s has no parameter '%s': 'dro list optimizers %s' "
                         "lists them",
                         name, optimizer, name, optimizer);
    return 0;
}

/* Checked here, because drawn values do not show an error in their range. */
static int check_value(const cli_runs *runs, const char *optimizer, const char *name,
                       const char *value)
{
    cli_scope scope = {.command = "sweep", .ctx = runs->ctx};
    if (strcmp(name, "config") == 0)
        return 0;
    if (dro_settings_create(runs->ctx, &scope.settings) != DRO_OK)
        return cli_fail("%s", dro_context_error(runs->ctx));
    int status = cli_settings_set(&scope, "optimizer", optimizer);
    status = status ? status : cli_settings_set(&scope, name, value);
    dro_settings_destroy(scope.settings);
    return status;
}

static int read_axis(cli_sweep *sweep, const cli_runs *runs, const char *optimizer,
                     const char *text)
{
    size_t length = strcspn(text, "=");
    cli_axis *axis = &sweep->axes[sweep->axis_count];
    if (!text[length] || !text[length + 1] || length == 0 || length >= sizeof axis->name)
        return cli_usage("sweep: --grid %s: expected NAME=VALUE,VALUE,...", text);
    if (sweep->axis_count == CLI_AXES)
        return cli_usage("sweep: more than %d times --grid", CLI_AXES);
    snprintf(axis->name, sizeof axis->name, "%.*s", (int)length, text);
    if (dro_setting_name(axis->name))
        snprintf(axis->name, sizeof axis->name, "%s", dro_setting_name(axis->name));
    int status = check_name(sweep, optimizer, axis->name);
    if (status)
        return status;
    bool range = read_range(text + length + 1, axis);
    if (range && axis->low >= axis->high)
        return cli_usage("sweep: --grid %s: expected LOW..HIGH, the smaller end first", text);
    if (range && !cli_text(runs->args, "random"))
        return cli_usage("sweep: --grid %s: a range needs --random N", text);
    axis->count = range ? 0 : cli_runs_split(text + length + 1, axis->values, CLI_VALUES);
    if (axis->count < 0)
        return cli_usage("sweep: --grid %s: expected values with commas between them", text);
    char ends[2][32];
    snprintf(ends[0], sizeof ends[0], "%g", axis->low);
    snprintf(ends[1], sizeof ends[1], "%g", axis->high);
    for (int k = 0; k < (range ? 2 : axis->count) && status == 0; k++) {
        const char *value = range ? ends[k] : axis->values[k];
        status = strlen(value) > 60 ? cli_usage("sweep: --grid %s: a value is too long", axis->name)
                                    : check_value(runs, optimizer, axis->name, value);
    }
    sweep->axis_count += status == 0;
    return status;
}

/* ---- the settings ---- */

static double unit(uint64_t seed, uint64_t axis)
{
    uint64_t x = (seed * 64 + axis + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (double)((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

/* The place of a setting on an axis, from 0 to 1: random for the first; the others follow in
 * strides of the square root of a prime, modulo 1 (Richtmyer's sequence). This spreads few settings
 * evenly, on each axis and jointly, where independent draws would cluster. */
static double place(uint64_t seed, int setting, int axis)
{
    static const int primes[CLI_AXES] = {2,  3,  5,  7,  11, 13, 17, 19,
                                         23, 29, 31, 37, 41, 43, 47, 53};
    double u = unit(seed, (uint64_t)axis) + setting * sqrt(primes[axis]);
    return u - floor(u);
}

/* A value with three digits, or a whole number if the parameter needs one. */
static void draw(const cli_axis *axis, double u, char pair[128])
{
    const dro_setting *s = cli_setting(axis->name);
    bool whole = s && s->param.kind == DRO_PARAM_INTEGER, log_scale = axis->low > 0;
    if (axis->count) {
        snprintf(pair, 128, "%s=%s", axis->name, axis->values[(int)(u * axis->count)]);
        return;
    }
    double value = log_scale ? axis->low * pow(axis->high / axis->low, u)
                             : axis->low + u * (axis->high - axis->low);
    if (whole)
        snprintf(pair, 128, "%s=%.0f", axis->name, value);
    else
        snprintf(pair, 128, "%s=%.3g", axis->name, value);
}

static void fill(cli_sweep *sweep, uint64_t seed, bool random)
{
    for (int k = 0; k < sweep->count; k++) {
        int rest = k;
        for (int i = sweep->axis_count - 1; i >= 0; i--) {
            const cli_axis *axis = &sweep->axes[i];
            char *pair = sweep->settings[k].pairs[i];
            if (random) {
                draw(axis, place(seed, k, i), pair);
            } else {
                snprintf(pair, 128, "%s=%s", axis->name, axis->values[rest % axis->count]);
                rest /= axis->count;
            }
        }
    }
}

/* Equal random settings are tried once. */
static void drop_doubles(cli_sweep *sweep)
{
    int kept = 0;
    for (int k = 0; k < sweep->count; k++) {
        bool known = false;
        for (int i = 0; i < kept && !known; i++)
            known = memcmp(sweep->settings[i].pairs, sweep->settings[k].pairs,
                           sizeof sweep->settings[k].pairs) == 0;
        if (!known)
            sweep->settings[kept++] = sweep->settings[k];
    }
    sweep->count = kept;
}

/* ---- the metric ---- */

static int read_measure(cli_sweep *sweep, const char *wanted)
{
    static const int better[] = {
#define X(name, code, title, better, unit, meaning) better,
        DRO_MEASURE_LIST(X)
#undef X
    };
    char all[300] = "";
    const char *names[DRO_MEASURES];
    int count = 0;
    for (int k = 0; k < DRO_MEASURES; k++) {
        const char *name = dro_measure_name((dro_measure)k);
        if (k >= DRO_MEASURE_SECONDS) /* these are not measures of a holdout */
            break;
        if (strcmp(name, wanted) == 0) {
            sweep->by = (dro_measure)k;
            sweep->better = better[k];
            return 0;
        }
        size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", used ? ", " : "", name);
        names[count++] = name;
    }
    const char *nearest = dro_nearest(wanted, names, count);
    if (nearest)
        return cli_usage("sweep: --by %s: did you mean %s?", wanted, nearest);
    return cli_usage("sweep: --by %s: expected one of %s", wanted, all);
}

/* Refuses a metric that cannot compare the settings because each has its own: F depends on the
 * loss, the regulariser and the prior. A recipe or a file may set them. */
static int check_measure(const cli_sweep *sweep)
{
    static const char *const of_loss[] = {"loss", "recipe", "config"};
    static const char *const of_f[] = {"reg",          "reg_ratio",     "reg_block",
                                       "reg_strength", "group_prior",   "report_like",
                                       "report_tilt",  "report_lambda", "report_objective"};
    bool loss = sweep->by == DRO_MEASURE_LOSS, objective = sweep->by == DRO_MEASURE_OBJECTIVE;
    for (int k = 0; (loss || objective) && k < sweep->axis_count; k++) {
        const char *name = sweep->axes[k].name;
        bool changes = dro_loss_has(NULL, name);
        for (size_t i = 0; i < sizeof of_loss / sizeof of_loss[0]; i++)
            changes = changes || strcmp(name, of_loss[i]) == 0;
        for (size_t i = 0; i < sizeof of_f / sizeof of_f[0] && objective; i++)
            changes = changes || strcmp(name, of_f[i]) == 0;
        if (changes && sweep->axes[k].count != 1)
            return cli_usage("sweep: --by %s: it is not the same function for each %s of --grid: "
                             "choose by another metric, as in --by balanced_accuracy",
                             dro_measure_name(sweep->by), name);
    }
    return 0;
}

/* From the command line, from --config, or the default. */
static uint64_t first_seed(const cli_runs *runs)
{
    const json_t *theirs = json_object_get(runs->config, "seed");
    if (!cli_given(runs->args, "seed", 0) && json_is_integer(theirs))
        return (uint64_t)json_integer_value(theirs);
    return strtoull(cli_text(runs->args, "seed"), NULL, 10);
}

int cli_sweep_read(cli_sweep *sweep, const cli_runs *runs, const char *optimizer)
{
    const char *by = cli_text(runs->args, "by"), *random = cli_text(runs->args, "random");
    int status = read_measure(sweep, by ? by : "balanced_accuracy");
    for (int k = 0; status == 0 && cli_given(runs->args, "grid", k); k++)
        status = read_axis(sweep, runs, optimizer, cli_given(runs->args, "grid", k));
    status = status ? status : check_measure(sweep);
    if (status)
        return status;
    if (sweep->axis_count == 0)
        return cli_usage("sweep: nothing to try: give --grid NAME=VALUE,VALUE,...");
    double count = random ? (double)cli_integer(runs->args, "random") : 1;
    for (int k = 0; k < sweep->axis_count && !random; k++)
        count *= sweep->axes[k].count;
    if (count > CLI_SETTINGS)
        return cli_usage("sweep: %.0f settings, more than %d: fewer values, or --random N", count,
                         CLI_SETTINGS);
    sweep->count = (int)count;
    sweep->settings = calloc((size_t)sweep->count, sizeof *sweep->settings);
    if (!sweep->settings)
        return cli_fail("sweep: no memory for %d settings", sweep->count);
    fill(sweep, first_seed(runs), random != NULL);
    drop_doubles(sweep);
    return 0;
}

void cli_sweep_free(cli_sweep *sweep)
{
    free(sweep->settings);
}
