/* Trained models for other programs. Experimental. */
#ifndef DRO_EXPORT_H
#define DRO_EXPORT_H

#include <dro/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the weights file of a run and writes its model as ONNX (opset 17), for batches of any size.
 * Outputs of a model with classes: `probabilities` (batch, classes), as defined by the loss that it
 * was trained with, and `label` (batch), the name of the class that `dro predict` prints: after a
 * logit-adjusted loss or with a saved threshold it need not be the most probable one. Output of a
 * model of a real-valued target: `value` (batch, 1). Inputs:
 *
 * Images are `pixels` (batch, channels, height, width), 0 to 255, which the model normalises. They
 * must have the model's size already. Of a file `dro predict` takes the middle, as in training:
 * where images stayed in files, the shorter side becomes 256/224 of the model's size, and of that
 * the middle; where they became arrays, the largest square in the middle becomes the model's size.
 * Both are Pillow's resize() with BILINEAR and the box; the metadata `dro.resize` says which it is.
 *
 * A table has one input (batch, 1) for each of its columns, which the model encodes: a text as in
 * the file, without blanks around it, or a double: a number without a unit or separators of
 * thousands, a date as days since 1970-01-01, NaN where the value is missing. An input has the
 * column's name in the header or, where that is empty, label, probabilities, value, column.NUMBER,
 * begins with dro/ or is that of several columns, column.K: K is the column's place in the file,
 * from 1.
 *
 * Other rows are `features` (batch, features). The linear model on the sparse rows of libsvm is
 * DRO_ERR_UNSUPPORTED. */
DRO_API dro_status dro_export_onnx(dro_context *ctx, const char *weights, const char *path);

/* Writes a PyTorch module for the same weights file: Python source whose load() reads the tensors
 * from that file by name. Images are pixels 0 to 255, as above. Rows are features that are already
 * encoded and scaled: the encoding is not part of the module. With classes the module returns
 * logits, which its probabilities() and classes() turn into the probabilities and the labels (their
 * places in CLASSES) of dro_export_onnx(). Otherwise value() turns its outputs into the values of
 * dro_export_onnx(). Linear models on sparse rows (a stream, or more than 4096 features) are
 * DRO_ERR_UNSUPPORTED. */
DRO_API dro_status dro_export_torch(dro_context *ctx, const char *weights, const char *path);

#ifdef __cplusplus
}
#endif
#endif
