/* dro bench linear: samples per second of a linear model, compared with the machine's limit and
 * with scikit-learn. Writes nothing to disk; runs one Python program if there is one. */
#include "cli.h"

#include <dro/bench.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_REPEATS = 101 };

static const struct entry {
    const char *optimizer;
    int batch;
} entries[] = {{"sgd", 128}, {"recover", 128}, {"sgd", 8192}, {"recover", 8192}};

enum { ENTRIES = sizeof entries / sizeof entries[0], SMALLEST_ROWS = 8192 };

typedef struct bench {
    dro_context *ctx;
    dro_linear *model;
    dro_problem problem;
    size_t rows, features;
    float *x, *y;
    int repeats;                         /* done so far */
    double speed[ENTRIES][MOST_REPEATS]; /* samples per second */
    double limit[MOST_REPEATS];          /* of reading the rows, in samples/s too */
    double sklearn[2];                   /* float64, float32; NaN: there is none */
} bench;

/* ---- the data: dense rows of unit variance, labels from a noisy linear rule ---- */

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static float uniform(uint64_t bits)
{
    return ((float)(bits & 0xffff) * 0x1p-15f - 1) * 1.7320508f;
}

static void fill(bench *b)
{
    float scale = 2 / sqrtf((float)b->features);
    uint64_t bits = 0, counter = 0;
    for (size_t i = 0; i < b->rows; i++) {
        float *row = b->x + i * b->features, margin = 0;
        for (size_t j = 0; j < b->features; j++, bits >>= 16) {
            if ((i * b->features + j) % 4 == 0)
                bits = mix(counter++);
            row[j] = uniform(bits);
            margin += j % 3 ? row[j] : -row[j];
        }
        b->y[i] = margin * scale + uniform(mix(~i)) > 0 ? 1.0f : -1.0f;
    }
}

static int prepare(bench *b)
{
    size_t page = 1 << 21, bytes = (b->rows * b->features * sizeof *b->x + page - 1) / page * page;
    b->x = aligned_alloc(page, bytes);
#ifdef MADV_HUGEPAGE
    if (b->x)
        madvise(b->x, bytes, MADV_HUGEPAGE); /* as NumPy does for its arrays */
#endif
    b->y = malloc(b->rows * sizeof *b->y);
    if (!b->x || !b->y)
        return cli_fail("bench linear: no memory for %zu rows of %zu features: lower --rows",
                        b->rows, b->features);
    fill(b);
    dro_linear_data data = dro_linear_data_default();
    data.n = (int64_t)b->rows;
    data.features = b->features;
    data.x = b->x;
    data.y = b->y;
    if (dro_linear_create(b->ctx, &data, &b->model) != DRO_OK ||
        dro_linear_problem(b->model, &b->problem) != DRO_OK)
        return cli_fail("bench linear: %s", dro_context_error(b->ctx));
    return 0;
}

/* ---- one pass ---- */

static dro_status pass(bench *b, const struct entry *entry, double *samples_per_s)
{
    dro_optimizer *opt = NULL;
    size_t steps = b->rows / (size_t)entry->batch;
    dro_status status = dro_optimizer_create(b->ctx, entry->optimizer, &b->problem, &opt);
    if (status == DRO_OK)
        status = dro_optimizer_set_real(opt, "batch", entry->batch);
    if (status == DRO_OK)
        status = dro_optimizer_set_real(opt, "steps", (double)steps);
    if (status == DRO_OK)
        status = dro_optimizer_set(opt, "order", "sequential");
    if (status == DRO_OK)
        status = dro_optimizer_start(opt, NULL);
    double start = cli_seconds();
    for (size_t t = 0; t < steps && status == DRO_OK; t++)
        status = dro_optimizer_step(opt);
    *samples_per_s = (double)(steps * (size_t)entry->batch) / (cli_seconds() - start);
    dro_optimizer_destroy(opt);
    return status;
}

static int measure(bench *b, int repeats)
{
    for (int r = 0; r < repeats; r++, b->repeats++) {
        double seconds = 0;
        dro_status status = dro_bench_read(b->ctx, b->x, b->rows * b->features, &seconds);
        b->limit[b->repeats] = (double)b->rows / seconds;
        for (int k = 0; k < ENTRIES && status == DRO_OK; k++) {
            cli_progress("repeat %d: %s, batch %d", b->repeats + 1, entries[k].optimizer,
                         entries[k].batch);
            status = pass(b, &entries[k], &b->speed[k][b->repeats]);
        }
        if (status != DRO_OK)
            return cli_fail("bench linear: %s", dro_context_error(b->ctx));
    }
    return 0;
}

/* ---- scikit-learn ---- */

/* Its fastest settings for one pass in order; fit() is timed three times. Prints the medians in
 * samples per second for float64 and float32 rows. */
static const char script[] =
    "import sys, time\n"
    "import numpy as np\n"
    "from sklearn.linear_model import SGDClassifier\n"
    "n, d = int(sys.argv[1]), int(sys.argv[2])\n"
    "rng = np.random.default_rng(1)\n"
    "x = rng.standard_normal((n, d), dtype=np.float32)\n"
    "w = rng.standard_normal(d, dtype=np.float32) / d ** 0.5\n"
    "y = np.where(2 * x @ w + rng.standard_normal(n) > 0, 1.0, -1.0)\n"
    "def speed(x):\n"
    "    times = []\n"
    "    for _ in range(3):\n"
    "        m = SGDClassifier(loss='log_loss', penalty=None, shuffle=False, max_iter=1,\n"
    "                          tol=None, learning_rate='constant', eta0=0.01,\n"
    "                          fit_intercept=False)\n"
    "        start = time.perf_counter()\n"
    "        m.fit(x, y)\n"
    "        times.append(time.perf_counter() - start)\n"
    "    return n / sorted(times)[1]\n"
    "single = speed(x)\n"
    "print(speed(x.astype(np.float64)), single)\n";

static bool run_sklearn(const char *python, bench *b)
{
    extern char **environ;
    char rows[32], features[32];
    snprintf(rows, sizeof rows, "%zu", b->rows);
    snprintf(features, sizeof features, "%zu", b->features);
    char *const argv[] = {(char *)python, "-c", (char *)script, rows, features, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2], how = 0;
    pid_t child;
    if (pipe(ends) != 0)
        return false;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", 1, 0); /* 1: O_WRONLY */
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    bool started = posix_spawnp(&child, python, &actions, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    FILE *from = fdopen(ends[0], "r");
    bool ok = started && from && fscanf(from, "%lf %lf", &b->sklearn[0], &b->sklearn[1]) == 2;
    if (from)
        fclose(from);
    else
        close(ends[0]);
    if (started)
        waitpid(child, &how, 0);
    if (!ok || how != 0)
        b->sklearn[0] = b->sklearn[1] = NAN;
    return ok && how == 0;
}

/* ---- output ---- */

static int report(const cli_args *args, bench *b, const char *python)
{
    double limit = cli_median(b->limit, b->repeats), speed[ENTRIES], recover = INFINITY;
    double peer = fmax(b->sklearn[0], b->sklearn[1]);
    for (int k = 0; k < ENTRIES; k++) {
        speed[k] = cli_median(b->speed[k], b->repeats);
        if (strcmp(entries[k].optimizer, "recover") == 0)
            recover = fmin(recover, speed[k]);
    }
    if (cli_json(args)) {
        json_t *rows = json_array();
        for (int k = 0; k < ENTRIES; k++)
            json_array_append_new(rows, json_pack("{s:s, s:i, s:f, s:f, s:o}", "optimizer",
                                                  entries[k].optimizer, "batch", entries[k].batch,
                                                  "samples_per_s", speed[k], "share_of_limit",
                                                  speed[k] / limit, "over_sklearn",
                                                  cli_number(speed[k] / peer)));
        return cli_emit(json_pack(
            "{s:s, s:s, s:i, s:I, s:I, s:i, s:o, s:f, s:o, s:o, s:o, s:o}", "machine", cli_cpu(),
            "backend", dro_context_backend(b->ctx), "threads", dro_context_threads(b->ctx),
            "data_rows", (json_int_t)b->rows, "features", (json_int_t)b->features, "repeats",
            b->repeats, "rows", rows, "limit_samples_per_s", limit, "sklearn_samples_per_s",
            cli_number(peer), "sklearn_float64_samples_per_s", cli_number(b->sklearn[0]),
            "sklearn_float32_samples_per_s", cli_number(b->sklearn[1]), "recover_over_sklearn",
            cli_number(recover / peer)));
    }
    const char *const headers[] = {"one pass", ">batch", ">samples/s", ">of the limit",
                                   ">scikit-learn"};
    cli_table *table = cli_table_create(5, headers);
    for (int k = 0; k < ENTRIES; k++) {
        cli_table_cell(table, "%s", entries[k].optimizer);
        cli_table_cell(table, "%d", entries[k].batch);
        cli_table_cell(table, "%.3g million", speed[k] / 1e6);
        cli_table_cell(table, "%.0f %%", 100 * speed[k] / limit);
        cli_table_cell(table, isnan(peer) ? "-" : "%.1f times", speed[k] / peer);
    }
    cli_table_print(table);
    printf("\nReading the rows once: %.3g million samples/s, %.1f GB/s.\n", limit / 1e6,
           limit * 4e-9 * (double)b->features);
    if (isnan(peer))
        cli_print("scikit-learn: not found with '%s' (--python PATH).\n", python);
    else
        printf("scikit-learn: %.3g million samples/s (float64), %.3g (float32).\n",
               b->sklearn[0] / 1e6, b->sklearn[1] / 1e6);
    printf("%s; backend %s, %d threads.\n%zu rows of %zu float32 features; medians of %d passes.\n",
           cli_cpu(), dro_context_backend(b->ctx), dro_context_threads(b->ctx), b->rows,
           b->features, b->repeats);
    return 0;
}

/* ---- the command ---- */

static int run(const cli_args *args)
{
    const char *python = cli_text(args, "python");
    if (!python)
        python = getenv("PYTHON");
    if (!python || !*python)
        python = "python3";
    bench *b = calloc(1, sizeof *b);
    if (!b)
        return cli_fail("bench linear: no memory");
    b->ctx = cli_context(args);
    b->rows = (size_t)cli_integer(args, "rows");
    b->features = (size_t)cli_integer(args, "features");
    b->sklearn[0] = b->sklearn[1] = NAN;
    int half = (int)(cli_integer(args, "repeats") + 1) / 2;
    if (b->ctx)
        cli_begin(args);
    cli_progress("making %zu rows", b->rows);
    int status = b->ctx ? prepare(b) : 1;
    if (status == 0)
        status = measure(b, half);
    if (status == 0) {
        cli_progress("scikit-learn");
        run_sklearn(python, b);
        status = measure(b, (int)cli_integer(args, "repeats") - half);
    }
    cli_progress(NULL);
    if (status == 0)
        status = report(args, b, python);
    dro_linear_destroy(b->model);
    dro_context_destroy(b->ctx);
    free(b->x);
    free(b->y);
    free(b);
    return status;
}

static const cli_option options[] = {
    {"rows", CLI_INTEGER, "N", "1000000", SMALLEST_ROWS, 1e10, "rows of the table"},
    {"features", CLI_INTEGER, "N", "100", 1, 1e7, "float32 features of a row"},
    {"repeats", CLI_INTEGER, "N", "10", 1, MOST_REPEATS,
     "passes of each kind; medians are printed"},
    {"python", CLI_TEXT, "PATH", NULL, 0, 0, "a Python with scikit-learn; else $PYTHON, python3"},
    CLI_OPTIONS_END,
};

const cli_command bench_linear = {
    .name = "bench linear",
    .usage = "[--rows N] [--features N] [--repeats N] [--python PATH] [--json]",
    .summary = "samples per second of logistic regression, against scikit-learn",
    .details =
        "Times one pass over generated rows in order, by sgd and by recover, in batches of 128\n"
        "and 8192. For comparison it times reading the rows once (the lower limit) and one pass\n"
        "of scikit-learn's SGDClassifier (log loss, shuffle=False; the faster of float32 and\n"
        "float64) over rows of the same shape, run halfway through. The comparison uses the\n"
        "slower recover.",
    .options = options,
    .run = run,
};
