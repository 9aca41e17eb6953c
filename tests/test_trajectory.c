/* Every optimiser against an independent reference: tests/refs/make_trajectories.py computed w,
 * log_u and the counts of each case in float64 NumPy; here the same case runs through the public
 * API on every backend. One test per case; the first argument is a filter on their names:
 *
 *     test_trajectory 'cover-*'
 *
 * A case of cover or recover is also run in its two-point form, and every case is interrupted,
 * saved and resumed, which must change no bit. */
#include <dro/dro.h>

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ROWS = 64, COLUMNS = 8, DIM = 15, LINE = 2048, PROBLEMS = 3, CASES = 200, SETTINGS = 48 };
enum { TEXT = 64, POINTS = 10, STEPS = 200, INNER = 2, GROUPS = 3 };

static const double w_tolerance = 1e-4, log_u_tolerance = 1e-4, form_tolerance = 1e-5;

/* ---- the problems, in double ---- */

typedef struct data data;
struct data {
    char name[TEXT];
    int rows, columns, dim;
    double y[ROWS], x[ROWS][COLUMNS];
    int32_t classes[ROWS], groups[ROWS];
    double class_share[2], group_share[GROUPS];
    float w0[DIM];
    size_t most; /* examples in one call, 0: any */
};

static double dot(const double *x, const float *w, int n)
{
    double sum = 0;
    for (int j = 0; j < n; j++)
        sum += x[j] * (double)w[j];
    return sum;
}

/* The loss of one example, log(1 + exp(-y <x, w>)), and with gradient its gradient. */
static double convex(const data *p, const float *w, int64_t i, double *gradient)
{
    double margin = p->y[i] * dot(p->x[i], w, p->dim);
    for (int j = 0; gradient && j < p->dim; j++)
        gradient[j] = -p->y[i] / (1 + exp(margin)) * p->x[i][j];
    return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

/* (sum_k v_k tanh(<u_k, x>) - y)^2 / 2, w = (u_1, u_2, u_3, v). */
static double nonconvex(const data *p, const float *w, int64_t i, double *gradient)
{
    int inputs = p->columns, hidden = p->dim / (inputs + 1);
    const float *v = w + hidden * inputs;
    double h[DIM], error = -p->y[i];
    for (int k = 0; k < hidden; k++) {
        h[k] = tanh(dot(p->x[i], w + k * inputs, inputs));
        error += (double)v[k] * h[k];
    }
    for (int k = 0; gradient && k < hidden; k++) {
        gradient[hidden * inputs + k] = error * h[k];
        for (int j = 0; j < inputs; j++)
            gradient[k * inputs + j] = error * (double)v[k] * (1 - h[k] * h[k]) * p->x[i][j];
    }
    return error * error / 2;
}

static double loss(const data *p, const float *w, int64_t i, double *gradient)
{
    return p->columns == p->dim ? convex(p, w, i, gradient) : nonconvex(p, w, i, gradient);
}

/* Whether a call keeps to problem.max_batch. */
static bool fits(const data *p, const dro_batch *parts, int part_count)
{
    size_t total = parts[0].count + (part_count == 2 ? parts[1].count : 0);
    return p->most == 0 || total <= p->most;
}

static dro_status forward(void *user, const float *w, const dro_batch *parts, int part_count,
                          float *losses)
{
    if (!fits(user, parts, part_count))
        return DRO_ERR_CALLBACK;
    for (int k = 0; k < part_count; k++)
        for (size_t i = 0; i < parts[k].count; i++)
            *losses++ = (float)loss(user, w, parts[k].ids[i], NULL);
    return DRO_OK;
}

static dro_status backward(void *user, const float *w, const dro_batch *parts, int part_count,
                           const float *coef, float *const *grads)
{
    const data *p = user;
    for (int k = 0; k < part_count; k++) {
        double sum[DIM] = {0}, one[DIM];
        for (size_t i = 0; i < parts[k].count; i++, coef++) {
            loss(p, w, parts[k].ids[i], one);
            for (int j = 0; j < p->dim; j++)
                sum[j] += (double)*coef * one[j];
        }
        for (int j = 0; j < p->dim; j++)
            grads[k][j] = (float)sum[j];
    }
    return DRO_OK;
}

static dro_status labels(void *user, const int64_t *ids, size_t count, int32_t *classes,
                         int32_t *groups)
{
    const data *p = user;
    for (size_t i = 0; i < count; i++) {
        if (classes)
            classes[i] = p->classes[ids[i]];
        if (groups)
            groups[i] = p->groups[ids[i]];
    }
    return DRO_OK;
}

/* g = (<r, w>, <r, w>^2), means over each part. */
static dro_status evaluate(void *user, const float *w, const dro_batch *parts, int part_count,
                           double *g, float *const *jacobian)
{
    const data *p = user;
    if (!fits(p, parts, part_count))
        return DRO_ERR_CALLBACK;
    for (int k = 0; k < part_count; k++, g += INNER) {
        double mean[INNER] = {0}, rows[INNER][COLUMNS] = {{0}}, b = (double)parts[k].count;
        for (size_t i = 0; i < parts[k].count; i++) {
            const double *r = p->x[parts[k].ids[i]];
            double s = dot(r, w, p->dim);
            mean[0] += s / b;
            mean[1] += s * s / b;
            for (int j = 0; j < p->dim; j++) {
                rows[0][j] += r[j] / b;
                rows[1][j] += 2 * s * r[j] / b;
            }
        }
        memcpy(g, mean, sizeof mean);
        for (int j = 0; jacobian && j < INNER * p->dim; j++)
            jacobian[k][j] = (float)rows[j / p->dim][j % p->dim];
    }
    return DRO_OK;
}

/* f(u) = -u1 + 2 (u2 - u1^2). */
static dro_status outer(void *user, const double *u, double *value, double *gradient)
{
    (void)user;
    *value = -u[0] + 2 * (u[1] - u[0] * u[0]);
    gradient[0] = -1 - 4 * u[0];
    gradient[1] = 2;
    return DRO_OK;
}

/* ---- the file ---- */

typedef struct point {
    uint64_t step, examples, evaluations;
    bool has_log_u;
    double log_u, w[DIM];
} point;

typedef struct expected {
    char name[TEXT], optimizer[TEXT], settings[SETTINGS][TEXT];
    data *problem;
    bool shares;
    int setting_count, point_count;
    point points[POINTS];
} expected;

static data problems[PROBLEMS];
static expected cases[CASES];
static int problem_count, case_count;

static void bad_file(const char *line)
{
    fprintf(stderr, "trajectories.txt: cannot read the line: %s\n", line);
    exit(1);
}

/* The next line that is not empty and not a comment, without its end; false at the end. */
static bool next_line(FILE *file, char *line)
{
    while (fgets(line, LINE, file)) {
        line[strcspn(line, "\n")] = 0;
        if (*line && *line != '#')
            return true;
    }
    return false;
}

/* Reads count numbers and gives the place behind them. */
static const char *numbers(const char *text, double *values, int count)
{
    for (int j = 0; j < count; j++) {
        char *end;
        values[j] = strtod(text, &end);
        if (end == text)
            bad_file(text);
        text = end;
    }
    return text;
}

static void read_problem(FILE *file, char *line)
{
    data *p = &problems[problem_count];
    if (problem_count++ == PROBLEMS ||
        sscanf(line, "problem %63s rows %d columns %d dim %d", p->name, &p->rows, &p->columns,
               &p->dim) != 4 ||
        p->rows != ROWS || p->columns > COLUMNS || p->dim > DIM)
        bad_file(line);
    for (int i = 0; i < p->rows; i++) {
        double head[3];
        if (!next_line(file, line))
            bad_file("(the end)");
        numbers(numbers(line, head, 3), p->x[i], p->columns);
        p->y[i] = head[0];
        p->classes[i] = (int32_t)head[1];
        p->groups[i] = (int32_t)head[2];
        p->class_share[p->classes[i]] += 1.0 / p->rows;
        p->group_share[p->groups[i]] += 1.0 / p->rows;
    }
    double w0[DIM];
    if (!next_line(file, line) || strncmp(line, "w0 ", 3) != 0)
        bad_file(line);
    numbers(line + 3, w0, p->dim);
    for (int j = 0; j < p->dim; j++)
        p->w0[j] = (float)w0[j];
}

static void read_point(expected *c, const char *line)
{
    point *p = &c->points[c->point_count];
    char log_u[TEXT];
    int used = 0;
    if (c->point_count++ == POINTS || !c->problem ||
        sscanf(line, "at %" SCNu64 " %" SCNu64 " %" SCNu64 " %63s%n", &p->step, &p->examples,
               &p->evaluations, log_u, &used) != 4)
        bad_file(line);
    p->has_log_u = strcmp(log_u, "-") != 0;
    if (p->has_log_u)
        numbers(log_u, &p->log_u, 1);
    numbers(line + used, p->w, c->problem->dim);
}

static void read_case(FILE *file, char *line)
{
    expected *c = &cases[case_count];
    if (case_count++ == CASES || sscanf(line, "case %63s", c->name) != 1)
        bad_file(line);
    while (next_line(file, line) && strcmp(line, "end") != 0) {
        char word[TEXT];
        if (sscanf(line, "optimizer %63s", c->optimizer) == 1) {
            continue;
        } else if (sscanf(line, "problem %63s", word) == 1) {
            for (int k = 0; k < problem_count; k++)
                if (strcmp(problems[k].name, word) == 0)
                    c->problem = &problems[k];
        } else if (sscanf(line, "shares %63s", word) == 1) {
            c->shares = strcmp(word, "given") == 0;
        } else if (strncmp(line, "at ", 3) == 0) {
            read_point(c, line);
        } else if (strchr(line, '=') && strlen(line) < TEXT && c->setting_count < SETTINGS) {
            strcpy(c->settings[c->setting_count++], line);
        } else {
            bad_file(line);
        }
    }
    if (c->point_count == 0 || c->points[c->point_count - 1].step != STEPS)
        bad_file(c->name);
}

static void read_file(void)
{
    static char line[LINE];
    FILE *file = fopen(DRO_TEST_DIR "/refs/trajectories.txt", "r");
    if (!file) {
        perror(DRO_TEST_DIR "/refs/trajectories.txt");
        exit(1);
    }
    while (next_line(file, line)) {
        if (strncmp(line, "problem ", 8) == 0)
            read_problem(file, line);
        else
            read_case(file, line);
    }
    fclose(file);
}

/* ---- running a case ---- */

static void check(dro_context *ctx, const expected *c, dro_status status, const char *what)
{
    if (status != DRO_OK)
        fail_msg("%s: %s: %s (%s)", c->name, what, dro_status_text(status), dro_context_error(ctx));
}

static void create(dro_context *ctx, const expected *c, dro_optimizer **opt)
{
    data *p = c->problem;
    if (strcmp(p->name, "composite") == 0) {
        dro_composite composite = {.size = sizeof(dro_composite),
                                   .user = p,
                                   .dim = (size_t)p->dim,
                                   .inner = INNER,
                                   .n = p->rows};
        composite.evaluate = evaluate;
        composite.outer = outer;
        composite.max_batch = p->most;
        check(ctx, c, dro_optimizer_create_composite(ctx, c->optimizer, &composite, opt), "create");
        return;
    }
    dro_problem problem = {
        .size = sizeof(dro_problem), .user = p, .dim = (size_t)p->dim, .n = p->rows};
    problem.forward = forward;
    problem.backward = backward;
    problem.labels = labels;
    problem.max_batch = p->most;
    problem.classes = 2;
    problem.groups = GROUPS;
    problem.class_share = c->shares ? p->class_share : NULL;
    problem.group_share = c->shares ? p->group_share : NULL;
    check(ctx, c, dro_optimizer_create(ctx, c->optimizer, &problem, opt), "create");
}

/* A started optimiser with the case's settings; form, if not NULL, on top of them. */
static dro_optimizer *start(dro_context *ctx, const expected *c, const char *form)
{
    dro_optimizer *opt = NULL;
    create(ctx, c, &opt);
    for (int k = 0; k < c->setting_count; k++) {
        char name[TEXT];
        strcpy(name, c->settings[k]);
        char *value = strchr(name, '=');
        *value++ = 0;
        check(ctx, c, dro_optimizer_set(opt, name, value), c->settings[k]);
    }
    if (form)
        check(ctx, c, dro_optimizer_set(opt, "form", form), form);
    check(ctx, c, dro_optimizer_start(opt, c->problem->w0), "start");
    return opt;
}

static void steps(dro_context *ctx, const expected *c, dro_optimizer *opt, uint64_t count)
{
    for (uint64_t t = 0; t < count; t++)
        check(ctx, c, dro_optimizer_step(opt), "step");
}

/* |w - ref| / |ref| */
static double distance(const float *w, const double *ref, int n)
{
    double difference = 0, size = 0;
    for (int j = 0; j < n; j++) {
        difference += ((double)w[j] - ref[j]) * ((double)w[j] - ref[j]);
        size += ref[j] * ref[j];
    }
    return sqrt(difference) / fmax(sqrt(size), 1e-30);
}

static void compare(const expected *c, const char *where, const point *p, const dro_info *info,
                    const float *w)
{
    double off = distance(w, p->w, c->problem->dim);
    if (!(off <= w_tolerance))
        fail_msg("%s on %s, step %d: w is off by %.3g", c->name, where, (int)p->step, off);
    off = fabs(info->log_u - p->log_u) / fmax(1, fabs(p->log_u));
    if (p->has_log_u && !(off <= log_u_tolerance))
        fail_msg("%s on %s, step %d: log_u is %.9g, not %.9g", c->name, where, (int)p->step,
                 info->log_u, p->log_u);
    if (info->step != p->step || info->examples != p->examples ||
        info->evaluations != p->evaluations)
        fail_msg("%s on %s, step %d: step %d, examples %d, evaluations %d, not %d, %d, %d", c->name,
                 where, (int)p->step, (int)info->step, (int)info->examples, (int)info->evaluations,
                 (int)p->step, (int)p->examples, (int)p->evaluations);
}

/* Runs the case and compares it with the file; keeps w of every checkpoint. */
static void run_reference(dro_context *ctx, const expected *c, const char *where,
                          double kept[][DIM])
{
    dro_optimizer *opt = start(ctx, c, NULL);
    for (int k = 0; k < c->point_count; k++) {
        float w[DIM];
        dro_info info;
        steps(ctx, c, opt, c->points[k].step - (k ? c->points[k - 1].step : 0));
        check(ctx, c, dro_optimizer_weights(opt, w), "weights");
        check(ctx, c, dro_optimizer_info(opt, &info), "info");
        compare(c, where, &c->points[k], &info, w);
        for (int j = 0; j < c->problem->dim; j++)
            kept[k][j] = (double)w[j];
    }
    dro_optimizer_destroy(opt);
}

/* The two-point form makes the same iterates; kept becomes its own. */
static void run_two_point(dro_context *ctx, const expected *c, const char *where,
                          double kept[][DIM])
{
    dro_optimizer *opt = start(ctx, c, "two-point");
    for (int k = 0; k < c->point_count; k++) {
        float w[DIM];
        steps(ctx, c, opt, c->points[k].step - (k ? c->points[k - 1].step : 0));
        check(ctx, c, dro_optimizer_weights(opt, w), "weights");
        double off = distance(w, kept[k], c->problem->dim);
        if (!(off <= form_tolerance))
            fail_msg("%s on %s, step %d: the forms differ by %.3g", c->name, where,
                     (int)c->points[k].step, off);
        for (int j = 0; j < c->problem->dim; j++)
            kept[k][j] = (double)w[j];
    }
    dro_optimizer_destroy(opt);
}

/* Save in the middle, continue in a fresh optimiser: the same bits. */
static void run_resumed(dro_context *ctx, const expected *c, const char *where, const char *form,
                        const double *last)
{
    dro_optimizer *opt = start(ctx, c, form);
    steps(ctx, c, opt, STEPS / 2);
    size_t size = dro_optimizer_state_size(opt);
    void *state = malloc(size);
    assert_non_null(state);
    check(ctx, c, dro_optimizer_save(opt, state, size), "save");
    dro_optimizer_destroy(opt);
    opt = start(ctx, c, form);
    check(ctx, c, dro_optimizer_load(opt, state, size), "load");
    free(state);
    steps(ctx, c, opt, STEPS / 2);
    float w[DIM];
    check(ctx, c, dro_optimizer_weights(opt, w), "weights");
    for (int j = 0; j < c->problem->dim; j++)
        if ((double)w[j] != last[j])
            fail_msg("%s on %s: resumed, w[%d] is %.9g, not %.9g", c->name, where, j, (double)w[j],
                     last[j]);
    dro_optimizer_destroy(opt);
}

/* Where a case runs. With a limit big batches come in chunks, which must change nothing (it would
 * for rcivr: its inner batches grow with the big ones). */
static const struct {
    const char *backend, *where;
    int threads;
    size_t most;
} places[] = {{"ref", "ref", 1, 0},
              {"ref", "ref, 20 a call", 1, 20},
              {"cpu", "cpu, 1 thread", 1, 0},
              {"cpu", "cpu, 2 threads", 2, 0}};

static void test_case(void **state)
{
    const expected *c = *state;
    bool has_forms = strcmp(c->optimizer, "cover") == 0 || strcmp(c->optimizer, "recover") == 0;
    for (int k = 0; k < c->setting_count; k++)
        has_forms = has_forms && strncmp(c->settings[k], "sam=", 4) != 0;
    for (size_t k = 0; k < sizeof places / sizeof places[0]; k++) {
        dro_context *ctx;
        double kept[POINTS][DIM];
        if (places[k].most && strcmp(c->optimizer, "rcivr") == 0)
            continue;
        dro_status status = dro_context_create(places[k].backend, places[k].threads, &ctx);
        if (status == DRO_ERR_NAME && strcmp(places[k].backend, "ref") != 0)
            continue; /* a build without it */
        assert_int_equal(status, DRO_OK);
        c->problem->most = places[k].most;
        run_reference(ctx, c, places[k].where, kept);
        run_resumed(ctx, c, places[k].where, NULL, kept[c->point_count - 1]);
        if (has_forms) {
            run_two_point(ctx, c, places[k].where, kept);
            run_resumed(ctx, c, places[k].where, "two-point", kept[c->point_count - 1]);
        }
        dro_context_destroy(ctx);
    }
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[CASES];
    read_file();
    for (int k = 0; k < case_count; k++)
        tests[k] = (struct CMUnitTest){cases[k].name, test_case, NULL, NULL, &cases[k]};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return _cmocka_run_group_tests("trajectories", tests, (size_t)case_count, NULL, NULL);
}
