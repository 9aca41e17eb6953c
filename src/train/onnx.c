/* ONNX's format (onnx.h). */
#include "onnx.h"

#include <dro/version.h>
#include <string.h>

/* ---- protocol buffers ---- */

static void varint(dro__buffer *b, uint64_t value)
{
    unsigned char bytes[10];
    size_t used = 0;
    do {
        bytes[used++] = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value);
    dro__buffer_bytes(b, bytes, used);
}

enum { NUMBER = 0, LENGTH = 2, FIXED32 = 5 };

static void put_int(dro__buffer *b, int field, int64_t value)
{
    varint(b, (uint64_t)field << 3 | NUMBER);
    varint(b, (uint64_t)value);
}

static void put_float(dro__buffer *b, int field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    unsigned char bytes[4] = {(unsigned char)bits, (unsigned char)(bits >> 8),
                              (unsigned char)(bits >> 16), (unsigned char)(bits >> 24)};
    varint(b, (uint64_t)field << 3 | FIXED32);
    dro__buffer_bytes(b, bytes, sizeof bytes);
}

static void put_bytes(dro__buffer *b, int field, const void *bytes, size_t size)
{
    varint(b, (uint64_t)field << 3 | LENGTH);
    varint(b, size);
    dro__buffer_bytes(b, bytes, size);
}

static void put_text(dro__buffer *b, int field, const char *text)
{
    put_bytes(b, field, text, strlen(text));
}

/* The name of a value in the graph (onnx.h). */
static void put_name(dro__buffer *b, int field, const char *name)
{
    static const char inside[] = "dro/";
    size_t size = sizeof inside - 1, length = strlen(name);
    if (*name == ':') {
        put_bytes(b, field, name + 1, length - 1);
        return;
    }
    varint(b, (uint64_t)field << 3 | LENGTH);
    varint(b, size + length);
    dro__buffer_bytes(b, inside, size);
    dro__buffer_bytes(b, name, length);
}

/* Takes the inner message and frees it. */
static void put_message(dro__buffer *b, int field, dro__buffer *inner)
{
    put_bytes(b, field, inner->bytes ? inner->bytes : "", inner->size);
    b->failed = b->failed || inner->failed;
    dro__buffer_free(inner);
}

/* ---- attributes: AttributeProto ---- */

enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_F = 2, ATTRIBUTE_I = 3, ATTRIBUTE_INTS = 8 };
enum { ATTRIBUTE_STRINGS = 9, ATTRIBUTE_TYPE = 20 };
enum { TYPE_FLOAT = 1, TYPE_INT = 2, TYPE_INTS = 7, TYPE_STRINGS = 8 };
enum { NODE_ATTRIBUTE = 5 };

static dro__buffer attribute(const char *name, int type)
{
    dro__buffer one = {0};
    put_text(&one, ATTRIBUTE_NAME, name);
    put_int(&one, ATTRIBUTE_TYPE, type);
    return one;
}

void dro__onnx_int(dro__buffer *attributes, const char *name, int64_t value)
{
    dro__buffer one = attribute(name, TYPE_INT);
    put_int(&one, ATTRIBUTE_I, value);
    put_message(attributes, NODE_ATTRIBUTE, &one);
}

void dro__onnx_float(dro__buffer *attributes, const char *name, float value)
{
    dro__buffer one = attribute(name, TYPE_FLOAT);
    put_float(&one, ATTRIBUTE_F, value);
    put_message(attributes, NODE_ATTRIBUTE, &one);
}

void dro__onnx_ints(dro__buffer *attributes, const char *name, const int64_t *values, size_t count)
{
    dro__buffer one = attribute(name, TYPE_INTS);
    for (size_t k = 0; k < count; k++)
        put_int(&one, ATTRIBUTE_INTS, values[k]);
    put_message(attributes, NODE_ATTRIBUTE, &one);
}

void dro__onnx_texts(dro__buffer *attributes, const char *name, const char *const *values,
                     size_t count)
{
    dro__buffer one = attribute(name, TYPE_STRINGS);
    for (size_t k = 0; k < count; k++)
        put_text(&one, ATTRIBUTE_STRINGS, values[k]);
    put_message(attributes, NODE_ATTRIBUTE, &one);
}

/* ---- graphs: GraphProto, NodeProto, TensorProto, ValueInfoProto ---- */

enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP = 4, NODE_DOMAIN = 7 };
enum { TENSOR_DIM = 1, TENSOR_KIND = 2, TENSOR_STRING = 6, TENSOR_NAME = 8, TENSOR_RAW = 9 };

void dro__onnx_node(dro__buffer *graph, const char *op, const char *const *inputs,
                    const char *output, dro__buffer *attributes)
{
    dro__buffer node = {0};
    bool ml = strncmp(op, "ml:", 3) == 0;
    for (; *inputs; inputs++)
        put_name(&node, NODE_INPUT, *inputs);
    put_name(&node, NODE_OUTPUT, output);
    put_name(&node, NODE_NAME, output);
    put_text(&node, NODE_OP, ml ? op + 3 : op);
    if (attributes) {
        dro__buffer_bytes(&node, attributes->bytes ? attributes->bytes : "", attributes->size);
        node.failed = node.failed || attributes->failed;
        dro__buffer_free(attributes);
    }
    if (ml)
        put_text(&node, NODE_DOMAIN, "ai.onnx.ml");
    put_message(graph, GRAPH_NODE, &node);
}

static dro__buffer tensor(const char *name, int kind, const int64_t *shape, int rank)
{
    dro__buffer t = {0};
    for (int k = 0; k < rank; k++)
        put_int(&t, TENSOR_DIM, shape[k]);
    put_int(&t, TENSOR_KIND, kind);
    put_name(&t, TENSOR_NAME, name);
    return t;
}

/* Values are raw little-endian bytes; all supported machines are little-endian. */
void dro__onnx_constant(dro__buffer *graph, const char *name, const int64_t *shape, int rank,
                        const float *values)
{
    size_t count = 1;
    for (int k = 0; k < rank; k++)
        count *= (size_t)shape[k];
    dro__buffer t = tensor(name, DRO__ONNX_FLOAT, shape, rank);
    put_bytes(&t, TENSOR_RAW, values, count * sizeof *values);
    put_message(graph, GRAPH_INITIALIZER, &t);
}

void dro__onnx_constant_double(dro__buffer *graph, const char *name, double value)
{
    dro__buffer t = tensor(name, DRO__ONNX_DOUBLE, DRO__INTS(1, 1), 2);
    put_bytes(&t, TENSOR_RAW, &value, sizeof value);
    put_message(graph, GRAPH_INITIALIZER, &t);
}

void dro__onnx_constant_ints(dro__buffer *graph, const char *name, const int64_t *values,
                             size_t count)
{
    dro__buffer t = tensor(name, DRO__ONNX_INT64, DRO__INTS((int64_t)count), 1);
    put_bytes(&t, TENSOR_RAW, values, count * sizeof *values);
    put_message(graph, GRAPH_INITIALIZER, &t);
}

void dro__onnx_constant_texts(dro__buffer *graph, const char *name, const char *const *values,
                              size_t count)
{
    dro__buffer t = tensor(name, DRO__ONNX_STRING, DRO__INTS((int64_t)count), 1);
    for (size_t k = 0; k < count; k++)
        put_text(&t, TENSOR_STRING, values[k]);
    put_message(graph, GRAPH_INITIALIZER, &t);
}

/* name, TypeProto { tensor_type { elem_type, shape { dim { value or name } ... } } } */
static void put_value(dro__buffer *graph, int field, const char *name, int kind,
                      const int64_t *shape, int rank)
{
    dro__buffer value = {0}, type = {0}, about = {0}, dims = {0};
    for (int k = -1; k < rank; k++) {
        dro__buffer dim = {0};
        if (k < 0)
            put_text(&dim, 2, "batch");
        else
            put_int(&dim, 1, shape[k]);
        put_message(&dims, 1, &dim);
    }
    put_int(&about, 1, kind);
    put_message(&about, 2, &dims);
    put_message(&type, 1, &about);
    put_name(&value, 1, name);
    put_message(&value, 2, &type);
    put_message(graph, field, &value);
}

void dro__onnx_input(dro__buffer *graph, const char *name, int kind, const int64_t *shape, int rank)
{
    put_value(graph, GRAPH_INPUT, name, kind, shape, rank);
}

void dro__onnx_output(dro__buffer *graph, const char *name, int kind, const int64_t *shape,
                      int rank)
{
    put_value(graph, GRAPH_OUTPUT, name, kind, shape, rank);
}

/* ---- files: ModelProto ---- */

enum { MODEL_IR = 1, MODEL_PRODUCER = 2, MODEL_PRODUCER_VERSION = 3, MODEL_GRAPH = 7 };
enum { MODEL_OPSET = 8, MODEL_METADATA = 14, IR_VERSION = 8, OPSET = 17, ML_OPSET = 3 };

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

void dro__onnx_model(dro__buffer *file, dro__buffer *graph, const char *name,
                     const char *const *metadata)
{
    static const struct {
        const char *domain;
        int version;
    } opsets[] = {{"", OPSET}, {"ai.onnx.ml", ML_OPSET}};
    put_int(file, MODEL_IR, IR_VERSION);
    put_text(file, MODEL_PRODUCER, "libdro");
    put_text(file, MODEL_PRODUCER_VERSION,
             TEXT(DRO_VERSION_MAJOR) "." TEXT(DRO_VERSION_MINOR) "." TEXT(DRO_VERSION_PATCH));
    for (int k = 0; k < 2; k++) {
        dro__buffer set = {0};
        put_text(&set, 1, opsets[k].domain);
        put_int(&set, 2, opsets[k].version);
        put_message(file, MODEL_OPSET, &set);
    }
    for (; metadata && *metadata; metadata += 2) {
        dro__buffer pair = {0};
        put_text(&pair, 1, metadata[0]);
        put_text(&pair, 2, metadata[1]);
        put_message(file, MODEL_METADATA, &pair);
    }
    put_text(graph, GRAPH_NAME, name);
    put_message(file, MODEL_GRAPH, graph);
}
