/* Reading JSON that may hold anything: what is missing or of another kind is NaN, NULL or left
 * alone. */
#ifndef DRO_TRAIN_REPORT_JSON_H
#define DRO_TRAIN_REPORT_JSON_H

#if DRO_WITH_JANSSON
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* What is at the path "a.b.c"; "" is the object itself. */
const json_t *dro__json_at(const json_t *object, const char *path);
double dro__json_number(const json_t *object, const char *path); /* finite, or NaN */
/* A text or a number, as text to dro__free(), or NULL. */
char *dro__json_text(const json_t *object, const char *path);
/* The same into *text, which is left alone when there is none. */
void dro__json_set_text(char **text, const json_t *object, const char *path);
/* An array of numbers into *values; what is not a number in it is NaN. */
void dro__json_set_numbers(double **values, int32_t *count, const json_t *object, const char *path);
/* An object from one line, or NULL. NaN and infinities, which some writers leave in, are let pass;
 * the line may be changed. */
json_t *dro__json_line(char *line, size_t size);
#endif

#endif
