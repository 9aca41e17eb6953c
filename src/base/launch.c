/* What mpirun or srun says about this process in the environment. */
#include "base.h"

#include <stdlib.h>

int dro__environment_number(const char *const *names, int usual)
{
    for (; *names; names++) {
        const char *value = getenv(*names);
        if (value)
            return atoi(value);
    }
    return usual;
}

int dro__local_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "SLURM_LOCALID", NULL};
    int rank = dro__environment_number(names, 0);
    return rank > 0 ? rank : 0;
}
