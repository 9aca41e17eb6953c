/* UTF-8, and texts that are not. */
#include "base.h"

#include <stdio.h>
#include <string.h>

int dro__utf8_length(const char *text)
{
    const unsigned char *t = (const unsigned char *)text;
    if (t[0] == 0)
        return 0;
    if (t[0] < 0x80)
        return 1;
    int size = t[0] >= 0xf0 ? 4 : t[0] >= 0xe0 ? 3 : 2;
    if (t[0] < 0xc2 || t[0] > 0xf4)
        return 0;
    for (int k = 1; k < size; k++)
        if ((t[k] & 0xc0) != 0x80)
            return 0;
    bool longer = (t[0] == 0xe0 && t[1] < 0xa0) || (t[0] == 0xf0 && t[1] < 0x90);
    bool surrogate = t[0] == 0xed && t[1] > 0x9f;
    return longer || surrogate || (t[0] == 0xf4 && t[1] > 0x8f) ? 0 : size;
}

const char *dro__utf8_wrong(const char *text, size_t size)
{
    const uint64_t high = 0x8080808080808080u;
    for (size_t k = 0; k < size;) {
        uint64_t eight;
        if (size - k >= sizeof eight) {
            memcpy(&eight, text + k, sizeof eight);
            if (!(eight & high)) {
                k += sizeof eight;
                continue;
            }
        }
        char four[5] = {0}; /* so as not to read past the end */
        memcpy(four, text + k, size - k < 4 ? size - k : 4);
        int length = *four ? dro__utf8_length(four) : 1;
        if (length == 0)
            return text + k;
        k += (size_t)length;
    }
    return NULL;
}

char *dro__utf8_show(const char *text)
{
    size_t used = 0;
    char *shown = dro__alloc(strlen(text) + 1, 4);
    while (shown && *text) {
        int size = dro__utf8_length(text);
        if (size)
            memcpy(shown + used, text, (size_t)size);
        else
            snprintf(shown + used, 5, "\\x%02x", (unsigned char)*text);
        used += size ? (size_t)size : 4;
        text += size ? size : 1;
    }
    return shown;
}

/* Bytes of the control character at text, 0 if it is none. */
static int control_size(const char *text)
{
    const unsigned char *t = (const unsigned char *)text;
    if (t[0] < 0x20 || t[0] == 0x7f)
        return 1;
    return t[0] == 0xc2 && t[1] >= 0x80 && t[1] < 0xa0 ? 2 : 0;
}

void dro__utf8_escape(char text[DRO__ERROR_SIZE])
{
    char from[DRO__ERROR_SIZE];
    size_t used = 0;
    memcpy(from, text, sizeof from);
    for (const char *at = from; *at;) {
        int control = control_size(at), letter = control ? 0 : dro__utf8_length(at);
        int size = letter + control > 0 ? letter + control : 1;
        size_t needed = letter ? (size_t)letter : 4;
        if (used + needed >= sizeof from)
            break;
        if (letter)
            memcpy(text + used, at, needed);
        else
            snprintf(text + used, needed + 1, "\\x%02x", (unsigned char)at[size - 1]);
        used += needed;
        at += size;
    }
    text[used] = '\0';
}
