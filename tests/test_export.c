/* Exported models, as far as it can be seen without another program: the names of a graph's values,
 * read out of the file. What onnxruntime makes of them is compared in peers/export_check.py. */
#define _GNU_SOURCE /* memmem */
#include "train_runs.h"

#include <dro/export.h>
#include <dro/train.h>

/* ---- reading protocol buffers ---- */

typedef struct message {
    const unsigned char *at, *end;
    uint64_t value; /* of a field that is a number, without bytes */
} message;

static uint64_t take_varint(message *m)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        assert_true(m->at < m->end);
        value |= (uint64_t)(*m->at & 0x7f) << shift;
        if (!(*m->at++ & 0x80))
            break;
    }
    return value;
}

static bool take_field(message *m, int *field, message *inner)
{
    if (m->at == m->end)
        return false;
    uint64_t key = take_varint(m), size = 4;
    *field = (int)(key >> 3);
    *inner = (message){0};
    if ((key & 7) == 0) {
        inner->value = take_varint(m);
        return true;
    }
    assert_true((key & 7) == 5 || (key & 7) == 2);
    if ((key & 7) == 2)
        size = take_varint(m);
    assert_true(size <= (uint64_t)(m->end - m->at));
    *inner = (message){m->at, m->at + size, 0};
    m->at += size;
    return true;
}

/* ---- a graph ---- */

enum {
    MODEL_GRAPH = 7,
    GRAPH_NODE = 1,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12
};
enum { FLOAT = 1, STRING = 8, DOUBLE = 11 }; /* kinds of elements */
enum { MOST = 400, LONGEST = 80 };

typedef struct graph {
    size_t made, inputs; /* names of values: inputs first, then constants and what nodes write */
    char names[MOST][LONGEST];
    int kind[MOST]; /* of inputs and constants */
    size_t outputs;
    char output[4][LONGEST];
} graph;

/* The name in a node (what it writes, field 2), a tensor (8) or an input (1). */
static void name_of(message m, int wanted, char to[LONGEST])
{
    int field;
    message inner;
    *to = '\0';
    while (take_field(&m, &field, &inner))
        if (field == wanted)
            snprintf(to, LONGEST, "%.*s", (int)(inner.end - inner.at), (const char *)inner.at);
}

/* The number at the end of a path of fields. */
static int number_at(message m, const int *path)
{
    int field, found = 0;
    message inner;
    while (take_field(&m, &field, &inner))
        if (field == *path)
            found = path[1] ? number_at(inner, path + 1) : (int)inner.value;
    return found;
}

/* Reads a file that was exported, and checks that no two of its values have the same name, and that
 * only those inside begin with dro/. */
static void read_graph(const char *name, graph *g)
{
    size_t size;
    char *bytes = slurp(".", name, &size);
    message file = {(unsigned char *)bytes, (unsigned char *)bytes + size, 0}, model = {0}, inner;
    int field, sorts[] = {GRAPH_INPUT, GRAPH_INITIALIZER, GRAPH_NODE, GRAPH_OUTPUT};
    *g = (graph){0};
    while (take_field(&file, &field, &inner))
        if (field == MODEL_GRAPH)
            model = inner;
    for (int k = 0; k < 4; k++)
        for (message m = model; take_field(&m, &field, &inner);) {
            char *to = sorts[k] == GRAPH_OUTPUT ? g->output[g->outputs] : g->names[g->made];
            if (field != sorts[k])
                continue;
            name_of(inner, field == GRAPH_NODE ? 2 : field == GRAPH_INITIALIZER ? 8 : 1, to);
            assert_true(*to);
            if (field == GRAPH_INPUT || field == GRAPH_INITIALIZER)
                g->kind[g->made] = number_at(inner, field == GRAPH_INPUT ? (int[]){2, 1, 1, 0} //
                                                                         : (int[]){2, 0});
            if (field == GRAPH_OUTPUT)
                g->outputs++;
            else
                g->made++;
            g->inputs += field == GRAPH_INPUT;
            assert_true(g->made < MOST && g->outputs < 4);
        }
    for (size_t i = 0; i < g->made; i++)
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(g->names[i], g->names[j]);
    for (size_t i = 0; i < g->made; i++) {
        bool output = false;
        for (size_t k = 0; k < g->outputs; k++)
            output = output || strcmp(g->names[i], g->output[k]) == 0;
        assert_int_equal(strncmp(g->names[i], "dro/", 4) == 0, i >= g->inputs && !output);
    }
    dro__free(bytes);
}

/* ---- tests ---- */

static void train(const char *run, const char *settings)
{
    char folder[200];
    dro_train *t;
    snprintf(folder, sizeof folder, "%s/%s", dir, run);
    OK(ctx, dro_train_create(ctx, &t));
    set_all(t, settings);
    set_all(t, "model=linear optimizer=sgd steps=2 batch=16 eval_every=100");
    OK(ctx, dro_train_run(t, folder, false, NULL));
    dro_train_destroy(t);
}

/* A table with these columns and a label y behind them, whose model is exported. */
static void export_columns(const char *header, int columns, const char *options, graph *g)
{
    char settings[400], weights[300];
    FILE *t = fopen(in_dir("t.csv"), "w");
    assert_non_null(t);
    fprintf(t, "%s,y\n", header);
    for (int i = 0; i < 60; i++) {
        for (int k = 0; k < columns; k++)
            fprintf(t, k == 1 ? "w%.0f," : "%g,", k == 1 ? i % 3 : 10 * sin(i * i + k));
        fprintf(t, "%d\n", i % 7 < 3);
    }
    fclose(t);
    snprintf(settings, sizeof settings, "data=csv:%s,label=y,header=yes%s", in_dir("t.csv"),
             options);
    train("run", settings);
    snprintf(weights, sizeof weights, "%s/run/weights.safetensors", dir);
    OK(ctx, dro_export_onnx(ctx, weights, in_dir("x.onnx")));
    read_graph("x.onnx", g);
    clear("run");
}

/* Columns with the names of what is in a graph, each other's or none. */
static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *header, *options, *inputs[6];
    } cases[] = {
        {"limit,off_on,limit_squared,limit_twice",
         "", //
         {"limit", "off_on", "limit_squared", "limit_twice"}},
        {"missing.0,place.1,centre.2,factor.3,scaled.0,gone.2",
         "",
         {"missing.0", "place.1", "centre.2", "factor.3", "scaled.0", "gone.2"}},
        {"features,best,class_names,layer.1,fc.weight,feature.0",
         "",
         {"features", "best", "class_names", "layer.1", "fc.weight", "feature.0"}},
        {"label,probabilities,value,b", "", {"column.1", "column.2", "column.3", "b"}},
        {"target_scale,target_centre,measured,value",
         ",target=real",
         {"target_scale", "target_centre", "measured", "column.4"}},
        {"a,b,a,,column.1,column.6",
         "",
         {"column.1", "b", "column.3", "column.4", "column.5", "column.6"}},
        {"dro/limit,dro/off_on,dro", "", {"column.1", "column.2", "dro"}},
        {"a,b,a", ",drop=1", {"b", "a"}},
    };
    graph *g = test_malloc(sizeof *g);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        int columns = 1;
        for (const char *c = cases[k].header; *c; c++)
            columns += *c == ',';
        export_columns(cases[k].header, columns, cases[k].options, g);
        for (size_t i = 0; i < g->inputs; i++)
            assert_string_equal(g->names[i], cases[k].inputs[i]);
        assert_true(g->inputs == 6 || !cases[k].inputs[g->inputs]);
    }
    test_free(g);
}

/* Numbers of a table are double, and what is subtracted from them; those of rows are float. */
static void test_kinds(void **state)
{
    (void)state;
    graph *g = test_malloc(sizeof *g);
    export_columns("a,b,c", 3, "", g);
    static const int kinds[] = {DOUBLE, STRING, DOUBLE};
    for (size_t k = 0; k < 3; k++)
        assert_int_equal(g->kind[k], kinds[k]);
    for (size_t k = 0; k < g->made; k++)
        if (!strncmp(g->names[k], "dro/centre", 10) || !strncmp(g->names[k], "dro/factor", 10))
            assert_int_equal(g->kind[k], DOUBLE);
    test_free(g);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_train, teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_names),
    TEST(test_kinds),
};

CHECK_MAIN(tests)
