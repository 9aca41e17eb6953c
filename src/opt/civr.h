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

static const double DRO__LARGEST_BIG = 0x1p40;

dro_status dro__civr_check(dro_optimizer *o);
dro_status dro__civr_start_with(dro_optimizer *o, const dro__civr_settings *set,
                                size_t largest_big);
dro_status dro__civr_step(dro_optimizer *o);
uint64_t dro__civr_steps_for(const dro_optimizer *o, uint64_t examples);
void dro__civr_drop(dro_optimizer *o);
void dro__civr_archive(dro_optimizer *o, dro__archive *ar);

#endif
