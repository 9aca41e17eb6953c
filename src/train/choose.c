/* model=auto: for a table, the linear model and an mlp are trained on all but a holdout, which
 * decides between them. For images and streams it is the default model. */
#include "train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Trains one candidate as the run would. metric: on the holdout, higher is better. */
typedef struct candidate {
    const char *model, *metric;
    double value;
    int64_t examples; /* of the holdout */
} candidate;

static void judge(const dro_train *t, const dro_metrics *m, candidate *c)
{
    c->examples = m->examples;
    c->metric = m->classes == 2 ? "AUROC" : "accuracy";
    c->value = m->classes == 2 ? m->auroc : m->accuracy;
    if (m->classes > 2 && t->set.recipe) {
        c->metric = "balanced accuracy";
        c->value = m->balanced_accuracy;
    }
    if (m->classes == 0) {
        c->metric = "loss";
        c->value = -m->loss;
    }
}

static dro_status try_model(dro_train *t, candidate *c)
{
    dro_train *other;
    char data[DRO__TEXT_MAX], time[32];
    bool aside = strstr(t->set.data, ",holdout=") != NULL;
    DRO_TRY(dro_train_create(t->ctx, &other));
    dro_status status = dro__settings_assign(other->settings, t->settings);
    if (snprintf(data, sizeof data, "%s%s", t->set.data, aside ? "" : ",holdout=0.2") >=
        (int)sizeof data)
        status = dro__fail(t->ctx, DRO_ERR_RANGE, "the data's name is too long");
    snprintf(time, sizeof time, "%.9g", t->set.max_time / 4);
    const char *const pairs[][2] = {{"data", data},   {"model", c->model}, {"eval_train", "no"},
                                    {"best", "none"}, {"patience", "0"},   {"max_time", time}};
    for (size_t k = 0; status == DRO_OK && k < sizeof pairs / sizeof pairs[0]; k++)
        status = dro_train_set(other, pairs[k][0], pairs[k][1]);
    other->comm = t->comm;
    other->trial = true;
    dro_train_watch watch = {
        .size = sizeof(dro_train_watch), .user = t->watch.user, .step = t->watch.step};
    if (status == DRO_OK)
        status = dro_train_run(other, NULL, false, &watch);
    const dro_train_record *r = dro_train_last(other);
    if (status == DRO_ERR_NUMBER) /* it diverged: choose the other one */
        status = DRO_OK, c->value = -HUGE_VAL;
    else if (status == DRO_OK && r && r->has_holdout)
        judge(other, &r->holdout, c);
    else if (status == DRO_OK)
        status = dro__fail(t->ctx, DRO_ERR_STATE, "stopped while models were compared");
    dro_train_destroy(other);
    return status;
}

static dro_status open_kind(dro_train *t, dro_data_info *info)
{
    dro_data *data;
    DRO_TRY(dro_data_open(t->ctx, t->set.data, &data));
    dro_status status = dro_data_info_get(data, info);
    dro_data_close(data);
    return status;
}

/* The better one, or the one that has not diverged; notes why. */
static const candidate *choose(const dro_train *t, const candidate c[2])
{
    bool lost[2] = {isinf(c[0].value), isinf(c[1].value)};
    if (lost[0] || lost[1]) {
        const candidate *kept = &c[lost[0] && !lost[1]];
        const char *which = lost[0] ? "the linear model" : "the mlp";
        dro__note(t, "model auto: %s (%s diverged)", kept->model,
                  lost[0] && lost[1] ? "both models" : which);
        return kept;
    }
    /* beyond chance: half of the largest standard error of a share of the holdout; 2 % of a loss */
    bool classes = strcmp(c[0].metric, "loss") != 0;
    double margin = classes ? 0.25 / sqrt((double)c[0].examples) : 0.02 * fabs(c[0].value);
    bool mlp = c[1].value > c[0].value + margin, close = !mlp && c[1].value > c[0].value;
    dro__note(t, "model auto: %s (%s on the holdout: linear %.4g, mlp %.4g%s)", c[mlp].model,
              c[0].metric, fabs(c[0].value), fabs(c[1].value),
              close ? ", which may be chance" : "");
    return &c[mlp];
}

dro_status dro__choose_model(dro_train *t)
{
    candidate c[2] = {{.model = "linear"}, {.model = "mlp"}};
    dro_data_info info;
    if (strcmp(t->set.model, "auto") != 0)
        return DRO_OK;
    t->set.model[0] = '\0';
    if (t->set.progressive)
        return DRO_OK;
    DRO_TRY(open_kind(t, &info));
    bool rows = info.kind == DRO_DATA_DENSE || info.kind == DRO_DATA_SPARSE;
    if (!rows || (info.kind == DRO_DATA_SPARSE && info.features > DRO__DENSE_MOST))
        return DRO_OK;
    for (int k = 0; k < 2; k++)
        DRO_TRY(try_model(t, &c[k]));
    snprintf(t->set.model, sizeof t->set.model, "%s", choose(t, c)->model);
    return DRO_OK;
}
