/* Writes a model in ONNX's format: protocol buffers (a field is its number and kind, then a number
 * or a length and bytes) with the field numbers of onnx.proto, as far as they are needed here. */
#ifndef DRO_ONNX_H
#define DRO_ONNX_H

#include "buffer.h"

/* Kinds of elements. */
enum { DRO__ONNX_FLOAT = 1, DRO__ONNX_INT64 = 7, DRO__ONNX_STRING = 8, DRO__ONNX_DOUBLE = 11 };

/* A list of names or of numbers in place. */
#define DRO__NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define DRO__INTS(...)  ((const int64_t[]){__VA_ARGS__})

/* Attributes of a node, one after another into a buffer. */
void dro__onnx_int(dro__buffer *attributes, const char *name, int64_t value);
void dro__onnx_float(dro__buffer *attributes, const char *name, float value);
void dro__onnx_ints(dro__buffer *attributes, const char *name, const int64_t *values, size_t count);
void dro__onnx_texts(dro__buffer *attributes, const char *name, const char *const *values,
                     size_t count);

/* Parts of a graph, in any order; nodes after those that they read. inputs: up to NULL. attributes:
 * taken and freed, NULL for none. An operator with a ':' is of the domain ai.onnx.ml: "ml:Name".
 *
 * ":NAME" is an input or an output of the graph, which is called NAME. What has no ':' is inside of
 * it and called dro/NAME: no column of a table can have the name of a constant. */
void dro__onnx_node(dro__buffer *graph, const char *op, const char *const *inputs,
                    const char *output, dro__buffer *attributes);
void dro__onnx_constant(dro__buffer *graph, const char *name, const int64_t *shape, int rank,
                        const float *values);
/* (1, 1) */
void dro__onnx_constant_double(dro__buffer *graph, const char *name, double value);
void dro__onnx_constant_ints(dro__buffer *graph, const char *name, const int64_t *values,
                             size_t count);
void dro__onnx_constant_texts(dro__buffer *graph, const char *name, const char *const *values,
                              size_t count);
/* shape: of one example, rank without the batch. */
void dro__onnx_input(dro__buffer *graph, const char *name, int kind, const int64_t *shape,
                     int rank);
void dro__onnx_output(dro__buffer *graph, const char *name, int kind, const int64_t *shape,
                      int rank);

/* The file of a graph, which is taken and freed. metadata: key, value, ..., NULL. */
void dro__onnx_model(dro__buffer *file, dro__buffer *graph, const char *name,
                     const char *const *metadata);

/* ---- export_columns.c ---- */

/* The columns of a table as inputs of a graph, and their encoding: the name of the value
 * (batch, features) is "features". *features: 0 when the encoding has no columns of its own. */
dro_status dro__export_columns(dro_context *ctx, const char *encoding, dro__buffer *graph,
                               size_t *features);

#endif
