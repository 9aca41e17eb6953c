/* Recipes: groups of settings for one purpose. They override the run's defaults and are overridden
 * by what the user sets. Help and `dro list recipes` come from this table. docs/results.md has the
 * measurements. */
#include "train.h"

#include <string.h>

/* A row may set anything: the run's own settings (epochs, augment, stage2), the network's or the
 * optimiser's. Of two rows the later one counts. */
/* clang-format off */
#define IMBALANCED(recipe)                                                                         \
    {recipe, NULL, NULL, "loss", "logit-adjusted",                                                 \
     "corrects for the class prior; not for streams and more than 4096 sparse features"},          \
    {recipe, "lbfgs", NULL, "loss", "cross-entropy",                                               \
     "at the exact minimum tilt=class has the same effect"},                                       \
    {recipe, "lbfgs", NULL, "tilt", "class", "all classes have equal weight"},                     \
    {recipe, "recover", NULL, "lambda", "20",                                                      \
     "mild: with a smaller lambda rare examples would be emphasised twice"}
/* clang-format on */

static const dro_recipe settings[] = {
    IMBALANCED("imbalanced"),
    {"imbalanced", NULL, "images", "tau", "1.5",
     "networks that fit all training images need a stronger correction"},
    {"imbalanced", NULL, "images", "weight_decay", "1e-3",
     "networks overfit classes with few images"},
    IMBALANCED("imbalanced-long"),
    {"imbalanced-long", NULL, "images", "epochs", "400", "a long run"},
    {"imbalanced-long", NULL, "images", "augment", "auto,autoaugment,cutout",
     "images that vary cannot be fitted exactly, so tau and weight_decay keep their defaults"},
};

enum { COUNT = sizeof settings / sizeof settings[0] };

dro_status dro_recipe_setting(int index, dro_recipe *setting)
{
    if (index < 0 || index >= COUNT || !setting)
        return index < 0 || index >= COUNT ? DRO_ERR_END : DRO_ERR_ARGUMENT;
    *setting = settings[index];
    return DRO_OK;
}

/* What was given overrides it. */
static dro_status set_own(void *user, const char *name, const char *value)
{
    dro_train *t = user;
    if (!dro__param_find(dro__train_tables, name) || dro_settings_given(t->settings, name))
        return DRO_OK;
    return dro__params_set(t->ctx, dro__train_tables, &t->set, "a run", name, value);
}

dro_status dro__recipe_set_own(dro_train *t)
{
    return dro__recipe_apply(t, set_own, t);
}

dro_status dro__recipe_apply(const dro_train *t,
                             dro_status (*set)(void *user, const char *name, const char *value),
                             void *user)
{
    char chosen[32];
    dro_train_get(t, "recipe", chosen, sizeof chosen);
    for (int k = 0; k < COUNT; k++)
        if (strcmp(settings[k].recipe, chosen) == 0 &&
            (!settings[k].optimizer || strcmp(settings[k].optimizer, t->set.optimizer) == 0) &&
            (!settings[k].data || t->task.images))
            DRO_TRY(set(user, settings[k].name, settings[k].value));
    return DRO_OK;
}
