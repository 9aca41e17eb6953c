/* The meaning of a cell of a CSV file: a number, a date, or a missing value. */
#include "csv.h"

#include <math.h>
#include <string.h>
#include <strings.h>

bool dro__csv_missing(const dro__missing *m, const char *cell)
{
    if (cell[0] == '\0' || (cell[0] == '?' && cell[1] == '\0'))
        return true;
    const char *word = cell + (*cell == '-' || *cell == '+');
    if ((word[0] | 0x20) == 'n' && (word[1] | 0x20) == 'a' &&
        ((word[2] == '\0' && word == cell) || ((word[2] | 0x20) == 'n' && word[3] == '\0')))
        return true;
    return m->also && strcmp(cell, m->also) == 0;
}

bool dro__csv_blank(const char *cell)
{
    static const char *const words[] = {"null", "none", "n/a", "#n/a", "<na>", "-", "."};
    for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
        if (strcasecmp(cell, words[k]) == 0)
            return true;
    return false;
}

/* ---- numbers ---- */

bool dro__csv_infinite(const char *cell)
{
    cell += *cell == '-' || *cell == '+';
    return strcasecmp(cell, "inf") == 0 || strcasecmp(cell, "infinity") == 0;
}

const char *dro__csv_expected(const char *cell, bool number)
{
    bool large = number && !dro__csv_infinite(cell);
    return large ? "a smaller number: 3.4e38 is the limit" : "a finite number";
}

bool dro__csv_number(const char *cell, bool comma, double *value)
{
    char text[64];
    const char *end = dro__number_double(cell, value);
    size_t length = end ? (size_t)(end - cell) : strcspn(cell, ",");
    if (end && !*end)
        return true;
    if (!comma || cell[length] != ',' || strlen(cell) >= sizeof text)
        return false;
    strcpy(text, cell);
    text[length] = '.';
    end = dro__number_double(text, value);
    return end && !*end;
}

/* ---- formatted numbers ---- */

/* The length of a space, plain or not to be broken at (U+00A0, U+202F), or 0. */
static size_t space(const char *p)
{
    return *p == ' ' ? 1 : !strncmp(p, "\u00a0", 2) ? 2 : !strncmp(p, "\u202f", 3) ? 3 : 0;
}

/* A unit, with the spaces around it; -1: it is not the one before. */
static const char *take_unit(const char *p, int *unit)
{
    static const char *const symbols[DRO__CSV_UNITS] = {"%", "$", "\u20ac", "\u00a3", "\u00a5"};
    p += space(p);
    for (size_t k = 0; k < DRO__CSV_UNITS; k++)
        if (!strncmp(p, symbols[k], strlen(symbols[k]))) {
            *unit = *unit == 0 || *unit == (int)k + 1 ? (int)k + 1 : -1;
            p += strlen(symbols[k]);
            break;
        }
    return p + space(p);
}

static size_t count_digits(const char *p)
{
    return strspn(p, "0123456789");
}

/* The length of a separator of thousands before three digits, as the one before (NULL: the first
 * one), or 0. */
static size_t thousands(const char *p, bool comma, const char *before)
{
    size_t length = *p == (comma ? '.' : ',') || *p == '\'' ? 1 : space(p);
    bool same = !before || !strncmp(p, before, length);
    return length && same && count_digits(p + length) == 3 ? length : 0;
}

bool dro__csv_formatted(const char *cell, bool comma, int *unit, double *value)
{
    char text[64], *to = text;
    size_t length, digits;
    const char *p = cell, *before = NULL;
    if (!comma && dro__csv_number(cell, false, value))
        return true;
    if (strlen(cell) >= sizeof text)
        return false;
    if (*p == '-' || *p == '+')
        *to++ = *p++;
    p = take_unit(p, unit);
    if (to == text && (*p == '-' || *p == '+'))
        *to++ = *p++;
    for (digits = count_digits(p); digits > 0; digits = length ? 3 : 0) {
        memcpy(to, p, digits);
        to += digits;
        p += digits;
        bool groups = before || (digits <= 3 && to[-(ptrdiff_t)digits] != '0');
        length = groups ? thousands(p, comma, before) : 0;
        before = p;
        p += length;
    }
    if (*p == (comma ? ',' : '.') && before && (digits = count_digits(p + 1)) > 0) {
        *to++ = '.';
        memcpy(to, p + 1, digits);
        to += digits;
        p += 1 + digits;
    }
    *to = '\0';
    p = take_unit(p, unit);
    return before && !*p && *unit >= 0 && dro__number_double(text, value) != NULL;
}

/* ---- dates ---- */

/* A whole number of `least` to `most` digits; NULL if there is none. */
static const char *digits(const char *p, int least, int most, int *value)
{
    int count = 0;
    for (*value = 0; *p >= '0' && *p <= '9' && count < most; count++)
        *value = 10 * *value + (*p++ - '0');
    return count >= least && !(*p >= '0' && *p <= '9') ? p : NULL;
}

/* The time of day after a date, "T12:30:59.5Z", as a share of the day; a time zone is ignored. */
static bool time_of_day(const char *p, double *day)
{
    int hour, minute, second = 0, rest;
    *day = 0;
    if (!*p)
        return true;
    if ((*p != 'T' && *p != ' ') || !(p = digits(p + 1, 1, 2, &hour)) || *p != ':' ||
        !(p = digits(p + 1, 2, 2, &minute)))
        return false;
    if (*p == ':' && !(p = digits(p + 1, 2, 2, &second)))
        return false;
    if (*p == '.' && !(p = digits(p + 1, 1, 9, &rest)))
        return false;
    *day = (hour + (minute + second / 60.0) / 60) / 24;
    size_t zone = strspn(p, "Z+-:0123456789");
    return hour < 25 && minute < 60 && second < 61 && !p[zone] && zone < 7 &&
           (!*p || strchr("Z+-", *p));
}

/* Days since 1970-01-01 (Gregorian). Years begin in March, so that a leap day is the last. */
static double days(int year, int month, int day)
{
    int y = year - (month <= 2), m = (month + 9) % 12, before = (153 * m + 2) / 5;
    return 365.0 * y + floor(y / 4.0) - floor(y / 100.0) + floor(y / 400.0) + before + day - 1 -
           719468;
}

static bool date_in(const char *cell, int order, double *value)
{
    int part[3], at[3] = {0, 1, 2}; /* the places of year, month and day */
    double clock;
    const char *p = digits(cell, 1, order == DRO__DATE_YMD ? 4 : 2, &part[0]);
    char separator = p ? *p : '\0';
    if (!p || !separator || !strchr(order == DRO__DATE_MDY ? "/" : "-/.", separator) ||
        !(p = digits(p + 1, 1, 2, &part[1])) || *p != separator ||
        !(p = digits(p + 1, order == DRO__DATE_YMD ? 1 : 4, order == DRO__DATE_YMD ? 2 : 4,
                     &part[2])) ||
        !time_of_day(p, &clock))
        return false;
    if (order != DRO__DATE_YMD)
        at[0] = 2, at[1] = order == DRO__DATE_MDY ? 0 : 1, at[2] = 1 - at[1];
    int year = part[at[0]], month = part[at[1]], day = part[at[2]];
    *value = days(year, month, day) + clock;
    return year >= 1000 && month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

int dro__csv_dates(const char *cell)
{
    int orders = 0;
    double value;
    for (int order = 1; order < DRO__DATE_ALL; order *= 2)
        orders |= date_in(cell, order, &value) ? order : 0;
    return orders;
}

bool dro__csv_value(const dro__column *c, const char *cell, double *value)
{
    int unit = c->unit;
    if (c->date)
        return date_in(cell, c->date, value);
    return c->formatted ? dro__csv_formatted(cell, c->commas, &unit, value)
                        : dro__csv_number(cell, c->commas, value);
}
