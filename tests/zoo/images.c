/* Images: strokes, blobs and colours of a class, moved about and with noise over them. */
#include "zoo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef enum subject {
    FIELDS, /* a smooth random pattern for each class */
    ARROWS, /* left, right, up, down: mirrored they are another class */
    TINTS   /* one colour, which is the class */
} subject;

typedef struct picture {
    const char *name, *about;
    subject subject;
    int classes, per_class, test_per_class, height, width, channels;
    bool files; /* PPM files in folders, each of a size of its own; otherwise arrays of NumPy */
} picture;

static const picture pictures[] = {
    {"tiny-grey", "8 x 8, grey, 10 classes", FIELDS, 10, 60, 50, 8, 8, 1, false},
    {"two", "24 x 24, 2 classes", FIELDS, 2, 200, 250, 24, 24, 3, false},
    {"many", "12 x 12, 500 classes", FIELDS, 500, 10, 2, 12, 12, 3, false},
    {"arrows", "20 x 20, grey: direction is the class", ARROWS, 4, 120, 125, 20, 20, 1, false},
    {"tints", "16 x 16: colour is the class", TINTS, 6, 60, 80, 16, 16, 3, false},
    {"flat", "10 x 40, odd aspect", FIELDS, 5, 100, 100, 10, 40, 1, false},
    {"large", "96 x 96, 10 classes", FIELDS, 10, 30, 20, 96, 96, 3, false},
    {"files", "files of 40 to 300 pixels", FIELDS, 3, 40, 40, 64, 48, 3, true},
};

enum { COUNT_PICTURES = sizeof pictures / sizeof pictures[0] };

static unsigned char byte_of(double v)
{
    return v < 0 ? 0 : v > 255 ? 255 : (unsigned char)v;
}

/* A sum of a few waves, the same for all images of a class. */
static double field(zoo_random r, double x, double y)
{
    double sum = 0;
    for (int k = 0; k < 5; k++) {
        double a = 3 * zoo_normal(&r), b = 3 * zoo_normal(&r), phase = 6.28 * zoo_uniform(&r);
        sum += cos(a * x + b * y + phase);
    }
    return sum / 2;
}

/* A shaft and a head, pointing to the right; turned by quarters. */
static double arrow(int turn, double x, double y)
{
    double u = turn == 0 ? x : turn == 1 ? -x : turn == 2 ? y : -y;
    double v = turn < 2 ? y : x;
    bool shaft = fabs(v) < 0.12 && u > -0.7 && u < 0.3;
    bool head = u > 0.1 && u < 0.7 && fabs(v) < 0.7 - u;
    return shaft || head ? 1 : -1;
}

static double intensity(const picture *p, uint64_t seed, int label, int channel, double x, double y)
{
    if (p->subject == ARROWS)
        return arrow(label, x, y);
    zoo_random r = zoo_seeded(p->name, seed, 100 + (uint64_t)label * 3 + (uint64_t)channel);
    if (p->subject == TINTS)
        return 1.5 * zoo_normal(&r);
    return field(r, 2 * x, 2 * y);
}

/* (height, width, channels) */
static void paint(const picture *p, uint64_t seed, int label, zoo_random *r, int h, int w,
                  unsigned char *out)
{
    double left = 0.3 * zoo_normal(r), top = 0.3 * zoo_normal(r), light = 20 * zoo_normal(r);
    left = fmax(-0.5, fmin(0.5, left)), top = fmax(-0.5, fmin(0.5, top));
    for (int i = 0; i < h; i++)
        for (int j = 0; j < w; j++)
            for (int c = 0; c < p->channels; c++) {
                double y = 2.4 * (i + 0.5) / h - 1.2 + top, x = 2.4 * (j + 0.5) / w - 1.2 + left;
                double v = intensity(p, seed, label, c, x, y);
                out[(i * w + j) * p->channels + c] =
                    byte_of(128 + light + 45 * v + 40 * zoo_normal(r));
            }
}

static void write_arrays(const picture *p, uint64_t seed, const char *folder, bool test)
{
    int n = p->classes * (test ? p->test_per_class : p->per_class);
    size_t size = (size_t)(p->height * p->width * p->channels);
    unsigned char *image = malloc(size);
    zoo_random r = zoo_seeded(p->name, seed, test ? 4 : 3);
    FILE *x = zoo_create(folder, test ? "test.npy" : "train.npy");
    FILE *y = zoo_create(folder, test ? "test_y.npy" : "train_y.npy");
    char shape[80];
    snprintf(shape, sizeof shape, "%d, %d, %d, %d", n, p->height, p->width, p->channels);
    zoo_npy(x, "|u1", shape);
    snprintf(shape, sizeof shape, "%d", n);
    zoo_npy(y, "<i4", shape);
    for (int i = 0; i < n && image; i++) {
        int32_t label = i % p->classes;
        paint(p, seed, label, &r, p->height, p->width, image);
        fwrite(image, 1, size, x);
        fwrite(&label, 4, 1, y);
    }
    free(image);
    zoo_close(x);
    zoo_close(y);
}

static void write_files(const picture *p, uint64_t seed, const char *folder, bool test)
{
    zoo_random r = zoo_seeded(p->name, seed, test ? 4 : 3);
    unsigned char *image = malloc(300 * 300 * 3);
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, test ? "test" : "train");
    mkdir(path, 0777);
    for (int label = 0; label < p->classes && image; label++) {
        snprintf(path, sizeof path, "%s/%s/class%d", folder, test ? "test" : "train", label);
        mkdir(path, 0777);
        for (int i = 0; i < (test ? p->test_per_class : p->per_class); i++) {
            int h = 40 + (int)(260 * pow(zoo_uniform(&r), 3)), w = 40 + (int)(80 * zoo_uniform(&r));
            char name[32];
            snprintf(name, sizeof name, "%03d.ppm", i);
            FILE *f = zoo_create(path, name);
            fprintf(f, "P6\n%d %d\n255\n", w, h);
            paint(p, seed, label, &r, h, w, image);
            fwrite(image, 3, (size_t)(w * h), f);
            zoo_close(f);
        }
    }
    free(image);
}

int zoo_images(const char *name, uint64_t seed, const char *folder)
{
    for (int k = 0; k < COUNT_PICTURES; k++) {
        const picture *p = &pictures[k];
        if (strcmp(p->name, name) != 0)
            continue;
        for (int test = 0; test < 2; test++)
            (p->files ? write_files : write_arrays)(p, seed, folder, test);
        FILE *f = zoo_create(folder, "about.json");
        fprintf(f, "{\"spec\": \"%s\", \"classes\": %d, \"images\": true}\n",
                p->files ? "images:.,size=32"
                         : "npy:train.npy,labels=train_y.npy,test=test.npy,test_labels=test_y.npy",
                p->classes);
        zoo_close(f);
        return 1;
    }
    return 0;
}

void zoo_list_images(void)
{
    for (int k = 0; k < COUNT_PICTURES; k++)
        printf("images %s: %s\n", pictures[k].name, pictures[k].about);
}
