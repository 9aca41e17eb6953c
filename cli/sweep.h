/* The settings that `dro sweep` tries. */
#ifndef DRO_CLI_SWEEP_H
#define DRO_CLI_SWEEP_H

#include "runs.h"

enum { CLI_AXES = 16, CLI_VALUES = 256, CLI_SETTINGS = 10000 };

enum { CLI_SWEEP_HOLDOUT, CLI_SWEEP_TEST, CLI_SWEEP_WORST, CLI_SWEEP_SECONDS, CLI_SWEEP_SHOWN };

enum { CLI_SWEEP_NONE = 3 }; /* the exit status when every setting diverged */

/* One --grid: a list of values, or a range. */
typedef struct cli_axis {
    char name[64];
    const char *values[CLI_VALUES];
    int count; /* 0: a range */
    double low, high;
} cli_axis;

typedef struct cli_candidate {
    char pairs[CLI_AXES][128]; /* "name=value", one for each axis */
    dro_statistic shown[CLI_SWEEP_SHOWN];
} cli_candidate;

typedef struct cli_sweep {
    cli_axis axes[CLI_AXES];
    int axis_count, seeds, count;
    cli_candidate *settings;
    dro_measure by;
    int better; /* +1: more of it is better, -1: less */
} cli_sweep;

/* --grid, --random and --by: 0 or the exit status after an error message. */
int cli_sweep_read(cli_sweep *sweep, const cli_runs *runs, const char *optimizer);
void cli_sweep_free(cli_sweep *sweep);

#endif
