/* Reports: statistics, curves, scales, escaping, drawing, reading damaged folders, grouping into
 * methods. */
#include "data_dir.h"
#include "report_figures.h"

#include <dro/report.h>

/* ---- helpers ---- */

static void folder(const char *name)
{
    assert_int_equal(mkdir(in_dir(name), 0777), 0);
}

static void text_file(const char *name, const char *text)
{
    write_file(name, text, strlen(text));
}

static dro_report *report_of(const char *name)
{
    dro_report *report;
    OK(ctx, dro_report_create(ctx, &report));
    dro_status status = dro_report_add(report, in_dir(name));
    if (status == DRO_ERR_UNSUPPORTED) {
        dro_report_destroy(report);
        print_message("skipped: built without jansson\n");
        skip();
    }
    OK(ctx, status);
    return report;
}

static void has_note(const dro_report *report, const char *part)
{
    const char *note;
    for (int32_t k = 0; (note = dro_report_remark(report, k)); k++)
        if (strstr(note, part))
            return;
    fail_msg("no note with '%s'", part);
}

/* The file's text; free() it. */
static char *slurp(const char *name)
{
    FILE *f = fopen(in_dir(name), "rb");
    assert_non_null(f);
    char *text = calloc(1, 8 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (8 << 20) - 1, f) > 0);
    fclose(f);
    return text;
}

/* ---- numbers ---- */

static void statistics(void **state)
{
    (void)state;
    dro_statistic s = dro__report_statistic((double[]){1, 2, NAN, 3, 6, INFINITY}, 6);
    assert_int_equal(s.count, 4);
    check_near("mean", s.mean, 3, 1e-15);
    check_near("error", s.error, sqrt(14.0 / 3 / 4), 1e-15);
    s = dro__report_statistic((double[]){5}, 1);
    assert_true(s.count == 1 && s.mean == 5 && isnan(s.error));
    s = dro__report_statistic(NULL, 0);
    assert_true(s.count == 0 && isnan(s.mean) && isnan(s.error));
}

/* Runs that take different times: the mean is over the k-th evaluations, and ends at the mean of
 * the last. */
static void mean_curves(void **state)
{
    double xa[] = {0, 2, 4}, ya[] = {0, 4, 8}, xb[] = {10, 20, 31}, yb[] = {10, 20, 11};
    double xc[] = {1, 2}, yc[] = {3, 5};
    dro__curve all[4] = {{3, xa, ya}, {3, xb, yb}, {0, NULL, NULL}, {2, xc, yc}}, mean;
    (void)state;
    assert_true(dro__curve_mean(all, 3, &mean));
    assert_int_equal(mean.count, 3); /* that their times do not overlap does not matter */
    for (size_t k = 0; k < 3; k++) {
        check_near("x", mean.x[k], (xa[k] + xb[k]) / 2, 1e-15);
        check_near("y", mean.y[k], (ya[k] + yb[k]) / 2, 1e-15);
    }
    dro__curve_free(&mean);
    assert_true(dro__curve_mean(all, 4, &mean)); /* one that was evaluated less often */
    assert_int_equal(mean.count, 3);
    check_near("x", mean.x[1], (2 + 20 + 1.5) / 3, 1e-15);
    check_near("y", mean.y[1], (4 + 20 + 4) / 3.0, 1e-15);
    assert_true(mean.x[2] == (4.0 + 31 + 2) / 3 && mean.y[2] == (8.0 + 11 + 5) / 3);
    dro__curve_free(&mean);
    assert_true(dro__curve_mean(all + 3, 1, &mean) && mean.count == 2 && mean.y[1] == 5);
    dro__curve_free(&mean);
    assert_true(dro__curve_mean(all, 0, &mean) && mean.count == 0);
    dro__curve_free(&mean);
}

static void thin_curves(void **state)
{
    enum { N = 10007 };
    static double x[N], y[N];
    (void)state;
    for (int k = 0; k < N; k++)
        x[k] = k, y[k] = sin(k / 500.0);
    y[3333] = 50, y[7777] = -50;
    dro__curve c = {N, x, y};
    dro__curve_thin(&c, 100);
    assert_true(c.count <= 100 && c.count > 50);
    bool high = false, low = false;
    for (size_t k = 0; k < c.count; k++) {
        assert_true(k == 0 || c.x[k] > c.x[k - 1]);
        high = high || c.y[k] == 50;
        low = low || c.y[k] == -50;
    }
    assert_true(high && low && c.x[0] == 0 && c.x[c.count - 1] == N - 1);
}

static void scales(void **state)
{
    double ticks[DRO__TICKS];
    char text[DRO__NUMBER];
    (void)state;
    dro__plot_scale s = dro__scale_fit(0.312, 0.874, DRO__UNIT_SHARE, false);
    assert_true(s.low <= 0.312 && s.high >= 0.874 && s.low >= 0 && s.high <= 1);
    s.from = 0, s.to = 100;
    int count = dro__scale_ticks(&s, 5, ticks);
    assert_true(count >= 3 && count <= 8);
    assert_string_equal(dro__scale_text(&s, 0.4, text), "40%");
    s = dro__scale_fit(1, 5000, DRO__UNIT_PLAIN, true);
    assert_true(s.log);
    s = dro__scale_fit(0, 7200, DRO__UNIT_SECONDS, false);
    assert_string_equal(s.name, "minutes");
    assert_string_equal(dro__scale_text(&s, 3600, text), "60");
    /* Odd ranges: ticks end, places are finite and near the plot. */
    const double odd[][2] = {
        {NAN, NAN},      {INFINITY, -INFINITY}, {0, 0},   {3, 3},           {-1e300, 1e300},
        {1e-300, 1e300}, {1e-310, 1e-309},      {-5, -5}, {1e15, 1e15 + 1}, {80, 99},
        {0, INFINITY}};
    for (size_t k = 0; k < sizeof odd / sizeof odd[0]; k++)
        for (int unit = 0; unit < 3; unit++)
            for (int may_log = 0; may_log < 2; may_log++) {
                s = dro__scale_fit(odd[k][0], odd[k][1], (dro__plot_unit)unit, may_log);
                s.from = 10, s.to = 110;
                count = dro__scale_ticks(&s, 5, ticks);
                assert_true(count >= 0 && count <= DRO__TICKS);
                double at = dro__scale_at(&s, odd[k][1]);
                if (!(at >= 0 && at <= 120))
                    fail_msg("range %zu: at %g", k, at);
                for (int i = 0; i < count; i++)
                    assert_true(strlen(dro__scale_text(&s, ticks[i], text)) < DRO__NUMBER);
            }
}

static void shown_numbers(void **state)
{
    char out[DRO__NUMBER];
    (void)state;
    char other[DRO__NUMBER];
    assert_string_equal(dro__show_share(out, 0.83149), "83.1");
    for (int k = 5; k < 1000; k += 10) /* ties of "%.1f", and their neighbours */
        assert_string_equal(dro__show_share(out, nextafter(k / 2000.0, 0)),
                            dro__show_share(other, nextafter(k / 2000.0, 1)));
    assert_string_equal(dro__show_real(out, NAN), "\xe2\x80\x93");
    assert_string_equal(dro__show_count(out, 1234567), "1\xe2\x80\x89"
                                                       "234\xe2\x80\x89"
                                                       "567");
    assert_string_equal(dro__show_count(out, 1234), "1234");
    assert_string_equal(dro__show_short(out, 12000), "12k");
    assert_string_equal(dro__show_short(out, 2500000), "2.5M");
    assert_string_equal(dro__show_short(out, 0.125), "0.125");
    assert_string_equal(dro__show_time(out, 8.14), "8.1 s");
    assert_string_equal(dro__show_time(out, 125.2), "2 min 5 s");
    assert_string_equal(dro__show_time(out, 3 * 3600 + 120), "3 h 2 min");
    const double odd[] = {NAN, INFINITY, -INFINITY, 1e300, -1e300, -1, 1e-300, 1e12, -0.0};
    for (size_t k = 0; k < sizeof odd / sizeof odd[0]; k++) {
        assert_true(strlen(dro__show_share(out, odd[k])) < DRO__NUMBER - 1);
        assert_true(strlen(dro__show_real(out, odd[k])) < DRO__NUMBER - 1);
        assert_true(strlen(dro__show_count(out, odd[k])) < DRO__NUMBER - 1);
        assert_true(strlen(dro__show_short(out, odd[k])) < DRO__NUMBER - 1);
        assert_true(strlen(dro__show_time(out, odd[k])) < DRO__NUMBER - 1);
    }
}

static void escape(const char *text, int letters, const char *expected)
{
    dro__buffer b = {0};
    dro__buffer_add(&b, "");
    dro__buffer_escape_cut(&b, text, letters);
    assert_string_equal(b.bytes, expected);
    dro__buffer_free(&b);
}

static void escaping(void **state)
{
    (void)state;
    escape("<a b=\"c\" d='e'>&", 99, "&lt;a b=&quot;c&quot; d=&#39;e&#39;&gt;&amp;");
    escape("a\x01\x7f\nb", 99, "a\xef\xbf\xbd\xef\xbf\xbd b");
    escape("\xff\xc0\xafz\xe2\x82", 99,
           "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd");
    escape("\xe2\x80\xaex", 99, "\xef\xbf\xbdx");                       /* right-to-left override */
    escape("\xed\xa0\x80", 99, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); /* a surrogate */
    escape("\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e", 2, "\xe6\x97\xa5\xe2\x80\xa6");
    escape("four", 4, "four");
    assert_int_equal(dro__utf8_count("a\xc3\xa9\xff"), 3);
}

/* ---- reading ---- */

#define LINE(step, examples, accuracy)                                                             \
    "{\"step\":" #step ",\"examples\":" #examples ",\"seconds\":" #step                            \
    ",\"test\":{\"accuracy\":" #accuracy "}}\n"

static void damaged_lines(void **state)
{
    (void)state;
    folder("run");
    text_file("run/metrics.jsonl",
              LINE(0, 0, 0.1) "garbage\n" LINE(1, 10, 0.2) LINE(2, 20, 0.9) LINE(3, 30, 0.9)
                  LINE(2, 20, 0.3) "\n" LINE(3, 30, NaN) LINE(4, 40, 0.5) "{\"step\":5,\"exam");
    dro_report *report = report_of("run");
    const dro__trial *t = report->trials[0];
    assert_int_equal(t->evaluation_count, 5); /* steps 2 and 3 came again */
    assert_true(t->evaluations[2].values[DRO__COLUMN_ACCURACY] == 0.3);
    assert_true(isnan(t->evaluations[3].values[DRO__COLUMN_ACCURACY]));
    assert_true(t->measures[DRO_MEASURE_ACCURACY] == 0.5 && !t->finished);
    assert_string_equal(t->optimizer, "run");
    has_note(report, "the last line is cut short (line 10)");
    has_note(report, "1 line is not JSON (line 2)");
    has_note(report, "no result.json");
    dro_report_destroy(report);
}

static void wrong_kinds(void **state)
{
    (void)state;
    folder("run");
    text_file("run/config.json", "[]");
    text_file("run/metrics.jsonl", "{\"step\":\"x\",\"test\":[1],\"class_weights\":{}}\n");
    text_file("run/result.json",
              "{\"optimizer\":{},\"seed\":[],\"classes\":\"abc\",\"test\":{\"accuracy\":true,"
              "\"per_class\":{},\"confusion\":[1,2]},\"train\":{\"counts\":[null]}}");
    dro_report *report = report_of("run");
    dro_report_method m;
    OK(ctx, dro_report_method_get(report, 0, &m));
    assert_string_equal(m.name, "run");
    assert_int_equal(m.measures[DRO_MEASURE_ACCURACY].count, 0);
    has_note(report, "config.json: not a JSON object");
    FAILS(ctx, dro_report_method_get(report, 1, &m), DRO_ERR_END, "there are 1");
    OK(ctx, dro_report_html(report, in_dir("report.html")));
    dro_report_destroy(report);
}

/* Some writers leave NaN in their JSON; in a text it stays. */
static void not_a_number(void **state)
{
    (void)state;
    folder("run");
    text_file("run/result.json", "{\"optimizer\":\"NaN \\\"NaN\",\"test\":{\"accuracy\":0.5,"
                                 "\"loss\":NaN,\"auroc\":-Infinity,\"macro_f1\":Infinity}}");
    dro_report *report = report_of("run");
    const dro__trial *t = report->trials[0];
    assert_true(t->finished && t->measures[DRO_MEASURE_ACCURACY] == 0.5);
    assert_true(isnan(t->measures[DRO_MEASURE_LOSS]) && isnan(t->measures[DRO_MEASURE_AUROC]));
    assert_string_equal(t->optimizer, "NaN \"NaN");
    assert_null(dro_report_remark(report, 0));
    dro_report_destroy(report);
}

static void refusals(void **state)
{
    dro_report *report;
    (void)state;
    OK(ctx, dro_report_create(ctx, &report));
    folder("nothing");
    text_file("file", "text");
    FAILS(ctx, dro_report_add(report, in_dir("nothing")), DRO_ERR_DATA, "is not a run");
    FAILS(ctx, dro_report_add(report, in_dir("missing")), DRO_ERR_FILE, "no such folder");
    FAILS(ctx, dro_report_add(report, in_dir("file")), DRO_ERR_FILE, "is a file");
    text_file("nothing/config.json", "{\"name\":\"of something else\"}");
    FAILS(ctx, dro_report_add(report, in_dir("nothing")), DRO_ERR_DATA, "is not a run");
    assert_int_equal(dro_report_runs(report), 0);
    assert_null(dro_report_remark(report, 0));
    dro_report_destroy(report);
    dro_report_destroy(NULL);
    assert_null(dro_measure_name(DRO_MEASURES));
    assert_string_equal(dro_measure_name(DRO_MEASURE_WORST), "worst_class_accuracy");
}

static void make_run(const char *name, const char *optimizer, int seed, const char *lambda)
{
    char path[100], text[400];
    folder(name);
    snprintf(path, sizeof path, "%s/config.json", name);
    snprintf(text, sizeof text,
             "{\"optimizer\":\"%s\",\"seed\":%d,\"out\":\"%s\",\"deep\":{\"lambda\":%s}}",
             optimizer, seed, name, lambda);
    text_file(path, text);
    snprintf(path, sizeof path, "%s/result.json", name);
    snprintf(text, sizeof text, "{\"optimizer\":\"%s\",\"test\":{\"accuracy\":0.%d}}", optimizer,
             seed);
    text_file(path, text);
}

static void methods(void **state)
{
    dro_report_method m;
    (void)state;
    folder("all");
    text_file("all/config.json", "{\"optimizer\":\"the comparison's own\"}");
    make_run("all/b", "sgd", 1, "1");
    make_run("all/c10", "recover", 2, "5");
    make_run("all/c9", "recover", 3, "5");
    dro_report *report = report_of("all");
    assert_int_equal(dro_report_runs(report), 3);
    OK(ctx, dro_report_method_get(report, 1, &m));
    assert_string_equal(m.name, "recover");
    assert_true(m.runs == 2 && m.unfinished == 0);
    check_near("mean", m.measures[DRO_MEASURE_ACCURACY].mean, 0.25, 1e-12);
    check_near("error", m.measures[DRO_MEASURE_ACCURACY].error, 0.05, 1e-12);
    assert_string_equal(report->trials[1]->seed, "3"); /* c9 is before c10 */
    /* Again the same, and one with another setting. */
    OK(ctx, dro_report_add(report, in_dir("all/c9")));
    assert_int_equal(dro_report_runs(report), 3);
    make_run("d", "recover", 4, "20");
    OK(ctx, dro_report_add(report, in_dir("d")));
    OK(ctx, dro_report_method_get(report, 1, &m));
    assert_string_equal(m.name, "recover deep.lambda=5");
    OK(ctx, dro_report_method_get(report, 2, &m));
    assert_string_equal(m.name, "recover deep.lambda=20");
    dro_report_destroy(report);
}

/* ---- pages ---- */

/* A thousand classes: neighbours are put together, and the page stays a page. */
static void many_classes(void **state)
{
    enum { N = 1000 };
    dro__buffer b = {0};
    (void)state;
    dro__buffer_add(&b, "{\"optimizer\":\"sgd\",\"test\":{\"per_class\":[");
    for (int k = 0; k < N; k++)
        dro__buffer_print(&b, "%s0.%d", k ? "," : "", k % 10);
    dro__buffer_add(&b, "],\"confusion\":[");
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++)
            dro__buffer_print(&b, "%s%d%s",
                              k   ? ","
                              : i ? ",["
                                  : "[",
                              (i * k) % 7, k == N - 1 ? "]" : "");
    dro__buffer_add(&b, "]}}");
    folder("run");
    text_file("run/result.json", b.bytes);
    dro__buffer_free(&b);
    dro_report *report = report_of("run");
    OK(ctx, dro_report_html(report, in_dir("report.html")));
    char *page = slurp("report.html");
    assert_true(strlen(page) < 1 << 20);
    assert_non_null(strstr(page, "neighbours are put together"));
    assert_non_null(strstr(page, "<figure id=\"confusion-1-sgd\">"));
    free(page);
    dro_report_destroy(report);
}

/* Lists of a result: drawn where there are two points or more; what is no number or beyond 0 and 1
 * is left out. A single evaluation is no curve. */
static void quality(void **state)
{
    (void)state;
    folder("run");
    text_file("run/metrics.jsonl",
              "{\"step\":1,\"examples\":8,\"seconds\":1,\"test\":{\"accuracy\":0.5}}\n");
    text_file(
        "run/result.json",
        "{\"optimizer\":\"sgd\",\"test\":{\"reliability\":{\"probability\":[null,0.31,0.72,9],"
        "\"accuracy\":[null,0.33,0.74,1]},\"precision_recall\":{\"recall\":[0.5],"
        "\"precision\":[0.5]}}}");
    dro_report *report = report_of("run");
    OK(ctx, dro_report_html(report, in_dir("report.html")));
    char *page = slurp("report.html");
    assert_non_null(strstr(page, "<figure id=\"reliability\">"));
    assert_non_null(strstr(page, "sgd: 33.0% at probability 31.0%"));
    assert_non_null(strstr(page, "sgd: 74.0% at probability 72.0%"));
    assert_null(strstr(page, "at probability 9"));
    assert_null(strstr(page, "<figure id=\"precision-recall\">"));
    assert_null(strstr(page, "<figure id=\"accuracy-seconds\">"));
    free(page);
    dro_report_destroy(report);
}

static void many_methods(void **state)
{
    int32_t count;
    (void)state;
    folder("all");
    for (int k = 0; k < 30; k++) {
        char name[40], path[60];
        snprintf(name, sizeof name, "all/m%d", k);
        snprintf(path, sizeof path, "%s/metrics.jsonl", name);
        folder(name);
        text_file(path, LINE(0, 0, 0.1) LINE(1, 10, 0.2));
    }
    dro_report *report = report_of("all");
    OK(ctx, dro_report_html(report, in_dir("report.html")));
    OK(ctx, dro_report_svg(report, in_dir("svg"), &count));
    assert_int_equal(count, 2);
    char *svg = slurp("svg/accuracy-seconds.svg");
    assert_non_null(strstr(svg, "class=\"l s1 da\" data-s=\"9\"")); /* dashed past the palette */
    free(svg);
    dro_report_destroy(report);
}

/* Two runs, of which one has other settings: which function F is. */
static void objective(const char *over, const char *optimizer, const char *network,
                      const char *wanted)
{
    static int number;
    char name[40], path[80], text[600];
    snprintf(name, sizeof name, "pair%d", number++);
    folder(name);
    for (int k = 0; k < 2; k++) {
        snprintf(path, sizeof path, "%s/m%d", name, k);
        folder(path);
        snprintf(path, sizeof path, "%s/m%d/result.json", name, k);
        snprintf(text, sizeof text,
                 "{\"train\": {\"objective\": %d.5}, \"test\": {\"accuracy\": 0.%d}, \"F\": "
                 "{\"lambda\": 2, \"over\": \"%s\"}, \"settings\": {\"optimizer\": \"m%d\", "
                 "\"optimizer_settings\": {%s}, \"network_settings\": {%s}}}",
                 k + 1, 5 + k, over, k, k ? optimizer : "\"reg\": \"none\"",
                 k ? network : "\"loss\": \"cross-entropy\", \"tau\": 1");
        text_file(path, text);
    }
    dro_report *report = report_of(name);
    assert_string_equal(dro_report_objective(report), wanted);
    OK(ctx, dro_report_html(report, in_dir("objective.html")));
    char *page = slurp("objective.html");
    assert_int_equal(strstr(page, "data-l=\"F (training)\" class=\"best\"") != NULL,
                     !strstr(wanted, "not the same"));
    free(page);
    dro_report_destroy(report);
}

static void objectives(void **state)
{
    (void)state;
    dro_report *report;
    OK(ctx, dro_report_create(ctx, &report));
    assert_null(dro_report_objective(report));
    dro_report_destroy(report);
    objective("examples", "", "", "lambda 2 over examples");
    objective("examples", "\"group_prior\": \"data\", \"reg\": \"ball\", \"weight_decay\": 1",
              "\"loss\": \"cross-entropy\", \"tau\": 3", "lambda 2 over examples");
    objective("examples", "\"reg\": \"l2\", \"reg_strength\": 0", "", "lambda 2 over examples");
#define OWN(what) ", with each run's own " what ": not the same function in all runs"
    objective("examples", "", "\"loss\": \"focal\"", "lambda 2 over examples" OWN("loss"));
    objective("examples", "", "\"smoothing\": 0.1", "lambda 2 over examples" OWN("loss"));
    objective("examples", "\"reg\": \"l2\", \"reg_strength\": 10", "",
              "lambda 2 over examples" OWN("regulariser"));
    objective("groups", "\"group_prior\": \"data\"", "\"loss\": \"logit-adjusted\"",
              "lambda 2 over groups" OWN("loss and prior"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(statistics),    TEST(mean_curves), TEST(thin_curves),   TEST(scales),
    TEST(shown_numbers), TEST(escaping),    TEST(damaged_lines), TEST(wrong_kinds),
    TEST(not_a_number),  TEST(refusals),    TEST(methods),       TEST(many_classes),
    TEST(many_methods),  TEST(objectives),  TEST(quality),
};

CHECK_MAIN(tests)
