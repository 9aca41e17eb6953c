/* oneDNN's C API, versions 2 and 3: convolutions and matrix products. */
#include "onednn.h"

#include "conv_direct.h"
#include "isa.h"
#include "kernels.h"

#include <dnnl.h>
#include <omp.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { COUNTS = 8, ARGS = 4, WAYS = 3 }; /* chunk sizes kept; arguments; forward, data, weights */
enum { FORWARD, DATA, WEIGHTS };

/* The layout of a tensor: version 3 has a handle, version 2 a struct, which is put on the heap. */
#if DNNL_VERSION_MAJOR < 3
typedef dnnl_memory_desc_t *layout;
typedef const dnnl_memory_desc_t *const_layout;
#else
typedef dnnl_memory_desc_t layout;
typedef const_dnnl_memory_desc_t const_layout;
#endif

struct dro__onednn {
    dro_context *ctx;
    dnnl_engine_t engine;
    int lanes;
    dnnl_stream_t *streams;
};

/* A primitive for one chunk size, with a set of memory objects for each lane. */
typedef struct primitive {
    dnnl_primitive_t run;
    int kinds[ARGS];
    dnnl_memory_t *memory; /* (lanes, ARGS) */
} primitive;

typedef struct convolution {
    dro__conv base;
    dro__onednn *library;
    dnnl_alg_kind_t algorithm[WAYS];
    size_t counts[COUNTS];         /* 0: free */
    uint64_t asked[COUNTS], clock; /* when each was asked for last */
    primitive ways[COUNTS][WAYS];
    /* The layouts that the library chose for the weights, the same for every chunk size. */
    bool chosen;
    layout layout[WAYS];
    dnnl_primitive_t reorder[WAYS];
    dnnl_memory_t plain, other[WAYS]; /* of the reorders */
} convolution;

static dro_status failed(dro__onednn *library, const char *what, dnnl_status_t status)
{
    if (status == dnnl_out_of_memory)
        return dro__fail(library->ctx, DRO_ERR_MEMORY, "no memory for a %s of oneDNN", what);
    return dro__fail(library->ctx, DRO_ERR_UNSUPPORTED, "oneDNN could not make a %s (its code %d)",
                     what, (int)status);
}

/* ---- layouts ---- */

static void layout_free(layout l)
{
#if DNNL_VERSION_MAJOR < 3
    dro__free(l);
#else
    if (l)
        dnnl_memory_desc_destroy(l);
#endif
}

static dnnl_status_t layout_make(layout *l, int count, const dnnl_dims_t dims,
                                 dnnl_format_tag_t tag)
{
#if DNNL_VERSION_MAJOR < 3
    *l = dro__alloc(1, sizeof **l);
    return *l ? dnnl_memory_desc_init_by_tag(*l, count, dims, dnnl_f32, tag) : dnnl_out_of_memory;
#else
    return dnnl_memory_desc_create_with_tag(l, count, dims, dnnl_f32, tag);
#endif
}

/* The copy replaces what *to was. */
static dnnl_status_t layout_copy(layout *to, const_layout from)
{
    layout_free(*to);
#if DNNL_VERSION_MAJOR < 3
    *to = dro__alloc(1, sizeof **to);
    if (*to)
        **to = *from;
    return *to ? dnnl_success : dnnl_out_of_memory;
#else
    *to = NULL;
    return dnnl_memory_desc_clone(to, from);
#endif
}

/* ---- the library ---- */

static void set_limit(void)
{
    static const dnnl_cpu_isa_t isas[] = {
        [DRO__ISA_BASE] = dnnl_cpu_isa_sse41, [DRO__ISA_AVX2] = dnnl_cpu_isa_avx2};
    if (dro__cpu_isa() < DRO__ISA_AVX512)
        dnnl_set_max_cpu_isa(isas[dro__cpu_isa()]); /* refused only when it was used before */
}

/* Where the library has no memory for the code that it compiles or for a product's operands, it
 * ends the process. With a limit on the address space (`ulimit -v`) this can be foreseen. */
static bool has_memory(void)
{
    enum { NEEDED = 32 << 20 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return true;
    void *block = mmap(NULL, NEEDED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return block != MAP_FAILED && munmap(block, NEEDED) == 0;
}

/* Every call of the library that computes is on one thread, that of a lane; what the caller had
 * set is set again after it. */
static int one_thread(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, set_limit);
    int before = omp_get_max_threads();
    omp_set_num_threads(1);
    return before;
}

static bool execute(dnnl_primitive_t run, dnnl_stream_t stream, int count,
                    const dnnl_exec_arg_t *args)
{
    int before = one_thread();
    dnnl_status_t status = dnnl_primitive_execute(run, stream, count, args);
    omp_set_num_threads(before);
    return status == dnnl_success;
}

void dro__onednn_destroy(dro__onednn *library)
{
    if (!library)
        return;
    for (int k = 0; library->streams && k < library->lanes; k++)
        if (library->streams[k])
            dnnl_stream_destroy(library->streams[k]);
    dro__free(library->streams);
    if (library->engine)
        dnnl_engine_destroy(library->engine);
    dro__free(library);
}

dro_status dro__onednn_create(dro_context *ctx, int lanes, dro__onednn **out)
{
    dro__onednn *library = dro__alloc(1, sizeof *library);
    if (!library)
        return dro__fail(ctx, DRO_ERR_MEMORY, "no memory for oneDNN");
    library->ctx = ctx;
    library->lanes = lanes;
    library->streams = dro__alloc((size_t)lanes, sizeof *library->streams);
    int before = one_thread();
    dnnl_status_t status = library->streams && has_memory()
                               ? dnnl_engine_create(&library->engine, dnnl_cpu, 0)
                               : dnnl_out_of_memory;
    for (int k = 0; status == dnnl_success && k < lanes; k++)
        status =
            dnnl_stream_create(&library->streams[k], library->engine, dnnl_stream_default_flags);
    omp_set_num_threads(before);
    if (status != dnnl_success) {
        dro_status result = failed(library, "CPU engine", status);
        dro__onednn_destroy(library);
        return result;
    }
    *out = library;
    return DRO_OK;
}

/* oneDNN's product points its stack pointer at a buffer of its own while it runs: a signal handler
 * on the ordinary stack would then be given the heap to write on. So none is called meanwhile. */
bool dro__onednn_product(const size_t sizes[3], const dro__matrix *a, const dro__matrix *b,
                         float *c, size_t row_c)
{
    sigset_t all, unblocked;
    if (!has_memory())
        return false;
    int before = one_thread();
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &unblocked);
    dnnl_status_t status =
        dnnl_sgemm(a->flip ? 'T' : 'N', b->flip ? 'T' : 'N', (dnnl_dim_t)sizes[0],
                   (dnnl_dim_t)sizes[1], (dnnl_dim_t)sizes[2], 1, a->at, (dnnl_dim_t)a->row, b->at,
                   (dnnl_dim_t)b->row, 0, c, (dnnl_dim_t)row_c);
    pthread_sigmask(SIG_SETMASK, &unblocked, NULL);
    omp_set_num_threads(before);
    return status == dnnl_success;
}

/* ---- a convolution's primitives ---- */

static void primitive_free(const dro__onednn *library, primitive *p)
{
    for (int k = 0; p->memory && k < library->lanes * ARGS; k++)
        if (p->memory[k])
            dnnl_memory_destroy(p->memory[k]);
    dro__free(p->memory);
    if (p->run)
        dnnl_primitive_destroy(p->run);
    *p = (primitive){0};
}

static void conv_destroy(dro__conv *base)
{
    convolution *conv = (convolution *)base;
    for (int c = 0; c < COUNTS; c++)
        for (int way = 0; way < WAYS; way++)
            primitive_free(conv->library, &conv->ways[c][way]);
    for (int way = 0; way < WAYS; way++) {
        if (conv->reorder[way])
            dnnl_primitive_destroy(conv->reorder[way]);
        if (conv->other[way])
            dnnl_memory_destroy(conv->other[way]);
        layout_free(conv->layout[way]);
    }
    if (conv->plain)
        dnnl_memory_destroy(conv->plain);
    dro__conv_free(base);
}

/* The layout of the weights: (out, in, kh, kw), or (groups, out, in, kh, kw) with the channels of a
 * group. */
static dnnl_status_t layout_weights(const dro__conv_shape *s, bool plain, layout *wei)
{
    int32_t kh = s->window.kernel[0], kw = s->window.kernel[1], groups = s->groups;
    dnnl_dims_t w = {s->out, s->in, kh, kw},
                grouped = {groups, s->out / groups, s->in / groups, kh, kw};
    dnnl_format_tag_t tag = groups > 1 ? dnnl_goihw : dnnl_oihw;
    return layout_make(wei, groups > 1 ? 5 : 4, groups > 1 ? grouped : w,
                       plain ? tag : dnnl_format_tag_any);
}

/* Layouts of the three tensors for `count` examples; of the weights the best one, or the one that
 * was chosen. The caller frees them, also after a failure. */
static dnnl_status_t layout_tensors(const convolution *conv, size_t count, int way, layout *src,
                                    layout *wei, layout *dst)
{
    const dro__conv_shape *s = &conv->base.shape;
    dnnl_dims_t in = {(dnnl_dim_t)count, s->in, s->in_height, s->in_width};
    dnnl_dims_t out = {(dnnl_dim_t)count, s->out, s->height, s->width};
    dnnl_format_tag_t blocked = dro__simd_best()->block == 16 ? dnnl_nChw16c : dnnl_nChw8c;
    dnnl_status_t status = layout_make(src, 4, in, s->plain ? dnnl_nchw : blocked);
    if (status == dnnl_success)
        status = layout_make(dst, 4, out, blocked);
    if (status == dnnl_success && conv->chosen)
        status = layout_copy(wei, conv->layout[way]);
    else if (status == dnnl_success)
        status = layout_weights(s, false, wei);
    return status;
}

/* What a convolution is asked for. */
typedef struct request {
    int way;
    dnnl_alg_kind_t algorithm;
    layout src, wei, dst;
    dnnl_dims_t stride, before, after; /* padding */
    dnnl_primitive_attr_t attr;
    const_dnnl_primitive_desc_t hint; /* the forward one, for the others */
} request;

#if DNNL_VERSION_MAJOR < 3
static dnnl_status_t create(const request *q, dnnl_engine_t engine, dnnl_primitive_desc_t *pd)
{
    dnnl_convolution_desc_t desc;
    dnnl_status_t status;
    if (q->way == FORWARD)
        status = dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, q->algorithm,
                                                    q->src, q->wei, NULL, q->dst, q->stride,
                                                    q->before, q->after);
    else if (q->way == DATA)
        status = dnnl_convolution_backward_data_desc_init(&desc, q->algorithm, q->src, q->wei,
                                                          q->dst, q->stride, q->before, q->after);
    else
        status = dnnl_convolution_backward_weights_desc_init(
            &desc, q->algorithm, q->src, q->wei, NULL, q->dst, q->stride, q->before, q->after);
    return status == dnnl_success ? dnnl_primitive_desc_create(pd, &desc, q->attr, engine, q->hint)
                                  : status;
}
#else
static dnnl_status_t create(const request *q, dnnl_engine_t engine, dnnl_primitive_desc_t *pd)
{
    static const dnnl_dims_t dense = {0, 0};
    if (q->way == FORWARD)
        return dnnl_convolution_forward_primitive_desc_create(
            pd, engine, dnnl_forward_training, q->algorithm, q->src, q->wei, NULL, q->dst,
            q->stride, dense, q->before, q->after, q->attr);
    if (q->way == DATA)
        return dnnl_convolution_backward_data_primitive_desc_create(
            pd, engine, q->algorithm, q->src, q->wei, q->dst, q->stride, dense, q->before, q->after,
            q->hint, q->attr);
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd, engine, q->algorithm, q->src, q->wei, NULL, q->dst, q->stride, dense, q->before,
        q->after, q->hint, q->attr);
}
#endif

/* The primitive descriptor of one way with one algorithm. `hint` is the forward one, for the
 * others. */
static dnnl_status_t pick(const convolution *conv, size_t count, int way, dnnl_alg_kind_t algorithm,
                          const_dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd)
{
    const dro__conv_shape *s = &conv->base.shape;
    request q = {.way = way,
                 .algorithm = algorithm,
                 .stride = {s->window.stride[0], s->window.stride[1]},
                 .before = {s->window.pad[0], s->window.pad[1]},
                 .hint = hint};
    int32_t in[2] = {s->in_height, s->in_width}, out[2] = {s->height, s->width};
    for (int k = 0; k < 2; k++) /* what the last window does not reach is not padded */
        q.after[k] = (out[k] - 1) * q.stride[k] + s->window.kernel[k] - in[k] - q.before[k];
    dnnl_status_t status = dnnl_primitive_attr_create(&q.attr);
    if (status != dnnl_success)
        return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(q.attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = layout_tensors(conv, count, way, &q.src, &q.wei, &q.dst);
    if (status == dnnl_success)
        status = create(&q, conv->library->engine, pd);
    layout_free(q.src);
    layout_free(q.wei);
    layout_free(q.dst);
    dnnl_primitive_attr_destroy(q.attr);
    return status;
}

/* The primitive and its lanes' memory objects, without memory yet. */
static dnnl_status_t make(convolution *conv, int way, const_dnnl_primitive_desc_t pd, primitive *p)
{
    static const int kinds[WAYS][ARGS] = {
        {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD},
        {DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC, DNNL_ARG_SCRATCHPAD},
        {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_SCRATCHPAD}};
    static const dnnl_query_t queries[WAYS][ARGS] = {
        {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md, dnnl_query_scratchpad_md},
        {dnnl_query_diff_dst_md, dnnl_query_weights_md, dnnl_query_diff_src_md,
         dnnl_query_scratchpad_md},
        {dnnl_query_src_md, dnnl_query_diff_dst_md, dnnl_query_diff_weights_md,
         dnnl_query_scratchpad_md}};
    dnnl_status_t status = dnnl_primitive_create(&p->run, pd);
    p->memory = dro__alloc((size_t)conv->library->lanes * ARGS, sizeof *p->memory);
    if (!p->memory)
        return dnnl_out_of_memory;
    for (int a = 0; status == dnnl_success && a < ARGS; a++) {
        const_layout md = dnnl_primitive_desc_query_md(pd, queries[way][a], 0);
        p->kinds[a] = kinds[way][a];
        for (int lane = 0; status == dnnl_success && lane < conv->library->lanes; lane++)
            status = dnnl_memory_create(&p->memory[lane * ARGS + a], md, conv->library->engine,
                                        DNNL_MEMORY_NONE);
        size_t bytes = dnnl_memory_desc_get_size(md);
        if (a == ARGS - 1 && bytes > conv->base.scratch)
            conv->base.scratch = bytes;
        bool weights = kinds[way][a] == (way == WEIGHTS ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS);
        if (status == dnnl_success && weights && !conv->chosen)
            status = layout_copy(&conv->layout[way], md);
    }
    return status;
}

/* One way for one chunk size; falls back to the direct algorithm where Winograd's is not to be
 * had. */
static dnnl_status_t make_way(convolution *conv, size_t count, int way,
                              const_dnnl_primitive_desc_t hint, primitive *p,
                              dnnl_primitive_desc_t *keep)
{
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = pick(conv, count, way, conv->algorithm[way], hint, &pd);
    if (status == dnnl_unimplemented && !conv->chosen) {
        conv->algorithm[way] = dnnl_convolution_direct;
        status = pick(conv, count, way, conv->algorithm[way], hint, &pd);
    }
    if (status != dnnl_success)
        return status;
    status = make(conv, way, pd, p);
    if (keep)
        *keep = pd;
    else
        dnnl_primitive_desc_destroy(pd);
    return status;
}

/* Reorders between plain weights and the chosen layouts. */
static dnnl_status_t make_reorder(convolution *conv, int way, layout plain)
{
    dnnl_engine_t engine = conv->library->engine;
    layout chosen = conv->layout[way];
    dnnl_primitive_desc_t pd;
    dnnl_status_t status =
        dnnl_reorder_primitive_desc_create(&pd, way == WEIGHTS ? chosen : plain, engine,
                                           way == WEIGHTS ? plain : chosen, engine, NULL);
    if (status != dnnl_success)
        return status;
    status = dnnl_primitive_create(&conv->reorder[way], pd);
    dnnl_primitive_desc_destroy(pd);
    if (status == dnnl_success)
        status = dnnl_memory_create(&conv->other[way], chosen, engine, DNNL_MEMORY_NONE);
    if (way == WEIGHTS)
        return status;
    conv->base.weights[way] = dro__alloc(dnnl_memory_desc_get_size(chosen), 1);
    return conv->base.weights[way] ? status : dnnl_out_of_memory;
}

static dnnl_status_t make_reorders(convolution *conv)
{
    const dro__conv_shape *s = &conv->base.shape;
    layout plain = NULL;
    dnnl_status_t status = layout_weights(s, true, &plain);
    if (status == dnnl_success)
        status = dnnl_memory_create(&conv->plain, plain, conv->library->engine, DNNL_MEMORY_NONE);
    for (int way = 0; status == dnnl_success && way < WAYS; way++)
        if (way == FORWARD || (way == DATA ? s->data : s->weight))
            status = make_reorder(conv, way, plain);
    layout_free(plain);
    return status;
}

static int find(const convolution *conv, size_t count)
{
    for (int c = 0; c < COUNTS; c++)
        if (conv->counts[c] == count)
            return c;
    return -1;
}

static dro_status conv_ready(dro__conv *base, size_t count)
{
    convolution *conv = (convolution *)base;
    int at = find(conv, count);
    if (at >= 0) {
        conv->asked[at] = ++conv->clock;
        return DRO_OK;
    }
    at = 0;
    for (int c = 1; c < COUNTS; c++) /* the least recently used is replaced */
        at = conv->asked[c] < conv->asked[at] ? c : at;
    for (int way = 0; way < WAYS; way++)
        primitive_free(conv->library, &conv->ways[at][way]);
    conv->counts[at] = 0; /* until it is complete */
    if (!has_memory())
        return failed(conv->library, "convolution", dnnl_out_of_memory);
    int before = one_thread();
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t status = make_way(conv, count, FORWARD, NULL, &conv->ways[at][FORWARD], &hint);
    if (status == dnnl_success && conv->base.shape.data)
        status = make_way(conv, count, DATA, hint, &conv->ways[at][DATA], NULL);
    if (status == dnnl_success && conv->base.shape.weight)
        status = make_way(conv, count, WEIGHTS, hint, &conv->ways[at][WEIGHTS], NULL);
    if (hint)
        dnnl_primitive_desc_destroy(hint);
    if (status == dnnl_success && !conv->chosen)
        status = make_reorders(conv);
    omp_set_num_threads(before);
    if (status != dnnl_success)
        return failed(conv->library, "convolution", status);
    conv->chosen = true;
    if (conv->base.shape.weight)
        base->slope_size = base->spare =
            dnnl_memory_desc_get_size(conv->layout[WEIGHTS]) / sizeof(float);
    conv->counts[at] = count;
    conv->asked[at] = ++conv->clock;
    return DRO_OK;
}

/* ---- running ---- */

static bool run(convolution *conv, int way, const dro__conv_chunk *chunk, const void *first,
                const void *second, void *third)
{
    int c = find(conv, chunk->count);
    primitive *p = c < 0 ? NULL : &conv->ways[c][way];
    if (!p || !p->run)
        return false;
    void *data[ARGS] = {(void *)first, (void *)second, third, chunk->scratch};
    dnnl_exec_arg_t args[ARGS];
    for (int a = 0; a < ARGS; a++) {
        args[a] = (dnnl_exec_arg_t){p->kinds[a], p->memory[chunk->lane * ARGS + (size_t)a]};
        if (dnnl_memory_set_data_handle(args[a].memory, data[a]) != dnnl_success)
            return false;
    }
    return execute(p->run, conv->library->streams[chunk->lane], ARGS, args);
}

static bool conv_forward(dro__conv *base, const dro__conv_chunk *chunk, const float *x, float *z)
{
    convolution *conv = (convolution *)base;
    return run(conv, FORWARD, chunk, x, conv->base.weights[FORWARD], z);
}

static bool conv_data(dro__conv *base, const dro__conv_chunk *chunk, const float *dz, float *dx)
{
    convolution *conv = (convolution *)base;
    return run(conv, DATA, chunk, dz, conv->base.weights[DATA], dx);
}

static bool conv_slope(dro__conv *base, const dro__conv_chunk *chunk, const float *x,
                       const float *dz, bool first, float *sum)
{
    if (!run((convolution *)base, WEIGHTS, chunk, x, dz, first ? sum : chunk->spare))
        return false;
    if (!first)
        dro__floats_add(base->slope_size, sum, chunk->spare);
    return true;
}

static bool reorder(convolution *conv, int way, void *plain, void *other)
{
    bool out = way == WEIGHTS;
    dnnl_exec_arg_t args[2] = {{DNNL_ARG_FROM, out ? conv->other[way] : conv->plain},
                               {DNNL_ARG_TO, out ? conv->plain : conv->other[way]}};
    return dnnl_memory_set_data_handle(conv->plain, plain) == dnnl_success &&
           dnnl_memory_set_data_handle(conv->other[way], other) == dnnl_success &&
           execute(conv->reorder[way], conv->library->streams[0], 2, args);
}

static bool conv_take(dro__conv *base, const float *w, bool back)
{
    convolution *conv = (convolution *)base;
    int way = back ? DATA : FORWARD;
    return reorder(conv, way, (void *)w, conv->base.weights[way]);
}

static bool conv_slope_out(dro__conv *base, const float *sum, float *dw)
{
    return reorder((convolution *)base, WEIGHTS, dw, (void *)sum);
}

dro_status dro__onednn_conv(dro__onednn *library, const dro__conv_shape *shape, dro__conv **out)
{
    static const dro__conv_class class = {.destroy = conv_destroy,
                                          .ready = conv_ready,
                                          .take = conv_take,
                                          .forward = conv_forward,
                                          .data = conv_data,
                                          .slope = conv_slope,
                                          .slope_out = conv_slope_out};
    if (dro__cpu_isa() == DRO__ISA_BASE) /* with SSE alone its gradients are not vectorised */
        return dro__conv_direct(library->ctx, shape, dro__simd_best(), out);
    convolution *conv = dro__alloc(1, sizeof *conv);
    if (!conv)
        return dro__fail(library->ctx, DRO_ERR_MEMORY, "no memory for a convolution");
    conv->base.cls = &class;
    conv->base.shape = *shape;
    conv->library = library;
    const dro_window *k = &shape->window;
    bool three = k->kernel[0] == 3 && k->kernel[1] == 3 && k->stride[0] == 1 && k->stride[1] == 1;
    bool winograd = three && shape->groups == 1 && shape->in >= 32 && shape->out >= 32 &&
                    dro__cpu_isa() >= DRO__ISA_AVX512;
    for (int way = 0; way < WAYS; way++)
        conv->algorithm[way] = winograd ? dnnl_convolution_winograd : dnnl_convolution_direct;
    *out = &conv->base;
    return DRO_OK;
}
