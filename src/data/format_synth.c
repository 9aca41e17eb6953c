/* synth:glyphs: small colour images of characters drawn from strokes, made up from a seed.
 *
 * Every image is a pure function of (seed, split, place): a character of strokes on a 5 x 7 grid
 * whose corners are shaken, turned, sheared, scaled and moved, drawn with a random thickness and
 * two random colours that need not be light on dark, with stray strokes across it and noise over
 * it. Because only shape tells the classes apart, and neither colour nor place do, a linear model
 * fails on it and a small network does not. */
#include "data.h"

#include <math.h>
#include <string.h>

enum { POINTS_MAX = 16, STROKES_MAX = 16, SIZE_MAX_PIXELS = 256, CLASSES_MAX = 36 };

/* Strokes as runs of points, two digits each: column 0..4, row 0..6. */
static const char *const glyphs[CLASSES_MAX] = {
    "1030414536160501 10",                  /* 0 */
    "012026 1636",                          /* 1 */
    "011030414233060646",                   /* 2 */
    "0110304142231323 2334453616 05",       /* 3 */
    "300444 3036",                          /* 4 */
    "40000333 33444536 1605",               /* 5 */
    "40200205163645443303",                 /* 6 */
    "0040 4016",                            /* 7 */
    "1030414233131201 10 1304051636454433", /* 8 */
    "0626444130100112 13334342",            /* 9 */
    "0620 2046 1434",                       /* A */
    "0006 0030414233 03 0333444536 06",     /* B */
    "4130100105163645",                     /* C */
    "0006 0020424426 06",                   /* D */
    "4000 0006 0646 0333",                  /* E */
    "4000 0006 0333",                       /* F */
    "41301001051636454323",                 /* G */
    "0006 4046 0343",                       /* H */
    "1030 2026 1636",                       /* I */
    "2040 3035 35261605",                   /* J */
    "0006 4003 0346",                       /* K */
    "0006 0646",                            /* L */
    "0600 0023 2340 4046",                  /* M */
    "0600 0046 4640",                       /* N */
    "20424426040220",                       /* O: a diamond, unlike zero */
    "0600 0030414233 03",                   /* P */
    "1030414536160501 10 2446",             /* Q */
    "0600 0030414233 03 2346",              /* R */
    "41301001 02133344 45361605",           /* S */
    "0040 2026",                            /* T */
    "0005 051636 3645 4540",                /* U */
    "0026 2640",                            /* V */
    "0016 1623 2336 3640",                  /* W */
    "0046 4006",                            /* X */
    "0023 4023 2326",                       /* Y */
    "0040 4006 0646",                       /* Z */
};

typedef struct segment {
    double x0, y0, x1, y1;
} segment;

typedef struct painter {
    uint64_t seed, stream, counter;
    int32_t size;
    double noise;
    segment strokes[STROKES_MAX + POINTS_MAX];
    int count;
} painter;

static double draw(painter *p) /* [0, 1) */
{
    return dro__random_unit(p->seed, p->stream, p->counter++);
}

static double between(painter *p, double low, double high)
{
    return low + (high - low) * draw(p);
}

/* The character's segments in pixels, shaken, turned and moved. */
static void place_glyph(painter *p, const char *text)
{
    double turn = between(p, -0.3, 0.3), shear = between(p, -0.25, 0.25);
    double high = p->size * between(p, 0.5, 0.8), wide = high * between(p, 0.5, 0.85);
    double cx = p->size * between(p, 0.4, 0.6), cy = p->size * between(p, 0.4, 0.6);
    double shake[5][7][2], before[2] = {0};
    for (int k = 0; k < 5 * 7 * 2; k++)
        shake[k / 14][k / 2 % 7][k % 2] = between(p, -0.07, 0.07);
    bool pen_down = false;
    p->count = 0;
    for (const char *c = text; *c;) {
        if (*c == ' ' || c[1] == ' ' || !c[1]) { /* lift the pen */
            pen_down = false;
            c++;
            continue;
        }
        int column = c[0] - '0', row = c[1] - '0';
        double x = (column / 4.0 - 0.5 + shake[column][row][0]) * wide;
        double y = (row / 6.0 - 0.5 + shake[column][row][1]) * high;
        x += shear * y;
        double to[2] = {cx + x * cos(turn) - y * sin(turn), cy + x * sin(turn) + y * cos(turn)};
        if (pen_down && p->count < STROKES_MAX)
            p->strokes[p->count++] = (segment){before[0], before[1], to[0], to[1]};
        memcpy(before, to, sizeof before);
        pen_down = true;
        c += 2;
    }
}

static double square_distance(const segment *s, double x, double y)
{
    double dx = s->x1 - s->x0, dy = s->y1 - s->y0, length = dx * dx + dy * dy;
    double t = length > 0 ? ((x - s->x0) * dx + (y - s->y0) * dy) / length : 0;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    double ex = x - s->x0 - t * dx, ey = y - s->y0 - t * dy;
    return ex * ex + ey * ey;
}

/* How much of the pixel a stroke of this half-width covers. */
static double cover(const segment *s, int count, double x, double y, double half)
{
    double nearest = HUGE_VAL;
    for (int k = 0; k < count; k++) {
        double square = square_distance(&s[k], x, y);
        nearest = square < nearest ? square : nearest;
    }
    double share = half - sqrt(nearest) + 0.5;
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

/* Two colours that differ enough to be told apart, whichever is the lighter. */
static void choose_colours(painter *p, double ink[3], double paper[3])
{
    double contrast;
    do {
        contrast = 0;
        for (int c = 0; c < 3; c++) {
            ink[c] = between(p, 0, 255);
            paper[c] = between(p, 0, 255);
            contrast += fabs(ink[c] - paper[c]);
        }
    } while (contrast < 200);
}

/* out is (3, size, size) */
static void paint(painter *p, int32_t label, uint8_t *out)
{
    double ink[3], paper[3], stray_ink[3], unused[3], slope[2];
    segment stray[3];
    place_glyph(p, glyphs[label]);
    choose_colours(p, ink, paper);
    choose_colours(p, stray_ink, unused);
    double half = p->size * between(p, 0.025, 0.055), thin = p->size * between(p, 0.01, 0.025);
    int strays = (int)between(p, 0, 3.999);
    for (int k = 0; k < strays; k++)
        stray[k] = (segment){between(p, 0, p->size), between(p, 0, p->size), between(p, 0, p->size),
                             between(p, 0, p->size)};
    slope[0] = between(p, -40, 40) / p->size;
    slope[1] = between(p, -40, 40) / p->size;
    for (int32_t y = 0; y < p->size; y++)
        for (int32_t x = 0; x < p->size; x++) {
            double px = x + 0.5, py = y + 0.5;
            double glyph = cover(p->strokes, p->count, px, py, half);
            double line = strays ? 0.8 * cover(stray, strays, px, py, thin) : 0;
            double light = slope[0] * (x - p->size / 2.0) + slope[1] * (y - p->size / 2.0);
            uint64_t grain = dro__random(p->seed, p->stream, p->counter++);
            for (int c = 0; c < 3; c++, grain >>= 20) {
                double value = paper[c] + light;
                value += line * (stray_ink[c] - value);
                value += glyph * (ink[c] - value);
                value +=
                    p->noise * ((double)(grain & 1023) + (double)(grain >> 10 & 1023) - 1023) / 4;
                out[(c * p->size + y) * p->size + x] = (uint8_t)(value < 0     ? 0
                                                                 : value > 255 ? 255
                                                                               : value);
            }
        }
}

static dro_status make_split(dro_data *d, int split, int64_t n, uint64_t seed, double noise)
{
    dro__table *t = &d->split[split];
    size_t bytes = (size_t)d->height * (size_t)d->width * 3;
    uint64_t most = dro__machine_memory() / 2;
    if ((uint64_t)n > most / bytes)
        return dro__fail(d->ctx, DRO_ERR_MEMORY,
                         "%lld images of %d x %d: expected at most %llu, which take half of the "
                         "available memory",
                         (long long)n, d->width, d->height, (unsigned long long)(most / bytes));
    t->labels = dro__alloc((size_t)n, sizeof *t->labels);
    t->pixels = dro__alloc((size_t)n, bytes);
    if (!t->labels || !t->pixels)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for %lld images of %d x %d",
                         (long long)n, d->width, d->height);
    t->n = n;
    for (int64_t i = 0; i < n; i++) {
        painter p = {.seed = seed,
                     .stream = (uint64_t)i * 2 + (uint64_t)split,
                     .size = d->width,
                     .noise = noise};
        t->labels[i] = (int32_t)(i % d->classes);
        paint(&p, t->labels[i], t->pixels + (size_t)i * bytes);
    }
    return DRO_OK;
}

static dro_status open_synth(dro_data *d)
{
    int64_t classes, size, n, test, seed;
    double noise;
    if (strcmp(d->spec.path, "glyphs") != 0)
        return dro__fail(d->ctx, DRO_ERR_NAME, "synth:%.40s: expected synth:glyphs", d->spec.path);
    DRO_TRY(dro__option_integer(d, "classes", 10, 2, CLASSES_MAX, &classes));
    DRO_TRY(dro__option_integer(d, "size", 32, 8, SIZE_MAX_PIXELS, &size));
    DRO_TRY(dro__option_integer(d, "n", 5000, 1, 10000000, &n));
    DRO_TRY(dro__option_integer(d, "test", 1000, 1, 10000000, &test));
    DRO_TRY(dro__option_integer(d, "seed", 1, 0, INT64_MAX, &seed));
    DRO_TRY(dro__option_real(d, "noise", 0.1, 0, 1, &noise));
    d->kind = DRO_DATA_PIXELS;
    d->channels = 3;
    d->height = d->width = (int32_t)size;
    d->classes = (int32_t)classes;
    d->class_names = dro__alloc((size_t)classes, sizeof *d->class_names);
    for (int32_t k = 0; d->class_names && k < d->classes; k++) {
        d->class_names[k] = dro__alloc(2, 1);
        if (!d->class_names[k])
            return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for class names");
        d->class_names[k][0] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[k];
    }
    if (!d->class_names)
        return dro__fail(d->ctx, DRO_ERR_MEMORY, "no memory for class names");
    DRO_TRY(make_split(d, DRO_TRAIN, n, (uint64_t)seed, noise));
    return make_split(d, DRO_TEST, test, (uint64_t)seed, noise);
}

static const char *const options[] = {"classes", "size", "n", "test", "noise", NULL};

const dro__format dro__format_synth = {
    .name = "synth",
    .usage = "glyphs[,classes=10][,size=32][,n=5000][,test=1000][,noise=0.1][,seed=1]",
    .summary = "synthetic images of characters, generated from a seed; needs no files",
    .options = options,
    .open = open_synth,
};
