/* Decimal numbers, fast and correctly rounded.
 *
 * Up to 19 digits m and an exponent e with m < 2^53 and |e| <= 22: m and 10^|e| are exact in
 * double, so one multiplication or division rounds once (Clinger 1990). For a float the double,
 * which is 0 or between 1e-22 and 1e38 and so no matter of subnormal or infinite floats, is rounded
 * again, which is right unless it is half-way between two floats: then, and for everything else,
 * the C library decides. */
#define _GNU_SOURCE /* strtof_l */
#include "text.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

typedef struct decimal {
    const char *end;
    uint64_t digits;
    int64_t exponent;
    bool negative, exact; /* exact: every digit is in `digits` */
} decimal;

static inline bool is_digit(char c)
{
    return (unsigned char)(c - '0') < 10;
}

static const char *scan_exponent(const char *p, int64_t *exponent)
{
    const char *start = p++;
    bool negative = *p == '-';
    int64_t value = 0;
    p += *p == '-' || *p == '+';
    if (!is_digit(*p))
        return start; /* "1e": the number ends before the e */
    for (; is_digit(*p); p++)
        value = value < 1000000 ? 10 * value + (*p - '0') : value;
    *exponent += negative ? -value : value;
    return p;
}

static inline bool scan(const char *p, decimal *d)
{
    d->negative = *p == '-';
    p += *p == '-' || *p == '+';
    const char *start = p;
    uint64_t m = 0;
    while (is_digit(*p))
        m = 10 * m + (uint64_t)(*p++ - '0');
    int64_t count = p - start, exponent = 0;
    if (*p == '.') {
        const char *point = ++p;
        while (is_digit(*p))
            m = 10 * m + (uint64_t)(*p++ - '0');
        exponent = point - p;
        count -= exponent;
    }
    if (count == 0)
        return false;
    d->exact = count <= 19;
    if ((*p | 0x20) == 'e')
        p = scan_exponent(p, &exponent);
    d->digits = m;
    d->exponent = exponent;
    d->end = p;
    return true;
}

/* The double nearest to the number, if the short way gives it. */
static inline bool nearest(const decimal *d, double *value)
{
    if (!d->exact || d->digits > (UINT64_C(1) << 53) || d->exponent < -22 || d->exponent > 22)
        return false;
    double m = (double)d->digits;
    m = d->exponent < 0 ? m / powers[-d->exponent] : m * powers[d->exponent];
    *value = d->negative ? -m : m;
    return true;
}

/* A static object of the C library: requesting it costs nothing, cannot fail and owns nothing. */
static locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

const char *dro__number_float(const char *text, float *value)
{
    decimal d;
    double wide;
    uint64_t bits;
    if (!scan(text, &d))
        return NULL;
    if (nearest(&d, &wide)) {
        memcpy(&bits, &wide, sizeof bits);
        if ((bits & 0x1fffffff) != 0x10000000) {
            *value = (float)wide;
            return d.end;
        }
    }
    *value = strtof_l(text, NULL, c_locale());
    return d.end;
}

const char *dro__number_double(const char *text, double *value)
{
    decimal d;
    if (!scan(text, &d))
        return NULL;
    if (!nearest(&d, value))
        *value = strtod_l(text, NULL, c_locale());
    return d.end;
}

const char *dro__text_show(const char *text, char *out, size_t size)
{
    size_t k = 0;
    unsigned char first = (unsigned char)*text;
    if (first == '\n' || first == '\r')
        return "the end of the line";
    if (first < ' ' || first > '~') {
        snprintf(out, size, "byte 0x%02x", first);
        return out;
    }
    out[k++] = '\'';
    while (k + 2 < size && *text > ' ' && *text <= '~')
        out[k++] = *text++;
    out[k++] = '\'';
    out[k] = '\0';
    return out;
}
