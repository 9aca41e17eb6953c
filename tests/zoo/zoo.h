/* The zoo: awkward data sets, made up from a seed. `zoo` lists them, `zoo NAME SEED DIR` writes one
 * into a folder:
 *
 *     about.json    the SPEC (relative to the folder), which columns are categories, what to
 *                   compare
 *     train.* test.*    what dro reads
 *     peer_train.npy peer_test.npy    the same numbers for scikit-learn: float64, the label last,
 *                                     NaN where missing
 *
 * Everything is a function of the name and the seed. */
#ifndef DRO_ZOO_H
#define DRO_ZOO_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* ---- random numbers: splitmix64 ---- */

typedef struct zoo_random {
    uint64_t state;
} zoo_random;
uint64_t zoo_bits(zoo_random *r);
double zoo_uniform(zoo_random *r); /* in (0, 1) */
double zoo_normal(zoo_random *r);
/* Of a name and two numbers. */
zoo_random zoo_seeded(const char *name, uint64_t seed, uint64_t stream);

/* ---- files ---- */

FILE *zoo_create(const char *folder, const char *name);
void zoo_close(FILE *file);
/* The head of a .npy file; shape without brackets, "3, 4". */
void zoo_npy(FILE *file, const char *type, const char *shape);

/* ---- the two kinds ---- */

int zoo_table(const char *name, uint64_t seed,
              const char *folder); /* 0: there is none of this name */
int zoo_images(const char *name, uint64_t seed, const char *folder);
void zoo_list_tables(void);
void zoo_list_images(void);

#endif
