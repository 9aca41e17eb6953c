/* The zoo's program: lists the data sets, or writes one (zoo.h). */
#include "zoo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t zoo_bits(zoo_random *r)
{
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double zoo_uniform(zoo_random *r)
{
    return ((double)(zoo_bits(r) >> 11) + 0.5) * 0x1p-53;
}

double zoo_normal(zoo_random *r)
{
    double a = zoo_uniform(r), b = zoo_uniform(r);
    return sqrt(-2 * log(a)) * cos(6.283185307179586 * b);
}

zoo_random zoo_seeded(const char *name, uint64_t seed, uint64_t stream)
{
    zoo_random r = {seed * 0x2545f4914f6cdd1du + stream};
    for (; *name; name++)
        r.state = (r.state ^ (unsigned char)*name) * 0x100000001b3u;
    zoo_bits(&r);
    return r;
}

FILE *zoo_create(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    if (!f) {
        fprintf(stderr, "zoo: cannot write %s\n", path);
        exit(1);
    }
    return f;
}

void zoo_close(FILE *file)
{
    if (fclose(file) != 0) {
        fprintf(stderr, "zoo: cannot write\n");
        exit(1);
    }
}

void zoo_npy(FILE *file, const char *type, const char *shape)
{
    char head[128];
    snprintf(head, sizeof head, "{'descr': '%s', 'fortran_order': False, 'shape': (%s,), }", type,
             shape);
    if (strchr(shape, ','))
        snprintf(head, sizeof head, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                 type, shape);
    fprintf(file, "\x93NUMPY%c%c%c%c%-117s\n", 1, 0, 118, 0, head);
}

int main(int argc, char **argv)
{
    if (argc == 1) {
        zoo_list_tables();
        zoo_list_images();
        return 0;
    }
    if (argc != 4) {
        fprintf(stderr, "usage: zoo [NAME SEED DIR]\n");
        return 2;
    }
    uint64_t seed = strtoull(argv[2], NULL, 10);
    if (!zoo_table(argv[1], seed, argv[3]) && !zoo_images(argv[1], seed, argv[3])) {
        fprintf(stderr, "zoo: no data set '%s'; `zoo` lists them\n", argv[1]);
        return 2;
    }
    return 0;
}
