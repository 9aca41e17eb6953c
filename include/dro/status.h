/* Status codes: what every fallible function of libdro returns.
 *
 * 0 is success, a negative value a failure. dro_status_text() gives the general meaning; the
 * details of the last failure (which name, which index, what would be right) are in
 * dro_context_error(). Stable. */
#ifndef DRO_STATUS_H
#define DRO_STATUS_H

#if defined(DRO_BUILD)
#define DRO_API __attribute__((visibility("default")))
#else
#define DRO_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* One list: the code's name, its value, its meaning. */
#define DRO_STATUS_LIST(X)                                                                         \
    X(DRO_OK, 0, "success")                                                                        \
    X(DRO_ERR_ARGUMENT, -1, "wrong argument")                                                      \
    X(DRO_ERR_NAME, -2, "unknown name")                                                            \
    X(DRO_ERR_RANGE, -3, "value out of range")                                                     \
    X(DRO_ERR_MEMORY, -4, "out of memory")                                                         \
    X(DRO_ERR_STATE, -5, "not possible at this point")                                             \
    X(DRO_ERR_UNSUPPORTED, -6, "not supported here")                                               \
    X(DRO_ERR_NUMBER, -7, "a loss or a gradient is not a finite number")                           \
    X(DRO_ERR_FORMAT, -8, "a saved state is damaged or belongs to something else")                 \
    X(DRO_ERR_CALLBACK, -9, "a callback failed")                                                   \
    X(DRO_ERR_END, -10, "there are no more examples")                                              \
    X(DRO_ERR_DATA, -11, "the data is damaged or not what was expected")                           \
    X(DRO_ERR_FILE, -12, "a file cannot be read or written")                                       \
    X(DRO_ERR_DEVICE, -13, "the accelerator or its driver is missing, or failed")

typedef enum dro_status {
#define X(name, value, text) name = value,
    DRO_STATUS_LIST(X)
#undef X
} dro_status;

/* The general meaning of a code; never NULL. */
DRO_API const char *dro_status_text(dro_status status);

#ifdef __cplusplus
}
#endif
#endif
