/* events_write FILE: an event file as a run that was stopped and went on leaves it, for events_check.py. */
#include "events.h"

#include <math.h>
#include <stdio.h>

static dro_status add(dro__events *events, int64_t step)
{
    const dro__scalar scalars[] = {{"test/accuracy", (double)step / 100},
                                   {"class_weight/\xc3\xa9t\xc3\xa9", -1.5 * (double)step},
                                   {"odd", step == 30 ? (double)NAN : 1e30}};
    return dro__events_add(events, step, 1700000000 + (double)step / 8, scalars, 3);
}

static dro_status write_all(dro_context *ctx, const char *path)
{
    dro__events *events;
    uint64_t offset = 0;
    DRO_TRY(dro__events_open(ctx, path, 0, &events));
    for (int64_t step = 0; step < 50; step += 10) {
        if (step == 20)
            offset = dro__events_offset(events);
        DRO_TRY(add(events, step + (step >= 20)));
    }
    dro__events_close(events);
    DRO_TRY(dro__events_open(ctx, path, offset, &events));
    for (int64_t step = 20; step < 50; step += 10)
        DRO_TRY(add(events, step));
    dro__events_close(events);
    return DRO_OK;
}

int main(int argc, char **argv)
{
    dro_context *ctx;
    if (argc != 2 || dro_context_create("ref", 1, &ctx) != DRO_OK)
        return 2;
    dro_status status = write_all(ctx, argv[1]);
    if (status != DRO_OK)
        fprintf(stderr, "%s\n", dro_context_error(ctx));
    dro_context_destroy(ctx);
    return status == DRO_OK ? 0 : 1;
}
