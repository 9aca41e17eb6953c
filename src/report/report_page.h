/* The page of a report: its parts, in the order in which they come. */
#ifndef DRO_TRAIN_REPORT_PAGE_H
#define DRO_TRAIN_REPORT_PAGE_H

#include "report_figures.h"

/* report_style.c */
void dro__page_head(dro__buffer *out, const char *title); /* to <body> */
void dro__page_script(dro__buffer *out, int32_t methods);

/* report_results.c */
void dro__page_header(dro__buffer *out, const dro_report *report);
void dro__page_results(dro__buffer *out, const dro_report *report);

/* report_details.c */
void dro__page_runs(dro__buffer *out, const dro_report *report);
void dro__page_settings(dro__buffer *out, const dro_report *report);

/* The colour of a method, as a small square. */
void dro__page_swatch(dro__buffer *out, int32_t method);
/* The different values of a setting among the runs of a method (-1: of all), escaped, "a, b, c";
 * false if there is none. */
bool dro__page_values(dro__buffer *out, const dro_report *report, int32_t method, const char *name);

#endif
