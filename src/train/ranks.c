/* One run on several processes (src/comm), and exact sums over shards of a batch.
 *
 * With exact=yes a batch is cut into DRO__SHARDS shards, each evaluated by a model of its own on
 * one thread. The networks are twins: they share weights and running statistics and synchronise in
 * their batch norms. What a shard computes then depends neither on the threads nor on the rank that
 * it is on, and the sums are a fixed tree. */
#include "isa.h"
#include "train.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { PARTS = DRO__PARTS };

/* One of this rank's shards. */
typedef struct shard {
    dro__task *task;
    dro__team *team;
    int index;
    dro_context *ctx;
    dro_net *net;
    dro_linear *linear;
    dro__row_buffer rows[PARTS]; /* of a table, one for each part */
    size_t capacity;
    unsigned turn;
} shard;

typedef struct dro__ranks {
    dro_comm *comm;
    dro_spread *spread;
    dro__team *team;
    int count;
    shard shards[DRO__SHARDS];
    dro_problem problems[DRO__SHARDS];
    dro_context *contexts[DRO__SHARDS];
    bool synced;         /* batch norm is over all ranks */
    char no_device[256]; /* why the ranks' devices do not sum by themselves, "": they do */
} dro__ranks;

/* ---- shards ---- */

static void free_rows(shard *s)
{
    for (int k = 0; k < PARTS; k++) {
        dro__free(s->rows[k].x);
        dro__free(s->rows[k].labels);
        dro__free(s->rows[k].targets);
        s->rows[k] = (dro__row_buffer){0};
    }
    s->capacity = 0;
}

static dro_status make_rows(shard *s, size_t count)
{
    if (count <= s->capacity)
        return DRO_OK;
    free_rows(s);
    for (int k = 0; k < PARTS; k++) {
        dro__row_buffer *r = &s->rows[k];
        r->x = dro__alloc(count * s->task->width, sizeof *r->x);
        r->labels = dro__alloc(count, sizeof *r->labels);
        r->targets = dro__alloc(count, sizeof *r->targets);
        if (!r->x || !r->labels || !r->targets)
            return dro__fail(s->ctx, DRO_ERR_MEMORY, "no memory for a batch of %zu", count);
    }
    s->capacity = count;
    return DRO_OK;
}

static dro_status fetch_rows(void *user, const dro_batch *batch, dro_net_batch *out)
{
    shard *s = user;
    const dro__task *t = s->task;
    size_t most = t->problem.max_batch / DRO__SHARDS + 1; /* so that the other part's rows stay */
    DRO_TRY(make_rows(s, batch->count > most ? batch->count : most));
    dro__feed_rows(t, batch, &s->rows[s->turn++ % PARTS], out);
    return DRO_OK;
}

/* Batch norm of this shard with that of all others. */
static void merge_shards(void *user, double *values, size_t count, dro__net_merge how)
{
    shard *s = user;
    dro__team_merge(s->team, s->index, values, count, how);
}

static dro_status make_net(dro__ranks *r, shard *s)
{
    dro__task *t = s->task;
    dro_net_source source = t->net->source;
    if (dro_context_create(t->ctx->backend->name, 1, &s->ctx) != DRO_OK)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for a shard");
    dro_status status = dro__net_twin(t->net, s->ctx, &s->net);
    if (!t->images) {
        source.user = s;
        source.fetch = fetch_rows;
    }
    if (status == DRO_OK)
        status = dro_net_problem(s->net, &source, &r->problems[s->index]);
    if (status != DRO_OK)
        return dro__fail(t->ctx, status, "%s", s->ctx->error);
    s->net->sync = (dro__net_sync){.user = s, .merge = merge_shards};
    r->contexts[s->index] = s->ctx;
    return DRO_OK;
}

static dro_status make_shard(dro__ranks *r, dro__task *t, int k)
{
    shard *s = &r->shards[k];
    *s = (shard){.task = t, .team = r->team, .index = k};
    if (t->net)
        return make_net(r, s);
    if (!t->data) { /* a stream: it keeps nothing between the slices */
        r->problems[k] = t->problem;
        return DRO_OK;
    }
    DRO_TRY(dro__sparse_model(t, &s->linear));
    return dro_linear_problem(s->linear, &r->problems[k]);
}

static dro_status make_shards(dro__ranks *r, dro__task *t)
{
    int ranks = dro_comm_size(r->comm);
    if (DRO__SHARDS % ranks)
        return dro__fail(t->ctx, DRO_ERR_RANGE, "exact=yes: expected 1, 2, 4 or %d ranks, not %d",
                         DRO__SHARDS, ranks);
    if (t->net && !t->ctx->backend->on_host)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "exact=yes on the backend %s: expected cpu or ref", t->ctx->backend->name);
    int64_t skip_bad = 0;
    if (t->data)
        DRO_TRY(dro__option_integer(t->data, "skip_bad", 0, 0, INT32_MAX, &skip_bad));
    if (skip_bad)
        return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                         "exact=yes with skip_bad: each rank counts the bad images that it reads "
                         "itself; leave one of them out");
    r->count = DRO__SHARDS / ranks;
    if (t->net)
        DRO_TRY(dro__team_create(r->comm, t->ctx, r->count, t->ctx->threads, &r->team));
    for (int k = 0; k < r->count; k++)
        DRO_TRY(make_shard(r, t, k));
    return DRO_OK;
}

/* ---- ranks without shards ---- */

static void merge_ranks(void *user, double *values, size_t count, dro__net_merge how)
{
    dro__ranks *r = user;
    /* a failure is that of the communicator, and is seen at its next call */
    (void)!dro__comm_merge(r->comm, values, count, how);
}

/* A communicator of the ranks' devices, where each rank has one. */
static dro_status open_device(dro__ranks *r, dro__task *t)
{
    const dro__backend *backend = t->ctx->backend;
    if (!t->net || !backend->comms)
        return DRO_OK;
    DRO_TRY(dro__comm_open_device(r->comm, backend, t->net->graph.deterministic, r->no_device,
                                  sizeof r->no_device));
    t->net->sync.device = r->comm->device;
    return DRO_OK;
}

/* Batch norm needs an example in each slice of a batch: where slices synchronise, the others would
 * wait for an empty one; where they do not, its statistics would be those of the start. */
static dro_status check_batch(const dro__task *t, const dro__model_choice *c)
{
    size_t ranks = (size_t)dro_comm_size(c->comm), least = c->shards ? DRO__SHARDS : ranks;
    if (t->batch >= least || dro__task_statistics(t) == 0)
        return DRO_OK;
    if (c->shards)
        return dro__fail(t->ctx, DRO_ERR_RANGE,
                         "batch=%zu with exact=yes, which divides it into %d shards: batch norm "
                         "needs an example in each: set batch=%d or more",
                         t->batch, DRO__SHARDS, DRO__SHARDS);
    return dro__fail(t->ctx, DRO_ERR_RANGE,
                     "batch=%zu on %zu ranks: batch norm needs an example on each: set batch=%zu "
                     "or more, or start fewer ranks",
                     t->batch, ranks, least);
}

/* ---- life ---- */

dro_status dro__ranks_open(dro__task *t, const dro__model_choice *c)
{
    if (!c->shards && !c->comm)
        return DRO_OK;
    DRO_TRY(check_batch(t, c));
    dro__ranks *r = t->ranks = dro__alloc(1, sizeof *r);
    if (!r)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for ranks");
    r->comm = c->comm;
    bool norms = dro__task_statistics(t) > 0;
    r->synced = norms && (c->shards || c->sync_norm);
    if (c->shards)
        DRO_TRY(make_shards(r, t));
    else
        DRO_TRY(open_device(r, t));
    if (!c->shards && r->synced) {
        t->net->sync.user = r;
        t->net->sync.merge = merge_ranks;
    }
    dro__spread_options o = {.shards = c->shards,
                             .problems = r->problems,
                             .contexts = r->team ? r->contexts : NULL,
                             .team = r->team,
                             .whole = !t->data,
                             .cut = t->images ? dro__feed_cut : NULL,
                             .cut_user = t,
                             .together = r->synced};
    if (o.whole)
        o.cut = dro__stream_cut;
    dro_problem mine = t->problem;
    return dro__spread_create(c->comm, t->ctx, &mine, &o, &r->spread, &t->problem);
}

void dro__ranks_close(dro__task *t)
{
    dro__ranks *r = t->ranks;
    t->ranks = NULL;
    if (!r)
        return;
    dro_comm_problem_free(r->spread);
    dro__team_destroy(r->team);
    for (int k = 0; k < r->count; k++) {
        shard *s = &r->shards[k];
        dro_net_destroy(s->net);
        dro_linear_destroy(s->linear);
        dro_context_destroy(s->ctx);
        free_rows(s);
    }
    dro__free(r);
}

const char *dro__ranks_error(const dro__task *t)
{
    return t->ranks ? dro__spread_error(t->ranks->spread) : "";
}

bool dro__writes(const dro_train *t)
{
    return t->folder && dro_comm_rank(t->comm) == 0;
}

unsigned dro__ranks_decide(dro_train *t, unsigned wants)
{
    if (!t->comm)
        return wants;
    t->comm->wants |= wants;
    return t->comm->decided;
}

void dro__ranks_done(dro_train *t, unsigned wants)
{
    if (!t->comm)
        return;
    t->comm->wants &= ~wants;
    t->comm->decided &= ~wants;
}

dro_status dro__ranks_average(dro_train *t)
{
    const dro__ranks *r = t->task.ranks;
    size_t count = dro__task_statistics(&t->task);
    if (!t->comm || !r || r->synced || count == 0)
        return DRO_OK;
    DRO_TRY(dro_net_statistics(t->task.net, t->statistics));
    DRO_TRY(dro__comm_mean(t->comm, t->statistics, count));
    DRO_TRY(dro_net_set_statistics(t->task.net, t->statistics));
    if (!dro__optimizer_averages(t->opt))
        return DRO_OK;
    DRO_TRY(dro__optimizer_statistics_get(t->opt, t->statistics));
    DRO_TRY(dro__comm_mean(t->comm, t->statistics, count));
    return dro__optimizer_statistics_set(t->opt, t->statistics);
}

/* ---- all ranks are the same ---- */

enum { LINES_SIZE = 1024 };

/* Every rank reads a table itself. */
static dro_status check_pipe(const dro_train *t)
{
    const char *colon = strchr(t->set.data, ':'), *path = colon ? colon + 1 : t->set.data;
    bool is_stdin = path[0] == '-' && (path[1] == ',' || path[1] == '\0');
    if (!is_stdin || t->set.progressive || dro_comm_size(t->comm) == 1)
        return DRO_OK;
    return dro__fail(t->ctx, DRO_ERR_UNSUPPORTED,
                     "%s: a table from a pipe: of several ranks only rank 0 has standard input: "
                     "write it to a file",
                     t->set.data);
}

dro_status dro__ranks_begin(dro_train *t, bool resume)
{
    char text[2 * DRO__TEXT_MAX + LINES_SIZE];
    const dro__train_settings *s = &t->set;
    snprintf(text, sizeof text,
             "resume=%s\nfolder=%s\nprogressive=%s\nmodel=%s\nexact=%s\ndata=%s\n",
             resume ? "yes" : "no", t->folder ? "yes" : "no", s->progressive ? "yes" : "no",
             *s->model ? s->model : "(by the data)", s->exact ? "yes" : "no", s->data);
    DRO_TRY(dro__comm_same(t->comm, text));
    return check_pipe(t);
}

/* Before the settings, of which some follow from it: the processor, as every rank updates w, and
 * the size of the data. */
static void describe_machine(const dro_train *t, char text[LINES_SIZE])
{
    const int64_t *n = t->task.info.examples;
    snprintf(text, LINES_SIZE,
             "backend=%s\ninstruction set=%s\nexamples to train, test and hold out=%lld, %lld, "
             "%lld\n",
             t->ctx->backend->name, dro__cpu_isa_name(dro__cpu_isa()), (long long)n[DRO_TRAIN],
             (long long)n[DRO_TEST], (long long)n[DRO_HOLDOUT]);
}

/* Checksums of what the settings name: the data, and the weights with which the run begins. */
static dro_status describe_start(dro_train *t, char text[LINES_SIZE])
{
    static const char *const splits[] = {
        [DRO_TRAIN] = "training", [DRO_TEST] = "test", [DRO_HOLDOUT] = "holdout"};
    const char *encoding = t->stream && t->task.encoding ? t->task.encoding : "";
    size_t used = 0, statistics = dro__task_statistics(&t->task) * sizeof *t->statistics;
    for (int s = 0; s < DRO_SPLITS; s++)
        used += (size_t)snprintf(text + used, LINES_SIZE - used,
                                 "checksum of the %s examples=%016llx\n", splits[s],
                                 (unsigned long long)dro__sum_of_split(&t->task, (dro_split)s));
    DRO_TRY(dro_optimizer_weights(t->opt, t->w));
    DRO_TRY(dro__run_statistics(t, t->statistics));
    uint64_t start = dro__checksum(0, t->w, t->task.dim * sizeof *t->w);
    start = dro__checksum(start, t->statistics, statistics);
    snprintf(text + used, LINES_SIZE - used,
             "encoding of the first rows=%016llx\ninit=%.200s\n"
             "checksum of the initial weights=%016llx\n",
             (unsigned long long)dro__checksum(0, encoding, strlen(encoding)), t->set.init,
             (unsigned long long)start);
    return DRO_OK;
}

/* What must be equal, as lines. */
static dro_status describe(dro_train *t, char **text)
{
    char machine[LINES_SIZE], start[LINES_SIZE];
    describe_machine(t, machine);
    DRO_TRY(describe_start(t, start));
    size_t size = strlen(machine) + strlen(t->identity) + strlen(start) + 1;
    *text = dro__alloc(size, 1);
    if (!*text)
        return dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for the settings");
    snprintf(*text, size, "%s%s%s", machine, t->identity, start);
    return DRO_OK;
}

static void note_idle(const dro_train *t)
{
    int ranks = dro_comm_size(t->comm),
        batch = t->task.batch < INT_MAX ? (int)t->task.batch : INT_MAX;
    if (t->opt->cls->exact)
        dro__note(t, "%s is not divided: every rank computes everything, and several are no faster",
                  t->opt->cls->name);
    else if (batch < ranks)
        dro__note(t, "batch=%d on %d ranks: in each step %d of them have no example", batch, ranks,
                  ranks - batch);
}

dro_status dro__ranks_compare(dro_train *t)
{
    const dro__ranks *r = t->task.ranks;
    if (r && *r->no_device)
        dro__note(t, "gradients go through host memory: %s", r->no_device);
    if (dro_comm_size(t->comm) == 1)
        return DRO_OK;
    char *mine = NULL;
    DRO_TRY(dro__comm_agree(t->comm, describe(t, &mine)));
    dro_status status = dro__comm_same(t->comm, mine);
    dro__free(mine);
    if (status == DRO_OK)
        note_idle(t);
    return status;
}

dro_status dro__ranks_share_saved(dro_train *t, dro__saved *saved, bool *found, dro_status status)
{
    char *bytes = NULL;
    uint64_t size = 0;
    size_t packed = 0;
    if (dro_comm_size(t->comm) == 1)
        return status;
    if (status == DRO_OK && *found && dro__writes(t)) {
        status = dro__checkpoint_pack(t->ctx, saved, &bytes, &packed);
        size = packed;
    }
    status = dro__comm_agree(t->comm, status);
    if (status == DRO_OK)
        status = dro__comm_share(t->comm, &size, sizeof size, 0);
    if (status == DRO_OK && size && !bytes) {
        bytes = dro__alloc(size, 1);
        if (!bytes)
            status = dro__fail(t->ctx, DRO_ERR_MEMORY, "no memory for a checkpoint");
    }
    status = dro__comm_agree(t->comm, status);
    if (status == DRO_OK && size)
        status = dro__comm_share(t->comm, bytes, size, 0);
    *found = size > 0;
    if (status == DRO_OK && size && !dro__writes(t))
        status = dro__checkpoint_unpack(t->ctx, "rank 0's checkpoint", bytes, size, saved);
    dro__free(bytes);
    return status;
}
