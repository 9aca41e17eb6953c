/* Text that grows, and what is safe to write into HTML and SVG. A failed allocation is remembered:
 * later text is dropped, and whoever writes the file checks `failed`. */
#ifndef DRO_BUFFER_H
#define DRO_BUFFER_H

#include "base.h"

typedef struct dro__buffer {
    char *bytes; /* NUL-terminated once something was added */
    size_t size, capacity;
    bool failed;
} dro__buffer;

void dro__buffer_free(dro__buffer *buffer);
void dro__buffer_bytes(dro__buffer *buffer, const void *bytes, size_t size);
void dro__buffer_add(dro__buffer *buffer, const char *text);
void dro__buffer_print(dro__buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Text inside an element or an attribute: < > & and quotes are named, what is not UTF-8 and control
 * characters become U+FFFD. */
void dro__buffer_escape(dro__buffer *buffer, const char *text);
/* The same, cut to at most `letters` letters with an ellipsis. */
void dro__buffer_escape_cut(dro__buffer *buffer, const char *text, int letters);
/* Something that looks the same in a file's name and in an id: letters, digits, dashes. */
void dro__buffer_slug(dro__buffer *buffer, const char *text);

/* How many letters; a byte that is not UTF-8 counts as one. */
int dro__utf8_count(const char *text);

/* A copy, NULL when there is no memory. dro__free() it. */
char *dro__copy_text(const char *text);

/* Numbers for people: */
enum { DRO__NUMBER = 32 };
const char *dro__show_share(char out[DRO__NUMBER], double value); /* 0.8312 -> "83.1" */
const char *dro__show_real(char out[DRO__NUMBER], double value);  /* 4 digits, "-" if not finite */
const char *dro__show_count(char out[DRO__NUMBER],
                            double value); /* 12000 -> "12 000" (thin spaces) */
const char *dro__show_short(char out[DRO__NUMBER], double value); /* 12000 -> "12k" */
const char *dro__show_time(char out[DRO__NUMBER],
                           double seconds); /* "8.1 s", "2 min 5 s", "3 h 2 min" */

/* Writes a temporary file in the same folder and renames it, so that the file is either the old or
 * the new one. A link stays: its target is replaced. A device or a pipe stays, and is written
 * to. */
dro_status dro__write_file(dro_context *ctx, const char *path, const void *bytes, size_t size);

#endif
