/* dro bench memory: peak memory and time per step of every optimiser against the number of
 * examples.
 *
 * Examples are made from their ids, never stored, so what grows with n is the optimiser's own. Each
 * measurement runs in a child process: its peak is its own, and one that runs out of memory costs a
 * row. The parent starts no threads (a fork would lose them). */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FEATURES = 16, BATCH = 32, FIRST_N = 10000, MAX_SIZES = 8, MAX_BLOCKS = 100000 };

/* ---- the problem: logistic regression on rows that are a function of their id ---- */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Features in [-1, 1); returns the label, -1 or 1. One row in twenty follows another rule. */
static float make_row(int64_t id, float *x)
{
    float sum = 0;
    uint64_t bits = 0;
    for (int j = 0; j < FEATURES; j++) {
        if (j % 4 == 0)
            bits = mix((uint64_t)id * 4 + (uint64_t)j / 4 + 0x9e3779b97f4a7c15u);
        x[j] = (float)(bits & 0xffff) * 0x1p-15f - 1;
        bits >>= 16;
        sum += j % 2 ? x[j] : -x[j] / 2;
    }
    return (sum > 0) == (id % 20 != 0) ? 1.0f : -1.0f;
}

static float margin(const float *x, const float *w)
{
    float sum = 0;
    for (int j = 0; j < FEATURES; j++)
        sum += x[j] * w[j];
    return sum;
}

static dro_status forward(void *user, const float *w, const dro_batch *parts, int count,
                          float *losses)
{
    (void)user;
    for (int k = 0; k < count; k++)
        for (size_t i = 0; i < parts[k].count; i++) {
            float x[FEATURES], y = make_row(parts[k].ids[i], x), m = y * margin(x, w);
            *losses++ = m > 0 ? log1pf(expf(-m)) : log1pf(expf(m)) - m;
        }
    return DRO_OK;
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int count,
                           const float *coef, float *const *grads)
{
    (void)user;
    for (int k = 0; k < count; k++) {
        memset(grads[k], 0, FEATURES * sizeof *grads[k]);
        for (size_t i = 0; i < parts[k].count; i++) {
            float x[FEATURES], y = make_row(parts[k].ids[i], x);
            float slope = *coef++ * -y / (1 + expf(y * margin(x, w)));
            for (int j = 0; j < FEATURES; j++)
                grads[k][j] += slope * x[j];
        }
    }
    return DRO_OK;
}

/* ---- one measurement, in the child ---- */

typedef struct result {
    double peak_mib, us_per_step, start_s;
    char error[200]; /* "" when all went well */
} result;

static double read_real(const dro_optimizer *opt, const char *name)
{
    char text[64];
    return dro_optimizer_get(opt, name, text, sizeof text) == DRO_OK ? atof(text) : 0;
}

/* Sets the parameters, and in *block the number of steps in a whole cycle of the method's work;
 * *once: the next cycle would differ. */
static dro_status configure(dro_optimizer *opt, const char *name, int64_t n, int *block, bool *once)
{
    dro_status status = DRO_OK;
    double big = read_real(opt, "big"), growth = read_real(opt, "big_growth");
    *block = 20;
    *once = growth > 0;
    if (read_real(opt, "batch") > 0)
        status = dro_optimizer_set_real(opt, "batch", BATCH);
    if (big > 0)
        *block = (int)ceil(sqrt(big)); /* a stage */
    for (int k = 1; growth > 0 && k < 4; k++)
        *block += (int)ceil(sqrt(big * pow(growth, k))); /* the first four */
    if (status == DRO_OK && strcmp(name, "pg-smd2") == 0)
        status = dro_optimizer_set_real(opt, "stage_steps", 1e12); /* no stage ends while timed */
    if (status == DRO_OK && strcmp(name, "pes-sgda") == 0) {
        double stage = floor((double)n / (64. * BATCH)); /* a whole one, including its work on p */
        *block = (int)fmax(200, stage);
        status = dro_optimizer_set_real(opt, "stage_steps", *block);
        if (status == DRO_OK)
            status = dro_optimizer_set_real(opt, "stage_growth", 1);
    }
    return status;
}

/* The median over blocks: at least 200 steps and `least` seconds. */
static dro_status time_steps(dro_optimizer *opt, int block, double least, double *us_per_step)
{
    double *blocks = calloc(MAX_BLOCKS, sizeof *blocks), began = cli_seconds(), now = began;
    int count = 0;
    dro_status status = blocks ? DRO_OK : DRO_ERR_MEMORY;
    while (status == DRO_OK && count < MAX_BLOCKS &&
           (count * (double)block < 200 || now - began < least)) {
        double start = now;
        for (int i = 0; i < block && status == DRO_OK; i++)
            status = dro_optimizer_step(opt);
        now = cli_seconds();
        blocks[count++] = (now - start) * 1e6 / block;
    }
    *us_per_step = cli_median(blocks, count);
    free(blocks);
    return status;
}

static double peak_mib(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss / 1024;
}

static void measure(const cli_args *args, const char *name, int64_t n, result *out)
{
    dro_problem problem = {.size = sizeof(dro_problem),
                           .dim = FEATURES,
                           .n = n,
                           .forward = forward,
                           .backward = backward};
    dro_context *ctx = cli_context(args);
    dro_optimizer *opt = NULL;
    int block = 0;
    bool once = false;
    if (!ctx)
        return;
    double start = cli_seconds();
    dro_status status = name ? dro_optimizer_create(ctx, name, &problem, &opt) : DRO_OK;
    if (status == DRO_OK && opt)
        status = configure(opt, name, n, &block, &once);
    if (status == DRO_OK && opt)
        status = dro_optimizer_start(opt, NULL);
    out->start_s = cli_seconds() - start;
    if (status == DRO_OK && opt)
        status = time_steps(opt, block, once ? 0 : cli_real(args, "seconds"), &out->us_per_step);
    out->peak_mib = peak_mib();
    snprintf(out->error, sizeof out->error, "%s", status == DRO_OK ? "" : dro_context_error(ctx));
    dro_optimizer_destroy(opt);
    dro_context_destroy(ctx);
}

/* Says once what it does if nothing else is printed; without the thread of cli_busy. */
static void wait_for(int end, const cli_args *args)
{
    static bool reported;
    struct pollfd one = {.fd = end, .events = POLLIN};
    if (reported || !cli_json(args) || poll(&one, 1, (int)(1000 * cli_busy_delay())) != 0)
        return;
    fprintf(stderr, "%s on %s\n", cli_name(args), cli_cpu());
    reported = true;
}

/* Runs it in a child; name NULL: a child that makes a context and nothing else. */
static result measure_apart(const cli_args *args, const char *name, int64_t n)
{
    result r = {0};
    int ends[2], how = 0;
    snprintf(r.error, sizeof r.error, "no process could be started");
    fflush(NULL);
    if (pipe(ends) != 0)
        return r;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        measure(args, name, n, &r);
        _exit(write(ends[1], &r, sizeof r) == (ssize_t)sizeof r ? 0 : 1);
    }
    close(ends[1]);
    if (child > 0) {
        wait_for(ends[0], args);
        ssize_t got = read(ends[0], &r, sizeof r);
        while (waitpid(child, &how, 0) < 0 && errno == EINTR)
            ;
        if (got != (ssize_t)sizeof r)
            snprintf(r.error, sizeof r.error, "the process ended%s: out of memory?",
                     WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL ? " (killed)" : "");
    }
    close(ends[0]);
    return r;
}

/* ---- output ---- */

typedef struct plan {
    int count, sizes;
    const char *names[CLI_NAMES];
    int64_t n[MAX_SIZES];
    double idle_mib;
    result *results; /* (count, sizes) */
} plan;

static int emit(const plan *p)
{
    json_t *rows = json_array();
    for (int i = 0; i < p->count * p->sizes; i++) {
        const result *r = &p->results[i];
        const char *name = p->names[i / p->sizes];
        int64_t n = p->n[i % p->sizes];
        bool ok = !*r->error;
        json_t *row = json_pack("{s:s, s:I, s:o, s:o, s:o}", "optimizer", name, "n", (json_int_t)n,
                                "peak_mib", cli_number(ok ? r->peak_mib : NAN), "us_per_step",
                                cli_number(ok ? r->us_per_step : NAN), "start_s",
                                cli_number(ok ? r->start_s : NAN));
        if (strcmp(name, "pg-smd2") == 0)
            json_object_set_new(row, "stage_end_evaluations", json_integer((json_int_t)n));
        if (!ok)
            json_object_set_new(row, "error", json_string(r->error));
        json_array_append_new(rows, row);
    }
    return cli_emit(json_pack("{s:s, s:i, s:i, s:f, s:o}", "machine", cli_cpu(), "batch", BATCH,
                              "features", FEATURES, "idle_mib", p->idle_mib, "rows", rows));
}

enum { SHOW_MEMORY, SHOW_TIME, SHOW_START };

/* "1e6": n is a power of ten. */
static const char *power(int64_t n, char *text, size_t size)
{
    snprintf(text, size, "1e%.0f", log10((double)n));
    return text;
}

static void print_table(const plan *p, const char *title, int what)
{
    char text[MAX_SIZES][32];
    const char *headers[MAX_SIZES + 1] = {"n"};
    printf("%s\n", title);
    for (int k = 0; k < p->sizes; k++) {
        text[k][0] = '>';
        power(p->n[k], text[k] + 1, sizeof text[k] - 1);
        headers[k + 1] = text[k];
    }
    cli_table *table = cli_table_create(p->sizes + 1, headers);
    for (int i = 0; i < p->count; i++) {
        cli_table_cell(table, "%s", p->names[i]);
        for (int k = 0; k < p->sizes; k++) {
            const result *r = &p->results[i * p->sizes + k];
            if (*r->error)
                cli_table_cell(table, "-");
            else
                cli_table_cell(table, what == SHOW_START ? "%.3f" : "%.1f",
                               what == SHOW_MEMORY ? r->peak_mib
                               : what == SHOW_TIME ? r->us_per_step
                                                   : r->start_s);
        }
    }
    cli_table_print(table);
}

/* One sentence about the results: whose memory is constant and whose grows. */
static void print_reading(const plan *p)
{
    int last = p->sizes - 1;
    if (last == 0)
        return;
    char flat[256] = "", grows[256] = "";
    for (int i = 0; i < p->count; i++) {
        const result *r = &p->results[i * p->sizes];
        if (*r[0].error || *r[last].error)
            continue;
        bool is_flat = r[last].peak_mib < 1.2 * r[0].peak_mib + 1;
        char *list = is_flat ? flat : grows;
        size_t used = strlen(list);
        snprintf(list + used, 256 - used, "%s%s", used ? ", " : "", p->names[i]);
    }
    char from[32], to[32];
    printf("\nFrom n = %s to %s, flat memory: %s", power(p->n[0], from, sizeof from),
           power(p->n[last], to, sizeof to), *flat ? flat : "none");
    if (*grows)
        printf(";\nmemory that grows with n: %s", grows);
    printf(".\n");
}

static int print(const plan *p)
{
    print_table(p, "peak memory, MiB", SHOW_MEMORY);
    printf("\n");
    print_table(p, "microseconds per step", SHOW_TIME);
    printf("\n");
    print_table(p, "seconds to start", SHOW_START);
    print_reading(p);
    for (int i = 0; i < p->count * p->sizes; i++)
        if (*p->results[i].error)
            printf("%s, n = %lld: %s\n", p->names[i / p->sizes], (long long)p->n[i % p->sizes],
                   p->results[i].error);
    printf("\n%s. Batches of %d, %d features; a process that does nothing has %.1f MiB.\n"
           "Times are medians. For civr, rcivr and pes-sgda they are means over whole stages; the "
           "end\n"
           "of a stage of pg-smd2, n evaluations, is not in them.\n",
           cli_cpu(), BATCH, FEATURES, p->idle_mib);
    return 0;
}

/* ---- the command ---- */

/* Words of a list separated by commas into names that last. Returns 0 or the exit status. */
static int choose(const char *list, plan *p)
{
    const char *all[CLI_NAMES];
    int count = cli_optimizers(all);
    if (!list) {
        memcpy(p->names, all, sizeof all);
        p->count = count;
        return 0;
    }
    while (*list) {
        char word[40];
        size_t length = strcspn(list, ",");
        int found = -1;
        snprintf(word, sizeof word, "%.*s", (int)(length < 39 ? length : 39), list);
        for (int i = 0; i < count; i++)
            found = strcmp(all[i], word) == 0 ? i : found;
        const char *nearest = dro_nearest(word, all, count);
        if (found < 0 && nearest)
            return cli_usage("bench memory: no optimiser '%s': did you mean '%s'?", word, nearest);
        if (found < 0 || p->count == CLI_NAMES)
            return cli_usage("bench memory: no optimiser '%s': 'dro list optimizers' lists them",
                             word);
        p->names[p->count++] = all[found];
        list += length + (list[length] == ',');
    }
    return p->count ? 0
                    : cli_usage("bench memory: --optimizers: expected names, as in sgd,recover");
}

static int run(const cli_args *args)
{
    plan p = {0};
    int status = choose(cli_text(args, "optimizers"), &p);
    if (status)
        return status;
    for (int64_t n = FIRST_N; n <= cli_integer(args, "max") && p.sizes < MAX_SIZES; n *= 10)
        p.n[p.sizes++] = n;
    p.results = calloc((size_t)p.count * (size_t)p.sizes, sizeof *p.results);
    if (!p.results)
        return cli_fail("bench memory: no memory for the results");
    if (!cli_json(args))
        cli_begin(args);
    p.idle_mib = measure_apart(args, NULL, 0).peak_mib;
    for (int i = 0; i < p.count * p.sizes; i++) {
        const char *name = p.names[i / p.sizes];
        int64_t n = p.n[i % p.sizes];
        cli_progress("%d of %d: %s, n = %lld", i + 1, p.count * p.sizes, name, (long long)n);
        p.results[i] = measure_apart(args, name, n);
    }
    cli_progress(NULL);
    status = cli_json(args) ? emit(&p) : print(&p);
    free(p.results);
    return status;
}

static const cli_option options[] = {
    {"max", CLI_INTEGER, "N", "1e8", FIRST_N, 1e11,
     "the largest n; 1e4, 1e5, ... up to it are run"},
    {"optimizers", CLI_TEXT, "A,B", NULL, 0, 0, "only these; all when not given"},
    {"seconds", CLI_REAL, "S", "0.3", 0, 3600, "minimum time over which steps are timed"},
    CLI_OPTIONS_END,
};

const cli_command bench_memory = {
    .name = "bench memory",
    .usage = "[--max N] [--optimizers A,B] [--seconds S] [--json]",
    .summary = "peak memory and time per step against the number of examples",
    .details =
        "For n = 1e4, 1e5, ... and every optimiser: the peak memory of a process that trains on n\n"
        "examples, the time of a step, and the time to start. Examples are generated from their\n"
        "number and never stored. The largest n takes about 2 GiB (methods with a weight per\n"
        "example).",
    .options = options,
    .run = run,
};
