/* image_files: what the formats of image files share: tables of paths, and loading small ones. */
#ifndef DRO_IMAGE_FILES_H
#define DRO_IMAGE_FILES_H

#include "data.h"

/* Names of the options that dro__files_open reads, for the lists of options. */
#define DRO__FILES_OPTIONS "channels", "size"

/* Adds paths to an empty table. */
typedef struct dro__files {
    dro__table *table;
    const char *dir; /* the folder of the names to come; "": they are paths */
    size_t text_capacity, place_capacity, label_capacity, record_capacity;
} dro__files;

/* dir/name, name of `length` characters. record: its place in the source. */
dro_status dro__files_add(dro_context *ctx, dro__files *files, const char *name, size_t length,
                          int64_t record, int32_t label);

/* Why a path out of a file may not be used below a root ("is absolute", ...), or NULL. */
const char *dro__path_refused(const char *path, size_t length);

/* All bytes of an image's file, freed with dro__free; *fetched of them are read from the disk. */
dro_status dro__files_read(dro_context *ctx, const char *path, char **bytes, size_t *size,
                           uint64_t *fetched);

/* The option root=, a folder that is there. */
dro_status dro__files_root(const dro_data *data, const char **root);
/* After a failure with image i of a table: adds to the error where the list names it. Returns
 * status. */
dro_status dro__files_name_error(const dro_data *data, dro_context *ctx, const dro__table *table,
                                 int64_t i, dro_status status);

/* After the tables hold paths and labels: kind and shape by the options channels and size; with
 * size the images are decoded into memory, and up to skip_bad bad ones dropped. */
dro_status dro__files_open(dro_data *data);

/* The median over a few training images in files of their shorter side; 0 if none can be read. */
int32_t dro__files_side(dro_data *data);

/* The parsers, for the formats and the fuzz targets. */
dro_status dro__list_read(dro_data *data, dro__input *input, const char *root, dro_split split);
/* Adds the examples of a COCO-style file to the training set, and of a second one (or NULL) to the
 * test set. */
dro_status dro__inat_read(dro_data *data, dro__input *train, dro__input *test, const char *root);

#endif
