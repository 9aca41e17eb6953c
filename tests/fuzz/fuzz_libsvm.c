/* libsvm text: the first byte chooses options, 0xff separates the training file from the test
 * file. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char spec[256];
    size_t first;
    if (size == 0)
        return 0;
    unsigned options = *bytes++;
    size_t second = fuzz_cut(bytes, --size, 0xff, &first);
    int used = snprintf(spec, sizeof spec, "libsvm:%s", fuzz_file(0, bytes, first));
    if (first < size)
        used += snprintf(spec + used, sizeof spec - (size_t)used, ",test=%s",
                         fuzz_file(1, bytes + first + 1, second));
    snprintf(spec + used, sizeof spec - (size_t)used, "%s%s%s%s%s", options & 1 ? ",base=0" : "",
             options & 2 ? ",target=real" : "", options & 4 ? ",qid=ignore" : "",
             options & 8 ? ",features=100" : "", options & 16 ? ",classes=-1:1:7" : "");
    fuzz_spec(spec);
    return 0;
}
