/* Records of a run as events of TensorBoard. */
#ifndef DRO_TELEMETRY_H
#define DRO_TELEMETRY_H

#include "events.h"

#include <dro/train.h>

/* Appends the record's event, written at `now` (seconds since 1970). */
void dro__telemetry(dro__buffer *out, const dro_train_record *record, const dro_data_info *info,
                    double now);

#endif
