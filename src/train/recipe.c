/* Recipes: settings that go together, over the run's defaults and under everything that the user
 * gives. The table is all of a recipe: help and `dro list recipes` come from it. docs/results.md
 * says what was measured. */
#include "train.h"

#include <string.h>

static const dro_recipe settings[] = {
    {"imbalanced", NULL, NULL, "loss", "logit-adjusted",
     "the loss knows how rare each class is, so the model need not; refused where there is none: "
     "streams, more than 4096 sparse features"},
    {"imbalanced", NULL, "images", "tau", "1.5",
     "a network that fits its training images needs more of it than one that cannot"},
    {"imbalanced", NULL, "images", "weight_decay", "1e-3",
     "few images of a class are soon learned by heart"},
    {"imbalanced", "lbfgs", NULL, "loss", "cross-entropy",
     "where the minimum is found, classes of equal weight do the same without a shift"},
    {"imbalanced", "lbfgs", NULL, "tilt", "class", "every class weighs the same"},
    {"imbalanced", "recover", NULL, "lambda", "20",
     "gentle: a hard tilt over examples on top would count the rare ones twice"},
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
