/* device_comm: sums between the devices of ranks that each have their own device, without going
 * through host memory. A backend that supports this names its table in dro__backend. */
#ifndef DRO_DEVICE_COMM_H
#define DRO_DEVICE_COMM_H

#include "base.h"

enum { DRO__DEVICE_KEY = 16, DRO__DEVICE_ID = 128 };

typedef struct dro__device_comm dro__device_comm;

typedef struct dro__device_comms {
    const char *(*missing)(void); /* NULL, or why it cannot be used, in one line */
    const char *(*about)(void);   /* its name and version, when nothing is missing */
    /* Which device this process uses: ranks whose keys are equal share it. */
    void (*key)(unsigned char key[DRO__DEVICE_KEY]);
    /* Names a new communicator; by one rank, which sends it to the others. */
    dro_status (*name)(dro_context *ctx, unsigned char id[DRO__DEVICE_ID]);
    /* Collective: waits for all ranks. fixed: the order of sums never changes. */
    dro_status (*open)(dro_context *ctx, const unsigned char id[DRO__DEVICE_ID], int rank, int size,
                       bool fixed, dro__device_comm **comm);
    /* Collective: a vector of the backend's over all ranks, in place. Waits. */
    dro_status (*sum)(dro_context *ctx, dro__device_comm *comm, float *values, size_t count);
    /* From any thread, when a rank is gone: operations that wait for it on the device end, and
     * their results are undefined. May not return before all recorded steps are gone. */
    void (*abort)(dro__device_comm *comm);
    void (*close)(dro__device_comm *comm); /* collective */
} dro__device_comms;

#endif
