/* Trained models for other programs. Experimental. */
#ifndef DRO_EXPORT_H
#define DRO_EXPORT_H

#include <dro/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the model of a weights file that a run has written as ONNX (opset 17), for batches of any
 * size. Inputs: images are `pixels` (batch, channels, height, width), 0 to 255, and are normalised
 * inside; a table has an input (batch, 1) for each of its columns, texts as they are in the file
 * and numbers, NaN where missing, and is encoded inside; other rows are `features` (batch,
 * features). Outputs: of classes `probabilities` (batch, classes), as the loss that the model was
 * trained with defines them, and `label` (batch), the name of the most probable class; otherwise
 * `value` (batch, 1). Sparse rows are DRO_ERR_UNSUPPORTED. */
DRO_API dro_status dro_export_onnx(dro_context *ctx, const char *weights, const char *path);

/* Writes a PyTorch module for the same file: Python whose load() takes the tensors from the weights
 * file by their names. Images are pixels 0 to 255, as above; rows are features as the model sees
 * them, encoded and scaled: the encoding is not part of the module. Its outputs are logits, which
 * its probabilities() turns into what dro_export_onnx() gives, or outputs, which value() does. */
DRO_API dro_status dro_export_torch(dro_context *ctx, const char *weights, const char *path);

#ifdef __cplusplus
}
#endif
#endif
