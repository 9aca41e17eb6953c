/* CSV: the first byte chooses options, 0xff separates the training file from the test file. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const labels[] = {"1", "2", "y", "3"};
    static const char *const more[] = {"", ",sep=tab", ",header=yes", ",header=no,missing=x"};
    char spec[256];
    size_t first;
    if (size == 0)
        return 0;
    unsigned options = *bytes++;
    size_t second = fuzz_cut(bytes, --size, 0xff, &first);
    int used = snprintf(spec, sizeof spec, "csv:%s,label=%s", fuzz_file(0, bytes, first),
                        labels[options & 3]);
    if (first < size)
        used += snprintf(spec + used, sizeof spec - (size_t)used, ",test=%s",
                         fuzz_file(1, bytes + first + 1, second));
    snprintf(spec + used, sizeof spec - (size_t)used, "%s%s%s%s", more[options >> 2 & 3],
             options & 16 ? ",group=2" : "", options & 32 ? ",target=real" : "",
             options >> 6 == 3   ? ",missing=refuse"
             : options >> 6 == 2 ? ",holdout=0.5"
                                 : "");
    fuzz_spec(spec);
    return 0;
}
