/* Described parameters: the name, allowed values and meaning of a setting. Optimisers, networks and
 * runs have tables of them; help texts, config files and checks come from these tables. Stable. */
#ifndef DRO_PARAM_H
#define DRO_PARAM_H

#include <dro/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dro_param_kind {
    DRO_PARAM_REAL,
    DRO_PARAM_INTEGER,
    DRO_PARAM_CHOICE,
    DRO_PARAM_LIST, /* up to 16 reals, written 60,90 */
    DRO_PARAM_TEXT, /* any text of up to 4095 bytes */
    DRO_PARAM_TIME  /* seconds, or 90s, 30m, 2h */
} dro_param_kind;

typedef struct dro_param {
    const char *name;
    dro_param_kind kind;
    const char *fallback; /* the default, as text; "" for a number: depends on the data */
    double low, high;     /* bounds, both allowed; of each element for a list */
    const char *choices;  /* CHOICE: the words, separated by |; TEXT: what a value is, as in FILE */
    const char *meaning;  /* one line */
} dro_param;

/* The name of names[0..count) that a misspelt word most likely means, or NULL. */
DRO_API const char *dro_nearest(const char *word, const char *const *names, int count);

#ifdef __cplusplus
}
#endif
#endif
