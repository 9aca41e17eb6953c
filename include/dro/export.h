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
 * must already have the model's size. `dro predict` treats files as training did. If training
 * turned images into arrays, the largest square in the middle is resized to the model's size. If it
 * read them from files, the shorter side becomes 256/224 of the model's size and the middle is cut
 * out. Both equal Pillow's resize() with BILINEAR and box=; the metadata `dro.resize` says which it
 * is.
 *
 * A table has one input (batch, 1) for each of its columns, which the model encodes: a text as in
 * the file, without blanks around it, or a double: a number without a unit or separators of
 * thousands, a date as days since 1970-01-01, NaN where the value is missing. An input has the name
 * that its column has in the header. It is called column.K instead, where K is the column's place
 * in the file, counted from 1, if that name is empty, belongs to several columns, begins with dro/,
 * or is label, probabilities, value or the column.NUMBER of another place.
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
