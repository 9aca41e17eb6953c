/* Cells of examples as text (dro_data_cells()): what cells.c and a format share. */
#ifndef DRO_DATA_CELLS_H
#define DRO_DATA_CELLS_H

#include "data.h"

/* An example that is looked for: its record in the file, and its place among those asked for. */
typedef struct dro__wanted {
    int64_t record;
    size_t place;
} dro__wanted;

typedef struct dro__cells {
    dro_cells out; /* first, so that it is this */
    dro_context *ctx;
    size_t most; /* columns */
    char *text;  /* all names and cells, each ended by a zero */
    size_t used, capacity;
    size_t *starts; /* (columns + count columns) where each begins in text */
} dro__cells;

/* Sets how many columns there are, of which at most `most` are kept; once, before any text. */
dro_status dro__cells_begin(dro__cells *cells, size_t columns);
/* Long texts are shortened. */
dro_status dro__cells_name(dro__cells *cells, size_t column, const char *text);
dro_status dro__cells_put(dro__cells *cells, size_t place, size_t column, const char *text);

#endif
