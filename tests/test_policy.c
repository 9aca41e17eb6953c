/* The operations of AutoAugment and RandAugment beside torchvision's (refs/policy.txt), what the
 * policies draw, cutout, and how they go together in the loader. */
#include "augment.h"
#include "check.h"
#include "pixels.h"

#include <dro/dro.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE = 16384, PIXELS = 4096, CASES = 184 };

static const char *const names[DRO__CHANGES] = {
    "ShearX",     "ShearY",       "TranslateX", "TranslateY", "Rotate",
    "Brightness", "Color",        "Contrast",   "Sharpness",  "Posterize",
    "Solarize",   "AutoContrast", "Equalize",   "Identity",   "Invert"};

static dro__change change_of(const char *name)
{
    for (int k = 0; k < DRO__CHANGES; k++)
        if (strcmp(names[k], name) == 0)
            return (dro__change)k;
    fail_msg("no operation is called %s", name);
    return DRO__IDENTITY;
}

static FILE *open_refs(void)
{
    FILE *f = fopen(DRO_TEST_DIR "/refs/policy.txt", "r");
    assert_non_null(f);
    return f;
}

static void from_hex(const char *text, size_t count, uint8_t *to)
{
    for (size_t k = 0; k < count; k++) {
        unsigned byte;
        assert_int_equal(sscanf(text + 2 * k, "%2x", &byte), 1);
        to[k] = (uint8_t)byte;
    }
}

/* Channels behind each other become channels beside each other, and back. */
static void interleave(const uint8_t *from, int channels, int area, bool back, uint8_t *to)
{
    for (int c = 0; c < channels; c++)
        for (int i = 0; i < area; i++)
            to[back ? c * area + i : i * channels + c] =
                from[back ? i * channels + c : c * area + i];
}

static void run_case(const dro__pixels *shape, const uint8_t *image, const dro_operation *o,
                     bool interleaved, uint8_t *out)
{
    int area = shape->height * shape->width;
    uint8_t one[PIXELS], two[PIXELS];
    dro__pixel_tables tables;
    dro_operation all[DRO_OPERATIONS] = {*o};
    dro__pixels k = *shape;
    k.p = one, k.spare = two;
    k.step = interleaved ? k.channels : 1, k.plane = interleaved ? 1 : area;
    if (interleaved)
        interleave(image, k.channels, area, false, one);
    else
        memcpy(one, image, (size_t)(area * k.channels));
    dro__pixels_change(&k, &tables, all);
    if (interleaved)
        interleave(k.p, k.channels, area, true, out);
    else
        memcpy(out, k.p, (size_t)(area * k.channels));
}

/* Bytes are torchvision's. Where it computes in floating point and truncates (blends and
 * autocontrast), at most one byte in twenty may be 1 off. */
static void test_operations(void **state)
{
    (void)state;
    char *line = malloc(LINE), *hex = malloc(LINE), name[32];
    uint8_t image[PIXELS], expected[PIXELS], got[2][PIXELS];
    dro__pixels shape = {0};
    double magnitude;
    int cases = 0, tried[DRO__CHANGES] = {0};
    FILE *f = open_refs();
    while (fgets(line, LINE, f)) {
        int size = shape.channels * shape.height * shape.width, off = 0, worst = 0;
        if (sscanf(line, "image %d %d %d %s", &shape.height, &shape.width, &shape.channels, hex) ==
            4)
            from_hex(hex, (size_t)(shape.channels * shape.height * shape.width), image);
        if (sscanf(line, "case %31s %lf %s", name, &magnitude, hex) != 3)
            continue;
        dro__change change = change_of(name);
        dro_operation o = dro__operation_of(change, magnitude, shape.height, shape.width);
        from_hex(hex, (size_t)size, expected);
        run_case(&shape, image, &o, false, got[0]);
        run_case(&shape, image, &o, true, got[1]);
        assert_memory_equal(got[0], got[1], (size_t)size);
        for (int k = 0; k < size; k++) {
            int far = abs(got[0][k] - expected[k]);
            worst = far > worst ? far : worst, off += far > 0;
        }
        bool rounds =
            (change >= DRO__BRIGHTNESS && change <= DRO__SHARPNESS) || change == DRO__AUTOCONTRAST;
        if (worst > (rounds ? 1 : 0) || 20 * off > size)
            fail_msg("%s %g: %d of %d bytes are off, by at most %d", name, magnitude, off, size,
                     worst);
        cases++, tried[change]++;
    }
    for (int k = 0; k < DRO__CHANGES; k++)
        assert_true(tried[k] > 0);
    assert_int_equal(cases, CASES);
    fclose(f);
    free(line);
    free(hex);
}

/* ---- what is drawn ---- */

enum { OUTCOMES = 400, DRAWS = 200000 };

typedef struct outcome {
    dro_operation operations[2];
    double share;
    int seen;
} outcome;

static bool close_to(const dro_operation *a, const dro_operation *b)
{
    bool same = a->kind == b->kind;
    for (int k = 0; k < 6; k++) /* torchvision's magnitudes are floats */
        same = same && abs(a->p[k] - b->p[k]) <= 1;
    return same;
}

static outcome *find(outcome *all, int *count, const dro_operation *operations)
{
    for (int k = 0; k < *count; k++)
        if (close_to(&all[k].operations[0], &operations[0]) &&
            close_to(&all[k].operations[1], &operations[1]))
            return &all[k];
    assert_true(*count < OUTCOMES);
    all[*count] = (outcome){.operations = {operations[0], operations[1]}};
    return &all[(*count)++];
}

typedef struct choice {
    char name[32];
    double probability, magnitude;
    int has_sign;
} choice;

/* Way k of four: not done or done, negative or positive. */
static double way_of(const choice *c, int k, dro_operation *o)
{
    bool done = k & 1, negative = k & 2;
    double magnitude = negative && c->has_sign ? -c->magnitude : c->magnitude;
    *o = done ? dro__operation_of(change_of(c->name), magnitude, 24, 32) : (dro_operation){0};
    return 0.5 * (done ? c->probability : 1 - c->probability);
}

/* Draws of many images have the frequencies of the list, and nothing else is drawn. */
static void check_draws(outcome *all, int count, const dro__augment_random *settings)
{
    int known = count;
    for (uint64_t k = 0; k < DRAWS; k++) {
        dro__augment_random random = *settings;
        random.seed = 7, random.stream = k;
        dro_cut cut = dro__cut_of(&random, 24, 32);
        assert_int_equal(cut.operations[2].kind, 0);
        find(all, &count, cut.operations)->seen++;
    }
    assert_int_equal(count, known);
    for (int k = 0; k < count; k++) {
        double mean = all[k].share * DRAWS, sigma = sqrt(mean * (1 - all[k].share));
        if (fabs(all[k].seen - mean) > 5 * sigma + 1e-9)
            fail_msg("outcome %d: drawn %d times, expected %.0f", k, all[k].seen, mean);
    }
}

static void test_autoaugment(void **state)
{
    (void)state;
    outcome *all = calloc(OUTCOMES, sizeof *all);
    char *line = malloc(LINE);
    int count = 0, policies = 0;
    choice c[2];
    dro_operation o[2];
    FILE *f = open_refs();
    while (fgets(line, LINE, f)) {
        if (sscanf(line, "policy %31s %lf %lf %d %31s %lf %lf %d", c[0].name, &c[0].probability,
                   &c[0].magnitude, &c[0].has_sign, c[1].name, &c[1].probability, &c[1].magnitude,
                   &c[1].has_sign) != 8)
            continue;
        policies++;
        for (int k = 0; k < 16; k++) {
            double share = way_of(&c[0], k % 4, &o[0]) * way_of(&c[1], k / 4, &o[1]) / 25;
            if (share > 0)
                find(all, &count, o)->share += share;
        }
    }
    assert_int_equal(policies, 25);
    check_draws(all, count, &(dro__augment_random){.ways = DRO_AUGMENT_AUTOAUGMENT});
    fclose(f);
    free(line);
    free(all);
}

static void test_randaugment(void **state)
{
    (void)state;
    outcome *all = calloc(OUTCOMES, sizeof *all);
    char *line = malloc(LINE);
    for (int bin = 9; bin <= 20; bin += 11) {
        int count = 0, listed = 0, own;
        choice c = {.probability = 1};
        dro_operation o[2] = {{0}};
        FILE *f = open_refs();
        while (fgets(line, LINE, f)) {
            if (sscanf(line, "random %d %31s %lf %d", &own, c.name, &c.magnitude, &c.has_sign) !=
                    4 ||
                own != bin)
                continue;
            listed++;
            for (int k = 1; k < 4; k += 2) {
                double share = way_of(&c, k, &o[0]) / 14;
                find(all, &count, o)->share += share;
            }
        }
        assert_int_equal(listed, 14);
        check_draws(all, count,
                    &(dro__augment_random){
                        .ways = DRO_AUGMENT_RANDAUGMENT, .operations = 1, .magnitude = bin});
        memset(all, 0, OUTCOMES * sizeof *all);
        fclose(f);
    }
    free(line);
    free(all);
}

/* The second operation does not depend on the first. */
static void test_independent(void **state)
{
    (void)state;
    enum { KINDS = DRO__PIXELS_INVERT + 1 };
    static int seen[KINDS][KINDS], first[KINDS], second[KINDS];
    for (uint64_t k = 0; k < DRAWS; k++) {
        dro__augment_random random = {.seed = 3,
                                      .stream = k,
                                      .ways = DRO_AUGMENT_RANDAUGMENT,
                                      .operations = 2,
                                      .magnitude = 9};
        dro_cut cut = dro__cut_of(&random, 32, 32);
        int a = cut.operations[0].kind, b = cut.operations[1].kind;
        seen[a][b]++, first[a]++, second[b]++;
    }
    for (int a = 0; a < KINDS; a++)
        for (int b = 0; b < KINDS; b++) {
            double mean = (double)first[a] * second[b] / DRAWS;
            assert_true(fabs(seen[a][b] - mean) <= 5 * sqrt(mean) + 1e-9);
        }
}

/* The square is as large as it was set, less what lies outside, and its centre is anywhere. */
static void test_cutout(void **state)
{
    (void)state;
    enum { HEIGHT = 20, WIDTH = 30 };
    static const int sizes[] = {0, 7, 100};
    for (int s = 0; s < 3; s++) {
        int covered[HEIGHT][WIDTH] = {{0}}, side = sizes[s] ? sizes[s] : HEIGHT / 2, whole = 0;
        for (uint64_t k = 0; k < 20000; k++) {
            dro__augment_random random = {
                .seed = 5, .stream = k, .ways = DRO_AUGMENT_CUTOUT, .cutout = sizes[s]};
            dro_box box = dro__cut_of(&random, HEIGHT, WIDTH).erased;
            assert_true(box.left >= 0 && box.top >= 0 && box.right <= WIDTH &&
                        box.bottom <= HEIGHT);
            assert_true(box.right > box.left && box.right - box.left <= side);
            assert_true(box.bottom > box.top && box.bottom - box.top <= side);
            whole += box.right - box.left == side && box.bottom - box.top == side;
            for (int y = box.top; y < box.bottom; y++)
                for (int x = box.left; x < box.right; x++)
                    covered[y][x]++;
        }
        if (side < HEIGHT) { /* a pixel in the middle is covered by any of side^2 centres */
            double share = (double)(side * side) / (HEIGHT * WIDTH);
            assert_true(fabs(covered[HEIGHT / 2][WIDTH / 2] / 20000.0 - share) < 0.02);
            double inside = (double)((HEIGHT - side + 1) * (WIDTH - side + 1)) / (HEIGHT * WIDTH);
            assert_true(fabs(whole / 20000.0 - inside) < 0.02);
            assert_true(covered[0][0] > 0 && covered[HEIGHT - 1][WIDTH - 1] > 0);
        }
    }
}

/* ---- in the loader ---- */

enum { SIDE = 16, IMAGE = 3 * SIDE * SIDE, BATCH = 50 };

#define GLYPHS "synth:glyphs,n=400,test=10,size=16"

static const unsigned all_ways =
    DRO_AUGMENT_CROP | DRO_AUGMENT_FLIP | DRO_AUGMENT_AUTOAUGMENT | DRO_AUGMENT_CUTOUT;

static dro_loader *make_loader(dro_context *ctx, dro_data *data, const dro_loader_options *like,
                               bool cuts)
{
    dro_loader_options o = *like;
    dro_loader *loader = NULL;
    o.batch = BATCH, o.augment = true, o.cuts = cuts;
    OK(ctx, dro_loader_create(data, DRO_TRAIN, &o, &loader));
    return loader;
}

/* A small image by hand: crop, flip, operations, normalise, cutout. */
static void by_hand(const dro__normal *normal, const uint8_t *from, const dro_cut *cut, float *out)
{
    uint8_t bytes[IMAGE], spare[IMAGE];
    dro__pixel_tables tables;
    for (int k = 0; k < IMAGE; k++) {
        int y = k / SIDE % SIDE + cut->down, x = k % SIDE;
        x = (cut->mirror ? SIDE - 1 - x : x) + cut->right;
        bool inside = y >= 0 && y < SIDE && x >= 0 && x < SIDE;
        bytes[k] = inside ? from[(k / SIDE / SIDE * SIDE + y) * SIDE + x] : 0;
    }
    dro__pixels image = {bytes, spare, 3, SIDE, SIDE, 1, SIDE * SIDE};
    dro__pixels_change(&image, &tables, cut->operations);
    for (int k = 0; k < IMAGE; k++) {
        int c = k / SIDE / SIDE, y = k / SIDE % SIDE, x = k % SIDE;
        bool erased = y >= cut->erased.top && y < cut->erased.bottom && x >= cut->erased.left &&
                      x < cut->erased.right;
        out[k] = erased ? 0 : (float)image.p[k] * normal->scale[c] + normal->shift[c];
    }
}

static void test_loaded(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro_data *data = NULL;
    dro_examples e;
    dro_loaded made, told;
    float expected[IMAGE];
    int changed = 0;
    OK(ctx, dro_data_open(ctx, GLYPHS, &data));
    OK(ctx, dro_data_examples(data, DRO_TRAIN, &e));
    dro__normal normal = dro__normal_of(data);
    dro_loader_options o = dro_loader_options_default();
    o.ways = all_ways;
    dro_loader *maker = make_loader(ctx, data, &o, false),
               *teller = make_loader(ctx, data, &o, true);
    for (uint64_t batch = 0; batch < 10; batch++) {
        OK(ctx, dro_loader_draw(maker, batch * BATCH, &made));
        OK(ctx, dro_loader_draw(teller, batch * BATCH, &told));
        for (size_t i = 0; i < BATCH; i++) {
            by_hand(&normal, e.pixels + told.ids[i] * IMAGE, &told.cuts[i], expected);
            for (size_t k = 0; k < IMAGE; k++)
                assert_true(fabsf(made.pixels[i * IMAGE + k] - expected[k]) < 1e-5f);
            changed += told.cuts[i].operations[0].kind || told.cuts[i].operations[1].kind;
        }
    }
    assert_in_range(changed, 350, 490); /* about 0.8 of them */
    dro_loader_destroy(maker);
    dro_loader_destroy(teller);
    dro_data_close(data);
    dro_context_destroy(ctx);
}

static uint64_t sum_of_batches(dro_context *ctx, const char *spec, const dro_loader_options *o,
                               uint64_t from)
{
    dro_data *data = NULL;
    dro_loaded b;
    int32_t channels, height, width;
    uint64_t hash = 0;
    OK(ctx, dro_data_open(ctx, spec, &data));
    dro_loader *loader = make_loader(ctx, data, o, false);
    dro_loader_shape(loader, &channels, &height, &width);
    for (uint64_t k = from; k < 12; k++) {
        OK(ctx, dro_loader_draw(loader, k * BATCH, &b));
        hash = k <= 6 ? 0 : hash; /* of the last six */
        hash = dro__checksum(hash, b.pixels,
                             BATCH * (size_t)(channels * height * width) * sizeof *b.pixels);
    }
    dro_loader_destroy(loader);
    dro_data_close(data);
    return hash;
}

/* The same pixels with any number of threads and after a restart; images from files too. */
static void test_repeatable(void **state)
{
    (void)state;
    char list[] = "/tmp/dro_policy_XXXXXX", files[200];
    const char *const specs[] = {GLYPHS, files};
    FILE *f = fdopen(mkstemp(list), "w");
    assert_non_null(f);
    for (int k = 0; k < 30; k++)
        fputs("noise.ppm 0\np3.ppm 1\np6.ppm 1\n", f);
    fclose(f);
    snprintf(files, sizeof files, "list:%s,root=" DRO_TEST_DIR "/refs/images", list);
    dro_context *ctx = check_context("ref", 1);
    for (int s = 0; s < 2; s++)
        for (int k = 0; k < 2; k++) {
            dro_loader_options o = dro_loader_options_default();
            o.size = 24;
            o.ways = k ? all_ways : DRO_AUGMENT_RANDAUGMENT | DRO_AUGMENT_CUTOUT;
            o.threads = 1;
            uint64_t one = sum_of_batches(ctx, specs[s], &o, 0), plain;
            assert_true(sum_of_batches(ctx, specs[s], &o, 6) == one);
            o.threads = 4;
            assert_true(sum_of_batches(ctx, specs[s], &o, 0) == one);
            assert_true(sum_of_batches(ctx, specs[s], &o, 3) == one);
            o.seed = 2;
            assert_true(sum_of_batches(ctx, specs[s], &o, 6) != one);
            o.seed = 1, o.ways &= ~(unsigned)DRO_AUGMENT_CUTOUT;
            plain = sum_of_batches(ctx, specs[s], &o, 6);
            assert_true(plain != one);
        }
    remove(list);
    dro_context_destroy(ctx);
}

static void test_refused(void **state)
{
    (void)state;
    dro_context *ctx = check_context("ref", 1);
    dro_data *data = NULL;
    dro_loader *loader;
    OK(ctx, dro_data_open(ctx, GLYPHS, &data));
    dro_loader_options o = dro_loader_options_default();
    o.batch = 10, o.augment = true, o.ways = DRO_AUGMENT_RANDAUGMENT | DRO_AUGMENT_AUTOAUGMENT;
    FAILS(ctx, dro_loader_create(data, DRO_TRAIN, &o, &loader), DRO_ERR_RANGE,
          "choose randaugment or autoaugment");
    o.ways = DRO_AUGMENT_RANDAUGMENT, o.operations = 4;
    FAILS(ctx, dro_loader_create(data, DRO_TRAIN, &o, &loader), DRO_ERR_RANGE, "1 to 3 operations");
    o.operations = 2, o.magnitude = 31;
    FAILS(ctx, dro_loader_create(data, DRO_TRAIN, &o, &loader), DRO_ERR_RANGE, "0 to 30");
    o.magnitude = 9, o.cutout = -1;
    FAILS(ctx, dro_loader_create(data, DRO_TRAIN, &o, &loader), DRO_ERR_RANGE, "cutout");
    dro_data_close(data);
    dro_context_destroy(ctx);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_operations),  cmocka_unit_test(test_autoaugment),
    cmocka_unit_test(test_randaugment), cmocka_unit_test(test_independent),
    cmocka_unit_test(test_cutout),      cmocka_unit_test(test_loaded),
    cmocka_unit_test(test_repeatable),  cmocka_unit_test(test_refused)};

CHECK_MAIN(tests)
