/* Which function F is in the runs of a report: its lambda and what it is over, which a comparison
 * makes the same, and the loss, the regulariser and the prior that it is made of, which are each
 * run's own. */
#include "report.h"

#include <dro/net.h>
#include <dro/optimizer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY = 200 };

static const char unlike[] = "not the same function in all runs";

static const char *setting(const dro__trial *t, const char *part, const char *name,
                           const char *fallback)
{
    char path[80];
    snprintf(path, sizeof path, "%s.%s", part, name);
    const char *value = dro__trial_setting(t, path);
    return value ? value : fallback;
}

/* A setting of the network, or its default: config.json of a model that is none has only what was
 * given. */
static const char *of_network(const dro__trial *t, const char *name)
{
    dro_param p;
    const char *fallback = "";
    for (int k = 0; dro_net_param(k, &p) == DRO_OK; k++)
        if (strcmp(p.name, name) == 0)
            fallback = p.fallback;
    return setting(t, "network_settings", name, fallback);
}

/* Each of these writes a part of F, with only the settings that affect it. */
static void loss_of(const dro__trial *t, char key[KEY])
{
    const char *loss = of_network(t, "loss");
    dro_param p;
    size_t used = (size_t)snprintf(key, KEY, "%.40s", loss);
    for (int k = 0; dro_net_param(k, &p) == DRO_OK && used < KEY; k++)
        if (dro_loss_has(loss, p.name))
            used += (size_t)snprintf(key + used, KEY - used, " %.40s", of_network(t, p.name));
}

static const char *of_optimizer(const dro__trial *t, const char *name)
{
    return setting(t, "optimizer_settings", name, "");
}

/* A box and a ball add nothing to F inside them, where the weights are. */
static void regulariser_of(const dro__trial *t, char key[KEY])
{
    const char *reg = of_optimizer(t, "reg"), *strength = of_optimizer(t, "reg_strength");
    bool none = !dro_regulariser_has_strength(reg) || strtod(strength, NULL) == 0;
    *key = '\0';
    if (!none)
        snprintf(key, KEY, "%.40s %.40s %.40s %.40s", reg, strength,
                 strcmp(reg, "elastic") == 0 ? of_optimizer(t, "reg_ratio") : "",
                 strcmp(reg, "group") == 0 ? of_optimizer(t, "reg_block") : "");
}

static void prior_of(const dro__trial *t, char key[KEY])
{
    const char *f = t->objective ? t->objective : "";
    bool over = strstr(f, "over classes") || strstr(f, "over groups");
    snprintf(key, KEY, "%.40s",
             over ? setting(t, "optimizer_settings", "group_prior", "uniform") : "");
}

/* Whether the runs with known settings differ in a part. */
static bool differ(const dro_report *report, void (*part)(const dro__trial *, char[KEY]))
{
    char first[KEY], key[KEY];
    bool any = false;
    for (size_t k = 0; k < report->trial_count; k++) {
        const dro__trial *t = report->trials[k];
        if (!t->setting_count)
            continue;
        part(t, any ? key : first);
        if (any && strcmp(key, first) != 0)
            return true;
        any = true;
    }
    return false;
}

/* "not the same ...: cvar:0.1 over examples, the mean loss": each function once. */
static void list_functions(dro_report *report)
{
    size_t size = sizeof report->objective;
    size_t used = (size_t)snprintf(report->objective, size, "%s", unlike);
    for (size_t k = 0, listed = 0; k < report->trial_count; k++) {
        const char *text = report->trials[k]->objective;
        bool known = !text;
        for (size_t i = 0; i < k && !known; i++)
            known = report->trials[i]->objective && !strcmp(report->trials[i]->objective, text);
        if (!known && used < size)
            used += (size_t)snprintf(report->objective + used, size - used, "%s%s",
                                     listed++ ? ", " : ": ", text);
    }
}

void dro__report_find_objective(dro_report *report)
{
    static const struct {
        const char *name;
        void (*part)(const dro__trial *, char[KEY]);
    } parts[] = {{"loss", loss_of}, {"regulariser", regulariser_of}, {"prior", prior_of}};
    const char *one = NULL;
    char own[80] = "";
    bool same = true;
    report->objective[0] = '\0';
    for (size_t k = 0; k < report->trial_count; k++) {
        const char *text = report->trials[k]->objective;
        same = same && (!text || !one || strcmp(one, text) == 0);
        one = text ? text : one;
    }
    for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++)
        if (differ(report, parts[k].part)) {
            size_t used = strlen(own);
            snprintf(own + used, sizeof own - used, "%s%s", used ? " and " : "", parts[k].name);
        }
    report->same_objective = same && !*own;
    report->same_loss = !differ(report, loss_of);
    if (one && !same)
        list_functions(report);
    else if (one && *own)
        snprintf(report->objective, sizeof report->objective, "%.200s, with each run's own %s: %s",
                 one, own, unlike);
    else if (one)
        snprintf(report->objective, sizeof report->objective, "%.200s", one);
}

const char *dro_report_objective(const dro_report *report)
{
    return report && *report->objective ? report->objective : NULL;
}
