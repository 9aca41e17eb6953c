/* Arrays of NumPy: one .npy (npy.c), or many in a .npz, which is a ZIP archive of them (npz.c).
 *
 *     dro__npz_open(ctx, "FILE", bytes, size, &npz);
 *     dro__npz_entry(npz, "x_train", &source);
 *     dro__npy_header(source, &head);             // type, order and shape, all checked
 *     dro__npy_floats(source, &head, &values);    // everything, in C order
 *
 * Headers are not trusted: memory grows only with the bytes that arrive, and an array that would
 * take more than half of the available memory is refused before it is read. Objects (pickles) are
 * refused. */
#ifndef DRO_NPY_H
#define DRO_NPY_H

#include "data.h"

enum { DRO__NPY_DIMS = 8 };
#define DRO__NPY_MAX ((uint64_t)1 << 34) /* values of an array */

typedef struct dro__npy_source dro__npy_source;
struct dro__npy_source {
    dro_context *ctx;
    const char *name; /* for errors */
    /* Up to size bytes; *got < size only at the end. */
    dro_status (*read)(dro__npy_source *source, void *bytes, size_t size, size_t *got);
    void *from;
    uint64_t guess; /* bytes that are likely to come */
    uint64_t size;  /* bytes in all, UINT64_MAX: not known */
    uint64_t plain; /* bytes of the plain file, the header may declare others; 0: compressed */
};

/* A source over an input; both are the caller's. */
dro__npy_source dro__npy_input(dro_context *ctx, dro__input *input, uint64_t guess);

typedef struct dro__npy {
    char kind; /* 'u', 'i', 'f' or 'b' */
    int size;  /* bytes of one value */
    bool big_endian, fortran;
    int dims;
    uint64_t shape[DRO__NPY_DIMS];
    uint64_t count; /* product of the shape */
} dro__npy;

dro_status dro__npy_header(dro__npy_source *source, dro__npy *head);
/* Whether a plain file is shorter than its header declares: it takes no more memory than it has
 * bytes, and the error of reading it says what is wrong. */
bool dro__npy_too_short(const dro__npy_source *source, const dro__npy *head);
/* "uint8 (60000, 28, 28)", for errors. */
void dro__npy_print(const dro__npy *head, char *text, size_t size);

/* The whole array in C order and the end of the file after it; free it with dro__free. Floats must
 * be finite, integers whole and within 64 bits; bytes are for uint8 only. */
dro_status dro__npy_floats(dro__npy_source *source, const dro__npy *head, float **values);
dro_status dro__npy_integers(dro__npy_source *source, const dro__npy *head, int64_t **values);
dro_status dro__npy_bytes(dro__npy_source *source, const dro__npy *head, uint8_t **values);

typedef struct dro__npz dro__npz;

/* Checks the whole directory: names unique, entries inside the file and apart from each other. The
 * bytes are borrowed until close. */
dro_status dro__npz_open(dro_context *ctx, const char *name, const void *bytes, size_t size,
                         dro__npz **npz);
void dro__npz_close(dro__npz *npz);
bool dro__npz_has(const dro__npz *npz, const char *key);
/* Writes " x y", the names of its arrays as far as they fit. */
void dro__npz_list(const dro__npz *npz, char *text, size_t size);
/* The array KEY.npy; stored or deflated, its checksum is compared at its end. */
dro_status dro__npz_entry(dro__npz *npz, const char *key, dro__npy_source **source);
void dro__npz_entry_close(dro__npy_source *source);

#endif
