/* How many columns of a terminal a UTF-8 text takes. Wide characters (Chinese, Japanese, Korean,
 * emoji) take two, combining marks none. Invalid bytes take one each. Also escapes texts for a
 * terminal. */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

typedef struct range {
    unsigned first, last;
} range;

static const range marks[] = {
    {0x300, 0x36f},   {0x483, 0x489},   {0x591, 0x5bd},   {0x610, 0x61a},   {0x64b, 0x65f},
    {0x93c, 0x93c},   {0x941, 0x948},   {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200f},
    {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};
static const range wide[] = {
    {0x1100, 0x115f}, {0x2e80, 0x303e},   {0x3041, 0x33ff},   {0x3400, 0x4dbf},  {0x4e00, 0x9fff},
    {0xa000, 0xa4cf}, {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe4f},  {0xff00, 0xff60},
    {0xffe0, 0xffe6}, {0x1f300, 0x1f64f}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};

/* Invisible or changing the direction of writing; not the joiners U+200C and U+200D, which words
 * and emoji need. */
static const range hidden[] = {
    {0xad, 0xad},     {0x61c, 0x61c},   {0x180e, 0x180e}, {0x200b, 0x200b}, {0x200e, 0x200f},
    {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};

static bool is_in(unsigned code, const range *ranges, size_t count)
{
    for (size_t k = 0; k < count; k++)
        if (code >= ranges[k].first && code <= ranges[k].last)
            return true;
    return false;
}

static int bytes_after(unsigned char first)
{
    static const unsigned char from[] = {0xc2, 0xe0, 0xf0, 0xf5};
    int more = 0;
    while (more < 4 && first >= from[more])
        more++;
    return more < 4 ? more : 0;
}

/* The code point at text and its length in bytes; an invalid byte counts as one. */
static unsigned letter(const unsigned char *text, int *size)
{
    static const unsigned least[] = {0, 0x80, 0x800, 0x10000};
    int more = bytes_after(*text);
    unsigned code = more ? *text & (0x3fu >> more) : *text;
    for (int k = 1; k <= more; k++) {
        if ((text[k] & 0xc0) != 0x80) { /* the end of the text included */
            more = 0;
            code = *text;
            break;
        }
        code = code << 6 | (text[k] & 0x3f);
    }
    if (code < least[more] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000 && more)) {
        more = 0;
        code = *text;
    }
    *size = more + 1;
    return code;
}

/* How cli_escape() writes the letter at `text`; returns its size in bytes. */
static int escape_letter(const char *text, char *escape, bool with_hidden)
{
    int size;
    unsigned code = letter((const unsigned char *)text, &size);
    *escape = '\0';
    if (code < 0x20 || code == 0x7f || (code >= 0x80 && size == 1))
        snprintf(escape, CLI_ESCAPE_SIZE, "\\x%02x", code);
    else if ((code >= 0x80 && code < 0xa0) ||
             (with_hidden && is_in(code, hidden, sizeof hidden / sizeof hidden[0])))
        snprintf(escape, CLI_ESCAPE_SIZE, code > 0xffff ? "\\U%08x" : "\\u%04x", code);
    return size;
}

int cli_escape_exact(const char *text, char *escape, bool with_hidden)
{
    int size = escape_letter(text, escape, with_hidden);
    if (*text == '\\' && text[1] && strchr("xuU", text[1])) /* what looks like an escape */
        strcpy(escape, "\\x5c");
    if (*text == '\n' || *text == '\t')
        *escape = '\0';
    return size;
}

static char *escape_all(const char *text, int (*letter_of)(const char *, char *, bool), bool hide)
{
    size_t used = 0;
    int size;
    char *shown = malloc(4 * strlen(text) + 1);
    if (!shown)
        cli_no_memory();
    for (; *text; text += size) {
        char escape[CLI_ESCAPE_SIZE];
        size = letter_of(text, escape, hide);
        size_t length = *escape ? strlen(escape) : (size_t)size;
        memcpy(shown + used, *escape ? escape : text, length);
        used += length;
    }
    shown[used] = '\0';
    return shown;
}

char *cli_escape(const char *text)
{
    return escape_all(text, escape_letter, true);
}

json_t *cli_path_json(const char *path)
{
    char *shown = path ? escape_all(path, cli_escape_exact, false) : NULL;
    json_t *made = shown ? json_string(shown) : json_null();
    free(shown);
    return made;
}

int cli_width(const char *text)
{
    int width = 0, size;
    for (const unsigned char *p = (const unsigned char *)text; *p; p += size) {
        unsigned code = letter(p, &size);
        if (size > 1 && is_in(code, marks, sizeof marks / sizeof marks[0]))
            continue;
        width += size > 1 && is_in(code, wide, sizeof wide / sizeof wide[0]) ? 2 : 1;
    }
    return width;
}
