/* What CIVR and its restarted form share. */
#ifndef DRO_CIVR_H
#define DRO_CIVR_H

#include "storm.h"

typedef struct dro__civr_settings {
    dro__optimizer_settings common;
    int64_t big, inner;
    double growth; /* rcivr, as are the next */
    int64_t passes, most;
} dro__civr_settings;

dro_status dro__civr_check(dro_optimizer *o);
dro_status dro__civr_start_with(dro_optimizer *o, const dro__civr_settings *set,
                                size_t largest_big);
/* A step with run.big examples at a stage's start. */
dro_status dro__civr_step_with(dro_optimizer *o, const dro__civr_settings *set);
/* The steps that draw so many examples, where stage k begins with big_of(set, k) of them. */
uint64_t dro__civr_steps_with(const dro_optimizer *o, uint64_t examples,
                              size_t (*big_of)(const dro__civr_settings *set, uint64_t stage));
void dro__civr_drop(dro_optimizer *o);
void dro__civr_archive(dro_optimizer *o, dro__archive *ar);

#endif
