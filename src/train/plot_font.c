/* The letters of PNG files (plot.h): strokes on a grid of our own.
 *
 * A glyph is its width and polylines of points xy, one digit each: y 0 is the top of capitals, 2 of
 * small letters, 7 the foot, 9 the lowest. ~ makes a polyline round: its points are the control points of a
 * quadratic B-spline, closed when the last is the first. The unit is a tenth of the size. */
#include "plot.h"

#include <math.h>
#include <string.h>

enum { FIRST = ' ', PIECES = 5 };

static const char *const glyphs[] = {
    /*   */ "2",
    /* ! */ "00005 0707",
    /* " */ "20002 2022",
    /* # */ "41017 3037 0242 0545",
    /* $ */ "4~4240000344470705 2027",
    /* % */ "55007 ~0020220200 ~3555573735",
    /* & */ "55712112031320506174754",
    /* ' */ "00002",
    /* ( */ "2~20000828",
    /* ) */ "2~00202808",
    /* * */ "42125 0244 4204",
    /* + */ "40444 2226",
    /* , */ "11708",
    /* - */ "30434",
    /* . */ "00707",
    /* / */ "33008",
    /* 0 */ "4~0040470700",
    /* 1 */ "3112027",
    /* 2 */ "4~0200404307 0747",
    /* 3 */ "4~0100404323 ~2343470706",
    /* 4 */ "437300545",
    /* 5 */ "4400003 ~0342470706",
    /* 6 */ "4~41400005 ~0343470703",
    /* 7 */ "4004017",
    /* 8 */ "4~0040430300 ~0343470703",
    /* 9 */ "4~0040440400 ~42470706",
    /* : */ "00303 0707",
    /* ; */ "11313 1708",
    /* < */ "3320436",
    /* = */ "40343 0545",
    /* > */ "3023406",
    /* ? */ "4~010040432325 2727",
    /* @ */ "6~0060670700 ~2242452522",
    /* A */ "4072047 1535",
    /* B */ "50007 0020 ~20404323 2303 ~23535727 2707",
    /* C */ "5~525000075755",
    /* D */ "50007 0020 ~20505727 2707",
    /* E */ "440000747 0333",
    /* F */ "4400007 0333",
    /* G */ "5~525000075754 5434",
    /* H */ "40007 4047 0343",
    /* I */ "00007",
    /* J */ "33035 ~35370706",
    /* K */ "40007 4004 1347",
    /* L */ "3000737",
    /* M */ "60700356067",
    /* N */ "407004740",
    /* O */ "5~0050570700",
    /* P */ "40007 0020 ~20404424 2404",
    /* Q */ "5~0050570700 3558",
    /* R */ "40007 0020 ~20404424 2404 2447",
    /* S */ "4~4240000344470705",
    /* T */ "40040 2027",
    /* U */ "40004 ~04074744 4440",
    /* V */ "4002740",
    /* W */ "60017325760",
    /* X */ "40047 4007",
    /* Y */ "4002340 2327",
    /* Z */ "400400747",
    /* [ */ "220000828",
    /* \ */ "30038",
    /* ] */ "200202808",
    /* ^ */ "2021022",
    /* _ */ "40848",
    /* ` */ "10012",
    /* a */ "4~0242470702 4247",
    /* b */ "40007 ~0242470702",
    /* c */ "4~434202074746",
    /* d */ "44047 ~0242470702",
    /* e */ "40444 ~444202074746",
    /* f */ "3~301012 1217 0232",
    /* g */ "4~0242470702 4247 ~47490908",
    /* h */ "40007 ~04024244 4447",
    /* i */ "00207 0000",
    /* j */ "22227 ~272909 2020",
    /* k */ "40007 4205 1447",
    /* l */ "10006 ~060717",
    /* m */ "60207 ~04023234 3437 ~34326264 6467",
    /* n */ "40207 ~04024244 4447",
    /* o */ "4~0242470702",
    /* p */ "40209 ~0242470702",
    /* q */ "44249 ~0242470702",
    /* r */ "30207 ~040232",
    /* s */ "4~4342020445470706",
    /* t */ "31016 ~161737 0232",
    /* u */ "40205 ~05074745 4247",
    /* v */ "4022742",
    /* w */ "60217325762",
    /* x */ "40247 4207",
    /* y */ "40227 4219",
    /* z */ "402420747",
    /* { */ "2~20101404 ~04141828",
    /* | */ "00008",
    /* } */ "2~00101424 ~24141808",
    /* ~ */ "4~05034643",
};

static const char box[] = "40040470700"; /* a letter that is not here */

/* Letters outside of ASCII that our own texts use. */
static const struct {
    const char *letter, *as;
} others[] = {
    {"\xe2\x80\xa6", "50707 2727 4747"}, /* ellipsis */
    {"\xe2\x80\x93", "40444"},           /* en dash */
    {"\xe2\x80\x89", "0"},               /* thin space */
    {"\xc2\xb1", "41115 0242 0747"},     /* plus or minus */
    {"\xc2\xb7", "00404"},               /* dot */
};

static const char *find(const char *text, int size)
{
    if (size == 1 && *text >= FIRST && *text <= '~')
        return glyphs[*text - FIRST];
    for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
        if ((int)strlen(others[k].letter) == size &&
            memcmp(others[k].letter, text, (size_t)size) == 0)
            return others[k].as;
    return box;
}

typedef struct pen {
    void (*draw)(void *to, const double segment[4]);
    void *to;
    double left; /* of the glyph */
} pen;

/* In grid units; the foot is at y 7. */
static void stroke(const pen *p, const double a[2], const double b[2])
{
    double segment[4] = {p->left + a[0] / 10, (a[1] - 7) / 10, p->left + b[0] / 10,
                         (b[1] - 7) / 10};
    p->draw(p->to, segment);
}

/* One arc of the spline, from a to b with the control point c. */
static void arc(const pen *p, const double a[2], const double c[2], const double b[2])
{
    double from[2] = {a[0], a[1]}, to[2];
    for (int k = 1; k <= PIECES; k++) {
        double t = (double)k / PIECES;
        for (int i = 0; i < 2; i++)
            to[i] = (1 - t) * (1 - t) * a[i] + 2 * t * (1 - t) * c[i] + t * t * b[i];
        stroke(p, from, to);
        memcpy(from, to, sizeof from);
    }
}

static void point(const char *digits, int index, double out[2])
{
    out[0] = digits[2 * index] - '0';
    out[1] = digits[2 * index + 1] - '0';
}

static void curve(const pen *p, const char *digits, int count)
{
    bool closed = memcmp(digits, digits + 2 * (count - 1), 2) == 0;
    double from[2], control[2], next[2], to[2];
    point(digits, 0, from);
    if (closed) {
        point(digits, 1, next);
        for (int i = 0; i < 2; i++)
            from[i] = (from[i] + next[i]) / 2;
    }
    for (int k = 1; k < count - !closed; k++) {
        point(digits, k, control);
        point(digits, k + 1 < count ? k + 1 : 1, next);
        bool last = !closed && k + 2 == count;
        for (int i = 0; i < 2; i++)
            to[i] = last ? next[i] : (control[i] + next[i]) / 2;
        arc(p, from, control, to);
        memcpy(from, to, sizeof from);
    }
}

static void draw_glyph(const pen *p, const char *at)
{
    while (*at) {
        bool round = *at == '~';
        at += round;
        int digits = (int)strcspn(at, " ");
        if (round)
            curve(p, at, digits / 2);
        for (int k = 0; !round && k + 1 < digits / 2; k++) {
            double a[2], b[2];
            point(at, k, a);
            point(at, k + 1, b);
            stroke(p, a, b);
        }
        at += digits;
        at += *at == ' ';
    }
}

double dro__font_strokes(const char *text, void (*draw)(void *to, const double segment[4]),
                         void *to)
{
    const double gap = 0.17;
    pen p = {draw, to, 0.08};
    while (*text) {
        int size = dro__utf8_length(text);
        const char *glyph = find(text, size);
        if (draw)
            draw_glyph(&p, glyph + 1);
        p.left += (glyph[0] - '0') * 0.1 + gap;
        text += size ? size : 1;
    }
    return p.left - 0.09;
}
