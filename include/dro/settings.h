/* The settings of a run, as one value: set by name, copied, checked, listed.
 *
 *     dro_settings *settings;
 *     dro_settings_create(ctx, &settings);
 *     dro_settings_set(settings, "data", "cifar10:DIR,imratio=0.1");
 *     dro_settings_set(settings, "optimizer", "recover");
 *     dro_settings_set(settings, "lambda", "20");
 *     dro_settings_check(settings);                 // also done when a run begins
 *     dro_train_use(train, settings);               // copies them
 *
 * There is one list of names: those of the run, of its network and of its optimiser
 * (dro_setting_at()). The command line, config.json, `dro list settings`, completions and manual
 * pages come from it. What is not set follows from the data, the model and the optimiser.
 * Stable. */
#ifndef DRO_SETTINGS_H
#define DRO_SETTINGS_H

#include <dro/context.h>
#include <dro/param.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dro_settings dro_settings;

DRO_API dro_status dro_settings_create(dro_context *ctx, dro_settings **settings);
DRO_API dro_status dro_settings_copy(const dro_settings *settings, dro_settings **copy);
DRO_API void dro_settings_destroy(dro_settings *settings); /* NULL is fine */

/* An unknown name or a value that is not allowed changes nothing, and the error says what would be
 * right. "-" in a name counts as "_", and "lr" as "eta". reg=l1:1e-5 sets reg and reg_strength,
 * epochs takes steps back. value NULL: as if it had not been set. */
DRO_API dro_status dro_settings_set(dro_settings *settings, const char *name, const char *value);
/* The value as text, cut to size; DRO_ERR_NAME for one of the network or the optimiser that was not
 * set. */
DRO_API dro_status dro_settings_get(const dro_settings *settings, const char *name, char *text,
                                    size_t size);
DRO_API bool dro_settings_given(const dro_settings *settings, const char *name);
/* The i-th setting that was given, in order; DRO_ERR_END past the last. Borrowed until the next
 * call that sets. */
DRO_API dro_status dro_settings_item(const dro_settings *settings, int index, const char **name,
                                     const char **value);
/* What can be seen without the data: that the optimiser has what was given, and that the settings
 * fit together. */
DRO_API dro_status dro_settings_check(const dro_settings *settings);

/* Whose setting it is. */
typedef enum dro_setting_owner {
    DRO_SETTING_RUN,
    DRO_SETTING_NETWORK,
    DRO_SETTING_OPTIMIZER /* of one or more: dro_optimizer_param() */
} dro_setting_owner;

typedef struct dro_setting {
    dro_param param;
    dro_setting_owner owner;
    bool common; /* worth a line in a short help */
} dro_setting;

/* The i-th of all settings, or DRO_ERR_END. A setting of several optimisers is described as the
 * first has it. */
DRO_API dro_status dro_setting_at(int index, dro_setting *setting);
/* A setting's name as the list has it ("eta" of "lr", "max_time" of "max-time"), NULL if there is
 * none. */
DRO_API const char *dro_setting_name(const char *name);
/* Whether a run with this optimiser has the setting. */
DRO_API bool dro_setting_known(const char *optimizer, const char *name);

#ifdef __cplusplus
}
#endif
#endif
