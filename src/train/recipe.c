/* Recipes: groups of settings for one purpose. They override the run's defaults and are overridden
 * by what the user sets. Help and `dro list recipes` come from this table. docs/results.md has the
 * measurements. */
#include "train.h"

#include <string.h>

static const dro_recipe settings[] = {
    {"imbalanced", NULL, NULL, "loss", "logit-adjusted",
     "corrects for the class prior; not for streams and more than 4096 sparse features"},
    {"imbalanced", NULL, "images", "tau", "1.5",
     "networks that fit all training images need a stronger correction"},
    {"imbalanced", NULL, "images", "weight_decay", "1e-3",
     "networks overfit classes with few images"},
    {"imbalanced", "lbfgs", NULL, "loss", "cross-entropy",
     "at the exact minimum tilt=class has the same effect"},
    {"imbalanced", "lbfgs", NULL, "tilt", "class", "all classes have equal weight"},
    {"imbalanced", "recover", NULL, "lambda", "20",
     "mild: with a smaller lambda rare examples would be emphasised twice"},
};

enum { COUNT = sizeof settings / sizeof settings[0] };

dro_status dro_recipe_setting(int index, dro_recipe *setting)
{
    if (index < 0 || index >= COUNT || !setting)
        return index < 0 || index >= COUNT ? DRO_ERR_END : DRO_ERR_ARGUMENT;
    *setting = settings[index];
    return DRO_OK;
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
