/* An archive of NumPy: the first byte chooses what to ask of it, the rest is the file. Checksums
 * stop most changes of packed bytes late, but only after they were unpacked and parsed. */
#include "packed.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const options[] = {"", ",target=real,groups=g", ",x=x_train,labels=y_train",
                                          ",x=x,labels=y,test=x,test_labels=y"};
    char spec[128];
    if (size < 1 || fuzz_packed(bytes + 1, size - 1))
        return 0;
    snprintf(spec, sizeof spec, "npy:%s%s", fuzz_file(0, bytes + 1, size - 1), options[*bytes & 3]);
    fuzz_spec(spec);
    return 0;
}
