/* Runs of a sweep (report.h): best.json, next to their folders, names the chosen setting and the
 * metric by which it was chosen on the holdout. So a report compares settings on the holdout, and
 * marks none as the best on the test set. */
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void dro__sweep_destroy(dro__sweep *sweep)
{
    for (int32_t k = 0; sweep && sweep->names && k < sweep->count; k++)
        dro__free(sweep->names[k]);
    if (sweep)
        dro__free(sweep->names);
    dro__free(sweep);
}

int dro__report_sweep(const dro_report *report)
{
    int by = -1;
    for (size_t k = 0; k < report->trial_count; k++) {
        const dro__sweep *sweep = report->trials[k]->sweep;
        if (!sweep || (k && sweep->by != by))
            return -1;
        by = sweep->by;
    }
    return by;
}

bool dro__sweep_has(const dro__sweep *sweep, const char *name)
{
    for (int32_t k = 0; sweep && k < sweep->count; k++)
        if (strcmp(sweep->names[k], name) == 0)
            return true;
    return false;
}

const char *dro__setting_short(const char *name)
{
    static const char *const groups[] = {"optimizer_settings.", "network_settings."};
    for (int k = 0; k < 2; k++)
        if (strncmp(name, groups[k], strlen(groups[k])) == 0)
            return name + strlen(groups[k]);
    return name;
}

const char *dro__setting_value(const dro__trial *trial, const char *name)
{
    for (size_t k = 0; k < trial->setting_count; k++)
        if (strcmp(dro__setting_short(trial->settings[k].name), name) == 0)
            return trial->settings[k].value;
    return NULL;
}

#if DRO_WITH_JANSSON
#include "report_json.h"

static int measure_named(const char *name)
{
    for (int k = 0; name && k < DRO_MEASURES; k++)
        if (strcmp(dro_measure_name((dro_measure)k), name) == 0)
            return k;
    return -1;
}

/* Whether a run has the settings that were chosen, whatever its seed. */
static bool is_chosen(json_t *config, const json_t *best)
{
    const char *key;
    json_t *value;
    json_object_foreach(config, key, value)
    {
        if (!dro__setting_personal(key, false) && !json_equal(value, json_object_get(best, key)))
            return false;
    }
    return json_object_size(config) > 0;
}

static bool take_names(dro__sweep *sweep, const json_t *names)
{
    size_t size = json_array_size(names);
    if (size > 100 || !(sweep->names = dro__alloc(size + 1, sizeof *sweep->names)))
        return false;
    for (size_t k = 0; k < size; k++) {
        char *name = dro__json_text(json_array_get(names, k), "");
        if (name)
            sweep->names[sweep->count++] = name;
    }
    return true;
}

dro__sweep *dro__sweep_read(const json_t *best, json_t *config, const json_t *result)
{
    char held[100];
    int by = measure_named(json_string_value(dro__json_at(best, "sweep.by")));
    dro__sweep *sweep = by < 0 ? NULL : dro__alloc(1, sizeof *sweep);
    if (sweep && !take_names(sweep, dro__json_at(best, "sweep.names"))) {
        dro__sweep_destroy(sweep);
        sweep = NULL;
    }
    if (sweep) {
        snprintf(held, sizeof held, "holdout.%s", dro_measure_name((dro_measure)by));
        sweep->by = by;
        sweep->held = dro__json_number(result, held);
        sweep->chosen = is_chosen(config, best);
    }
    return sweep;
}
#endif
