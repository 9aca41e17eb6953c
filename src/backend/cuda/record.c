/* Recordings: what a thread queues becomes a graph that one call replays. The one file that knows
 * what disturbs them. */
#include "net.h"

#include <pthread.h>

/* Recordings and the ends of libraries, one at a time: cublasDestroy waits for the whole GPU, and
 * whoever does that breaks the recordings of all threads. */
static pthread_mutex_t recording = PTHREAD_MUTEX_INITIALIZER;

dro_status dro__net_record(dro__cuda_network *net, dro__queuer queue, const void *what,
                           cudaGraphExec_t *recorded)
{
    enum { TRIES = 20 }; /* another part of the program may wait for the GPU too */
    cudaError_t error = cudaErrorStreamCaptureInvalidated;
    for (int k = 0; k < TRIES && error == cudaErrorStreamCaptureInvalidated; k++) {
        cudaGraph_t graph = NULL;
        pthread_mutex_lock(&recording);
        error = cudaStreamBeginCapture(net->side, cudaStreamCaptureModeThreadLocal);
        if (error == cudaSuccess) {
            queue(net, what);
            net->failed = net->failed || cudaPeekAtLastError() != cudaSuccess;
            error = cudaStreamEndCapture(net->side, &graph);
        }
        pthread_mutex_unlock(&recording);
        bool whole = error != cudaSuccess || !net->failed; /* a disturbed one is tried again */
        if (error == cudaSuccess && whole)
            error = cudaGraphInstantiate(recorded, graph, 0);
        if (graph)
            cudaGraphDestroy(graph);
        if (!whole) { /* it would be replayed without the layer for ever */
            error = cudaGetLastError();
            return error == cudaSuccess ? dro__net_refused(net)
                                        : dro__cuda_check(net->ctx, error, "a recording");
        }
        if (error != cudaSuccess)
            cudaGetLastError(); /* said below, or tried again */
    }
    return dro__cuda_check(net->ctx, error, "a recording");
}

void dro__net_end_libraries(dro__cuda_network *net)
{
    pthread_mutex_lock(&recording);
    dro__library_close(net);
    pthread_mutex_unlock(&recording);
}
