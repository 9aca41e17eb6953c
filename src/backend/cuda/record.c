/* Recording (stream capture): the work that a thread queues becomes a CUDA graph, which one call
 * replays. Only this file deals with what can disturb a capture. */
#include "net.h"

#include <pthread.h>

/* Allows one capture, or one closing of the libraries, at a time: cublasDestroy synchronises the
 * whole GPU, which invalidates the captures of all threads. */
static pthread_mutex_t recording = PTHREAD_MUTEX_INITIALIZER;

dro_status dro__net_record(dro__cuda_network *net, dro__queuer queue, const void *what,
                           cudaGraphExec_t *recorded)
{
    enum { TRIES = 20 }; /* other code in the process may synchronise the GPU too */
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
        bool whole = error != cudaSuccess || !net->failed; /* an invalidated capture is retried */
        if (error == cudaSuccess && whole)
            error = cudaGraphInstantiate(recorded, graph, 0);
        if (graph)
            cudaGraphDestroy(graph);
        if (!whole) { /* a layer is missing from the graph: it must never be replayed */
            error = cudaGetLastError();
            return error == cudaSuccess ? dro__net_refused(net)
                                        : dro__cuda_check(net->ctx, error, "a recording");
        }
        if (error != cudaSuccess)
            cudaGetLastError(); /* reported below, or retried */
    }
    return dro__cuda_check(net->ctx, error, "a recording");
}

void dro__net_end_libraries(dro__cuda_network *net)
{
    pthread_mutex_lock(&recording);
    dro__library_close(net);
    pthread_mutex_unlock(&recording);
}
