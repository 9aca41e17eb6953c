/* The list of the zoo's tables: what their columns are, and what decides the class. */
#ifndef DRO_ZOO_TABLES_H
#define DRO_ZOO_TABLES_H

#include <stdbool.h>
#include <stddef.h>

enum { BLOCKS = 4 };

typedef enum kind {
    NONE,
    NORMAL,
    CAUCHY,    /* the rank of a Cauchy number decides */
    STUDENT,   /* a t(2) number decides by itself */
    LOGNORMAL, /* exp(2 z) */
    OUTLIER,   /* z, but one in 200 is hundreds away and says nothing */
    DECADE,    /* scales from 1e-6 to 1e6 */
    OFFSET,    /* 1e6 + z */
    CONSTANT,
    DUPLICATE, /* the column before */
    COLLINEAR, /* the sum of the two before, nearly */
    RARE,      /* 0 or 1, one in 30 to one in 1,000 */
    COUNT,     /* Poisson */
    GAP,       /* z, three in ten are missing */
    CATEGORY,
    IDENTITY, /* a text that no other row has */
    NOISE,    /* z, which decides nothing */
    PAIR,     /* products of neighbours decide */
    RADIUS,   /* the sum of squares decides */
    WORD,     /* sparse: a few of many columns */
    FLIP,     /* a category, in whose rare second value all others mean the opposite */
    ORDINAL,  /* 0 to 4: five answers, most of them the same */
    DECAY,    /* exp(5 z); large ones are often missing */
    TOKEN,    /* sparse counts by Zipf's law, in texts of very different lengths */
    JUMP,     /* whether z is above a half decides */
    UNIT      /* 5 + z, but one in ten is in another unit, 1,000 times as large */
} kind;

typedef struct block {
    kind kind;
    int count;
    int levels; /* of categories; of WORD: entries in a row */
} block;

typedef struct table {
    const char *name, *about;
    int n;
    block blocks[BLOCKS];
    double positive; /* share of the second class; 0: half */
    double noise;    /* share of labels that are random */
    double strength; /* of the score, 0: 2 */
    int classes;     /* 0: 2 */
    const char
        *format;  /* csv, comma (semicolons and decimal commas), plain (no header), npy or libsvm */
    bool sorted;  /* by class */
    double ratio; /* more classes: how much rarer the last one is than the first */
    int repeat;   /* how often a row is there, each time with a label of its own; 0: once */
    const char *also; /* compare besides the linear model: mlp, recipe */
} table;

static const table tables[] = {
    {"plain", "ten normal columns", 2000, {{NORMAL, 10, 0}}, .also = "mlp"},
    {"forty", "40 rows", 40, {{NORMAL, 5, 0}}, .also = NULL},
    {"narrow", "one column", 500, {{NORMAL, 1, 0}}, .also = NULL},
    {"short-wide", "60 rows, 200 columns", 60, {{NORMAL, 20, 0}, {NOISE, 180, 0}}, .also = NULL},
    {"heavy",
     "Cauchy columns, 22 % positive",
     8000,
     {{CAUCHY, 15, 0}, {NORMAL, 8, 0}},
     0.22,
     .also = "mlp recipe"},
    {"credit",
     "log-normal amounts up to 70 deviations away, answers, 22 % positive",
     16000,
     {{LOGNORMAL, 12, 0}, {ORDINAL, 3, 0}, {NOISE, 8, 0}},
     0.22,
     .strength = 0.9,
     .also = "mlp recipe"},
    {"heavy-linear",
     "t(2) columns that decide as they are",
     8000,
     {{STUDENT, 10, 0}},
     .positive = 0.3},
    {"outliers",
     "one value in 200 is far out",
     4000,
     {{OUTLIER, 12, 0}},
     .positive = 0.3,
     .also = "mlp"},
    {"lognormal", "exp(2 z)", 4000, {{LOGNORMAL, 10, 0}}, .positive = 0.3},
    {"decades", "scales over 12 decades", 3000, {{DECADE, 13, 0}}, .also = "mlp"},
    {"offset", "means of a million, deviations of one", 3000, {{OFFSET, 8, 0}}, .also = NULL},
    {"constant",
     "constant and duplicate columns",
     2000,
     {{NORMAL, 6, 0}, {CONSTANT, 3, 0}, {NORMAL, 1, 0}, {DUPLICATE, 6, 0}},
     .also = NULL},
    {"collinear",
     "columns that are sums of others",
     3000,
     {{NORMAL, 6, 0}, {COLLINEAR, 6, 0}},
     .also = NULL},
    {"rare-bits",
     "300 rare binary columns, 3 % positive",
     20000,
     {{RARE, 300, 0}},
     .positive = 0.03},
    {"counts", "Poisson counts", 4000, {{COUNT, 10, 0}}, .positive = 0.3},
    {"gaps", "three values in ten are missing", 4000, {{GAP, 10, 0}}, .also = NULL},
    {"noise", "label noise of 10 %", 4000, {{NORMAL, 10, 0}}, .noise = 0.1, .also = "mlp"},
    {"no-signal", "labels that nothing decides", 2000, {{NOISE, 10, 0}}, .also = NULL},
    {"separable", "labels that are nearly certain", 2000, {{NORMAL, 10, 0}}, .strength = 40},
    {"ratio-10", "1 : 10", 5000, {{NORMAL, 10, 0}}, .positive = 0.09, .also = "recipe"},
    {"ratio-100",
     "1 : 100",
     20000,
     {{NORMAL, 10, 0}},
     .positive = 0.01,
     .strength = 3,
     .also = "recipe"},
    {"ratio-1000",
     "1 : 1,000",
     100000,
     {{NORMAL, 5, 0}},
     .positive = 0.001,
     .strength = 3,
     .also = "recipe"},
    {"million", "a million rows", 1000000, {{NORMAL, 5, 0}}, .also = NULL},
    {"wide",
     "10,000 columns",
     1000,
     {{NORMAL, 50, 0}, {NOISE, 9950, 0}},
     .strength = 6,
     .format = "npy"},
    {"words",
     "10,000 sparse columns",
     4000,
     {{WORD, 10000, 40}},
     .positive = 0.3,
     .strength = 3,
     .format = "libsvm"},
    {"npy-decades",
     "a NumPy array over 12 decades",
     3000,
     {{DECADE, 13, 0}},
     0,
     .format = "npy",
     .also = "mlp"},
    {"libsvm-dense",
     "LIBSVM rows without zeros, heavy",
     4000,
     {{CAUCHY, 6, 0}, {DECADE, 6, 0}},
     0.3,
     .format = "libsvm"},
    {"categories",
     "categories of 8 values and numbers",
     4000,
     {{NORMAL, 4, 0}, {CATEGORY, 3, 8}},
     0.3,
     .also = "mlp"},
    {"many-values",
     "categories of 500 values",
     8000,
     {{NORMAL, 3, 0}, {CATEGORY, 2, 500}},
     .positive = 0.3},
    {"identity", "a column that is an id", 1000, {{NORMAL, 6, 0}, {IDENTITY, 1, 0}}, .also = NULL},
    {"groups",
     "a rare group in which all is reversed",
     6000,
     {{NORMAL, 6, 0}, {FLIP, 1, 2}},
     .also = NULL},
    {"commas", "semicolons and decimal commas", 2000, {{NORMAL, 8, 0}}, .format = "comma"},
    {"nameless", "no header", 2000, {{NORMAL, 8, 0}, {CATEGORY, 1, 5}}, .format = "plain"},
    {"sorted",
     "rows in the order of their classes",
     4000,
     {{NORMAL, 8, 0}},
     .positive = 0.3,
     .sorted = true},
    {"ten", "ten classes", 4000, {{NORMAL, 12, 0}}, .strength = 3, .classes = 10, .also = "mlp"},
    {"hundred", "a hundred classes", 8000, {{NORMAL, 20, 0}}, .strength = 6, .classes = 100},
    {"pairs", "products of columns decide", 4000, {{PAIR, 4, 0}}, .strength = 3, .also = "mlp"},
    {"ring",
     "the distance from the centre decides",
     3000,
     {{RADIUS, 2, 0}},
     0,
     0,
     4,
     .also = "mlp"},
    /* drawn from ideas for which nothing was tuned */
    {"rare-pairs",
     "products decide, 3 % positive",
     20000,
     {{PAIR, 4, 0}, {NORMAL, 4, 0}},
     .positive = 0.03,
     .strength = 3,
     .also = "mlp recipe"},
    {"ordinal", "five answers with heavy ties", 4000, {{ORDINAL, 15, 0}}, 0.3, .also = "mlp"},
    {"decay",
     "log-normal over many decades, large values missing",
     6000,
     {{DECAY, 10, 0}},
     .positive = 0.3,
     .also = "mlp"},
    {"twelve",
     "twelve classes, 1 : 200",
     20000,
     {{NORMAL, 10, 0}},
     .strength = 4,
     .classes = 12,
     .ratio = 200,
     .also = "mlp recipe"},
    {"conflicts",
     "every row four times, with labels of their own",
     4000,
     {{NORMAL, 10, 0}},
     .repeat = 4,
     .also = "mlp"},
    {"tokens",
     "3,000 sparse counts of texts of all lengths",
     3000,
     {{TOKEN, 3000, 60}},
     .positive = 0.2,
     .strength = 3,
     .format = "libsvm"},
    {"jumps", "steps decide", 3000, {{JUMP, 8, 0}}, .also = "mlp"},
    {"units",
     "one value in ten is in another unit",
     5000,
     {{UNIT, 8, 0}, {NORMAL, 2, 0}},
     .positive = 0.3,
     .also = "mlp"},
    {"few-rare",
     "120 rows, one in twelve positive",
     120,
     {{NORMAL, 6, 0}},
     0.083,
     .also = "recipe"},
};

#endif
