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
 * There is one list of names: the settings of the run, its network and its optimiser
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

/* An unknown name or a disallowed value is an error, changes nothing, and the error text says what
 * is allowed. "-" in a name is the same as "_", and "lr" the same as "eta". reg=l1:1e-5 sets reg
 * and reg_strength; setting epochs unsets steps. value NULL unsets the setting. */
DRO_API dro_status dro_settings_set(dro_settings *settings, const char *name, const char *value);
/* The value as text, truncated to size; DRO_ERR_NAME for a setting of the network or the optimiser
 * that was not set. */
DRO_API dro_status dro_settings_get(const dro_settings *settings, const char *name, char *text,
                                    size_t size);
DRO_API bool dro_settings_given(const dro_settings *settings, const char *name);
/* The i-th setting that was given, in order; DRO_ERR_END past the last. Borrowed until the next
 * call that sets. */
DRO_API dro_status dro_settings_item(const dro_settings *settings, int index, const char **name,
                                     const char **value);
/* Checks what can be checked without the data: that the optimiser has the given settings, and that
 * they are consistent. */
DRO_API dro_status dro_settings_check(const dro_settings *settings);

/* What a setting belongs to. */
typedef enum dro_setting_owner {
    DRO_SETTING_RUN,
    DRO_SETTING_NETWORK,
    DRO_SETTING_OPTIMIZER /* one or more optimisers: dro_optimizer_param() */
} dro_setting_owner;

typedef struct dro_setting {
    dro_param param;
    dro_setting_owner owner;
    bool common; /* often used: shown in --help */
} dro_setting;

/* The i-th of all settings, or DRO_ERR_END. A setting of several optimisers is described as
 * for the first of them. */
DRO_API dro_status dro_setting_at(int index, dro_setting *setting);
/* The listed name of a setting ("eta" for "lr", "max_time" for "max-time"), NULL if there is
 * none. */
DRO_API const char *dro_setting_name(const char *name);
/* Whether a run with this optimiser has the setting. */
DRO_API bool dro_setting_known(const char *optimizer, const char *name);

#ifdef __cplusplus
}
#endif
#endif
