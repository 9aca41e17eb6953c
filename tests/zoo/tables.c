/* Tables: latent normal numbers z decide the class, and become columns in awkward ways. */
#include "tables.h"
#include "zoo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEVELS_MOST = 1000, TEST_ROWS = 3000, PILOT_ROWS = 4000 };
enum { COUNT_TABLES = sizeof tables / sizeof tables[0] };

/* ---- a table with its weights ---- */

typedef struct maker {
    const table *t;
    int columns, classes;
    double *weights; /* (classes, columns) */
    double *effects; /* (columns, LEVELS_MOST) */
    double *rarity;  /* (columns) */
    double shift;    /* of the score of the second class */
    double scale;
    int test_rows; /* more where a class is rare */
} maker;

static bool is_category(kind k)
{
    return k == CATEGORY || k == IDENTITY || k == FLIP;
}

static bool is_idle(kind k)
{
    return k == CONSTANT || k == DUPLICATE || k == COLLINEAR || k == IDENTITY || k == NOISE ||
           k == FLIP;
}

static kind kind_of(const table *t, int column, int *levels)
{
    const block *b = t->blocks;
    while (column >= b->count)
        column -= (b++)->count;
    *levels = b->levels;
    return b->kind;
}

static void *allocate(size_t count, size_t size)
{
    void *p = calloc(count, size);
    if (!p)
        exit(1);
    return p;
}

static double poisson(zoo_random *r, double mean)
{
    double limit = exp(-mean), p = 1;
    int k = -1;
    do {
        p *= zoo_uniform(r);
        k++;
    } while (p > limit && k < 1000);
    return k;
}

/* A column's value, and what it says: *part, of unit variance or so. */
static double value_of(const maker *m, int c, kind k, int levels, const double *row, zoo_random *r,
                       double *part)
{
    double z = zoo_normal(r), u;
    *part = is_idle(k) ? 0 : z;
    switch (k) {
    case CAUCHY:
        return tan(3.141592653589793 * (0.5 * erfc(-z * 0.7071067811865476) - 0.5));
    case STUDENT:
        u = z / sqrt(-log(zoo_uniform(r)));
        *part = u / 2;
        return u;
    case LOGNORMAL:
        return exp(2 * z);
    case OUTLIER:
        return zoo_uniform(r) < 0.005 ? 300 * zoo_normal(r) : z;
    case DECADE:
        return z * pow(10, c % 13 - 6);
    case OFFSET:
        return 1e6 + z;
    case CONSTANT:
        return 3.25;
    case DUPLICATE:
        return row[c - 1];
    case COLLINEAR:
        return row[c - 1] + row[c - 2] + 1e-3 * z;
    case RARE:
        u = zoo_uniform(r) < m->rarity[c];
        *part = 3 * u;
        return u;
    case COUNT:
        return poisson(r, exp(z));
    case GAP:
        return zoo_uniform(r) < 0.3 ? NAN : z;
    case CATEGORY:
        u = floor(levels * pow(zoo_uniform(r), 2)); /* small numbers are frequent */
        *part = m->effects[c * LEVELS_MOST + (int)u];
        return u;
    case FLIP:
        return zoo_uniform(r) < 0.1;
    case ORDINAL:
        return fmin(fmax(floor(2.2 + 0.9 * z), 0), 4);
    case DECAY:
        return z > 0.5 && zoo_uniform(r) < 0.6 ? NAN : exp(5 * z);
    case JUMP:
        *part = z > 0.5 ? 1.5 : -0.66;
        return z;
    case UNIT:
        return (5 + z) * (zoo_uniform(r) < 0.1 ? 1000 : 1);
    default:
        return z;
    }
}

/* One row of latent and visible numbers; scores are (classes). */
static void make_row(const maker *m, int64_t number, zoo_random *r, double *row, double *scores)
{
    double part = 0, before = 0, sign = 1;
    memset(scores, 0, (size_t)m->classes * sizeof *scores);
    for (int c = 0; c < m->columns; c++) {
        int levels;
        kind k = kind_of(m->t, c, &levels);
        row[c] = k == IDENTITY ? (double)number : value_of(m, c, k, levels, row, r, &part);
        if (k == PAIR)
            part = c % 2 ? 2 * part * before : part;
        before = row[c];
        if (k == RADIUS)
            part = part * part - 1;
        if (k == FLIP)
            sign = row[c] > 0 ? -1 : 1;
        if (k == PAIR && c % 2 == 0)
            continue;
        for (int j = 0; j < m->classes && !is_idle(k); j++)
            scores[j] += m->weights[j * m->columns + c] * part;
    }
    for (int j = 0; j < m->classes; j++)
        scores[j] = sign * scores[j] * m->scale + (j == 1 ? m->shift : 0) -
                    (m->t->ratio ? log(m->t->ratio) * j / (m->classes - 1) : 0);
}

/* Sparse rows: `levels` words of Zipf's law, each once. */
static void make_words(const maker *m, zoo_random *r, double *row, double *scores)
{
    int words = m->t->blocks[0].levels;
    memset(row, 0, (size_t)m->columns * sizeof *row);
    memset(scores, 0, 2 * sizeof *scores);
    for (int k = 0; k < words; k++) {
        int c = (int)(exp(log((double)m->columns) * zoo_uniform(r))) - 1;
        row[c] = 1 + floor(2 * zoo_uniform(r));
        scores[1] += m->weights[m->columns + c];
    }
    scores[1] = scores[1] * m->scale + m->shift;
}

/* Counts of words in a text; what it says is the mean over its words. */
static void make_tokens(const maker *m, zoo_random *r, double *row, double *scores)
{
    int words = (int)ceil(m->t->blocks[0].levels * exp(zoo_normal(r)));
    words = words > 5000 ? 5000 : words;
    memset(row, 0, (size_t)m->columns * sizeof *row);
    memset(scores, 0, 2 * sizeof *scores);
    for (int k = 0; k < words; k++) {
        int c = (int)(exp(log((double)m->columns) * zoo_uniform(r))) - 1;
        row[c]++;
        scores[1] += m->weights[m->columns + c] / words;
    }
    scores[1] = scores[1] * m->scale + m->shift;
}

static void make_one(const maker *m, int64_t number, zoo_random *r, double *row, double *scores)
{
    if (m->t->blocks[0].kind == WORD)
        make_words(m, r, row, scores);
    else if (m->t->blocks[0].kind == TOKEN)
        make_tokens(m, r, row, scores);
    else
        make_row(m, number, r, row, scores);
}

static int draw_class(const maker *m, zoo_random *r, const double *scores)
{
    int best = 0;
    double top = -INFINITY;
    for (int j = 0; j < m->classes; j++) { /* Gumbel's trick: softmax of the scores */
        double s = scores[j] - log(-log(zoo_uniform(r)));
        if (s > top)
            top = s, best = j;
    }
    return zoo_uniform(r) < m->t->noise ? (int)(zoo_uniform(r) * m->classes) : best;
}

/* Scores of the wanted strength, and the wanted share of the second class, by a few rows. */
static void settle(maker *m, uint64_t seed)
{
    zoo_random r = zoo_seeded(m->t->name, seed, 2);
    double *row = allocate((size_t)m->columns, sizeof *row), square = 0, mean = 0;
    double *scores = allocate((size_t)m->classes, sizeof *scores);
    double *all = allocate(PILOT_ROWS, sizeof *all);
    for (int i = 0; i < PILOT_ROWS; i++) {
        make_one(m, i, &r, row, scores);
        all[i] = scores[1] - scores[0];
        double step = all[i] - mean;
        mean += step / (i + 1);
        square += step * (all[i] - mean);
    }
    double sd = sqrt(square / PILOT_ROWS), strength = m->t->strength ? m->t->strength : 2;
    m->scale = sd > 0 ? strength / sd : 1;
    double low = -1e3, high = 1e3, wanted = m->t->positive ? m->t->positive : 0.5;
    for (int k = 0; k < 100 && m->classes == 2; k++) {
        double share = 0, middle = (low + high) / 2;
        for (int i = 0; i < PILOT_ROWS; i++)
            share += 1 / (1 + exp(-(all[i] * m->scale + middle))) / PILOT_ROWS;
        *(share > wanted ? &high : &low) = middle;
    }
    m->shift = m->classes == 2 ? (low + high) / 2 : 0;
    free(row), free(scores), free(all);
}

static maker begin(const table *t, uint64_t seed)
{
    maker m = {.t = t, .classes = t->classes ? t->classes : 2, .scale = 1};
    bool rare = t->ratio || (t->positive > 0 && t->positive < 0.05);
    m.test_rows = rare ? 10 * TEST_ROWS : TEST_ROWS;
    zoo_random r = zoo_seeded(t->name, seed, 1);
    for (const block *b = t->blocks; b < t->blocks + BLOCKS; b++)
        m.columns += b->count;
    m.weights = allocate((size_t)m.classes * (size_t)m.columns, sizeof *m.weights);
    int listed = m.columns < LEVELS_MOST ? m.columns : 0; /* wide tables have no categories */
    m.effects = allocate((size_t)listed * LEVELS_MOST + 1, sizeof *m.effects);
    m.rarity = allocate((size_t)m.columns, sizeof *m.rarity);
    for (int c = 0; c < m.classes * m.columns; c++)
        m.weights[c] = zoo_normal(&r);
    for (int c = 0; c < listed * LEVELS_MOST; c++)
        m.effects[c] = zoo_normal(&r);
    for (int c = 0; c < m.columns; c++)
        m.rarity[c] = pow(10, -1.5 - 1.5 * zoo_uniform(&r));
    settle(&m, seed);
    return m;
}

/* ---- writing ---- */

typedef struct files {
    FILE *own, *labels, *peer;
    const char *format;
} files;

static bool is(const char *format, const char *word)
{
    return strcmp(format, word) == 0;
}

static files open_files(const maker *m, const char *folder, bool test, int64_t n)
{
    files f = {.format = m->t->format ? m->t->format : "csv"};
    bool npy = is(f.format, "npy"), svm = is(f.format, "libsvm");
    char name[32], shape[64];
    snprintf(name, sizeof name, "%s.%s", test ? "test" : "train",
             npy   ? "npy"
             : svm ? "svm"
                   : "csv");
    f.own = zoo_create(folder, name);
    if (npy) {
        f.labels = zoo_create(folder, test ? "test_y.npy" : "train_y.npy");
        snprintf(shape, sizeof shape, "%lld, %d", (long long)n, m->columns);
        zoo_npy(f.own, "<f4", shape);
        snprintf(shape, sizeof shape, "%lld", (long long)n);
        zoo_npy(f.labels, "<i4", shape);
    } else if (!svm && !is(f.format, "plain")) {
        for (int c = 0; c < m->columns; c++)
            fprintf(f.own, "x%d%c", c, is(f.format, "comma") ? ';' : ',');
        fputs("y\n", f.own);
    }
    if (svm)
        return f; /* scikit-learn reads it itself */
    f.peer = zoo_create(folder, test ? "peer_test.npy" : "peer_train.npy");
    snprintf(shape, sizeof shape, "%lld, %d", (long long)n, m->columns + 1);
    zoo_npy(f.peer, "<f8", shape);
    return f;
}

static void write_cell(const maker *m, const files *f, int c, double value)
{
    int levels;
    kind k = kind_of(m->t, c, &levels);
    bool comma = is(f->format, "comma");
    char text[64] = "";
    if (is_category(k))
        snprintf(text, sizeof text, "v%.0f", value);
    else if (!isnan(value))
        snprintf(text, sizeof text, "%.9g", value);
    for (char *p = text; comma && *p; p++)
        *p = *p == '.' ? ',' : *p;
    fprintf(f->own, "%s%c", text, comma ? ';' : ',');
}

static void write_row(const maker *m, files *f, const double *row, int label)
{
    double y = label;
    if (f->peer) {
        fwrite(row, sizeof *row, (size_t)m->columns, f->peer);
        fwrite(&y, sizeof y, 1, f->peer);
    }
    if (is(f->format, "libsvm")) {
        fprintf(f->own, "%d", label);
        for (int c = 0; c < m->columns; c++)
            if (row[c] != 0)
                fprintf(f->own, " %d:%.9g", c + 1, row[c]);
        fputc('\n', f->own);
        return;
    }
    for (int c = 0; c < m->columns; c++) {
        float value = (float)row[c];
        if (f->labels)
            fwrite(&value, sizeof value, 1, f->own);
        else
            write_cell(m, f, c, row[c]);
    }
    if (f->labels)
        fwrite(&label, 4, 1, f->labels);
    else
        fprintf(f->own, "%d\n", label);
}

static void write_split(const maker *m, const char *folder, bool test, uint64_t seed)
{
    int64_t n = test ? m->test_rows : m->t->n;
    double *row = allocate((size_t)m->columns, sizeof *row);
    double *scores = allocate((size_t)m->classes, sizeof *scores);
    files f = open_files(m, folder, test, n);
    int passes = m->t->sorted && !test ? m->classes : 1;
    for (int pass = 0; pass < passes; pass++) { /* sorted: the same rows, one class at a time */
        zoo_random r = zoo_seeded(m->t->name, seed, test ? 4 : 3);
        for (int64_t i = 0; i < n; i++) {
            if (test || !m->t->repeat || i % m->t->repeat == 0)
                make_one(m, (test ? 10000000 : 0) + i, &r, row, scores);
            int label = draw_class(m, &r, scores);
            if (i < 2 * m->classes && !test)
                label = (int)i % m->classes; /* every class is there, twice */
            if (passes == 1 || label == pass)
                write_row(m, &f, row, label);
        }
    }
    zoo_close(f.own);
    if (f.labels)
        zoo_close(f.labels);
    if (f.peer)
        zoo_close(f.peer);
    free(row), free(scores);
}

static void write_about(const maker *m, const char *folder)
{
    const table *t = m->t;
    const char *format = t->format ? t->format : "csv";
    FILE *f = zoo_create(folder, "about.json");
    char spec[200];
    if (is(format, "npy"))
        snprintf(spec, sizeof spec,
                 "npy:train.npy,labels=train_y.npy,test=test.npy,test_labels=test_y.npy");
    else if (is(format, "libsvm"))
        snprintf(spec, sizeof spec, "libsvm:train.svm,test=test.svm");
    else if (is(format, "plain"))
        snprintf(spec, sizeof spec, "train.csv,label=%d,test=test.csv", m->columns + 1);
    else
        snprintf(spec, sizeof spec, "train.csv,label=y,test=test.csv");
    fprintf(f, "{\"spec\": \"%s\", \"classes\": %d, \"also\": \"%s\", \"categories\": [", spec,
            m->classes, t->also ? t->also : "");
    for (int c = 0, some = 0; c < m->columns; c++) {
        int levels;
        if (is_category(kind_of(t, c, &levels)))
            fprintf(f, "%s%d", some++ ? ", " : "", c);
    }
    fputs("]}\n", f);
    zoo_close(f);
}

int zoo_table(const char *name, uint64_t seed, const char *folder)
{
    for (int k = 0; k < COUNT_TABLES; k++) {
        if (strcmp(tables[k].name, name) != 0)
            continue;
        maker m = begin(&tables[k], seed);
        write_split(&m, folder, false, seed);
        write_split(&m, folder, true, seed);
        write_about(&m, folder);
        free(m.weights), free(m.effects), free(m.rarity);
        return 1;
    }
    return 0;
}

void zoo_list_tables(void)
{
    for (int k = 0; k < COUNT_TABLES; k++)
        printf("table %s: %s\n", tables[k].name, tables[k].about);
}
