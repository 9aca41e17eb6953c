/* Scales with round ends, their ticks, and the grid of a plot (plot.h). */
#include "plot.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LOG_FROM = 60 }; /* values that differ by more are shown on a logarithmic scale */

/* 1, 2 or 5 times a power of ten, at least about span / wanted. */
static double round_step(double span, int wanted)
{
    double raw = span / wanted, power = pow(10, floor(log10(raw))), m = raw / power;
    return power * (m <= 1.0001 ? 1 : m <= 2.0001 ? 2 : m <= 5.0001 ? 5 : 10);
}

static void choose_time(dro__plot_scale *s)
{
    s->name = "seconds";
    if (s->high > 3 * 3600)
        s->divisor = 3600, s->name = "hours";
    else if (s->high > 300)
        s->divisor = 60, s->name = "minutes";
}

dro__plot_scale dro__scale_fit(double low, double high, dro__plot_unit unit, bool may_log)
{
    dro__plot_scale s = {.low = low, .high = high, .unit = unit, .divisor = 1, .name = ""};
    const double most = 1e300;
    if (!(low <= high))
        s.low = 0, s.high = 1;
    s.low = fmax(fmin(s.low, most), -most);
    s.high = fmax(fmin(s.high, most), -most);
    if (unit == DRO__UNIT_SECONDS)
        choose_time(&s);
    s.log = may_log && s.low > 1e-300 && s.high / s.low > LOG_FROM;
    if (s.log) {
        s.low = fmax(s.low, s.high * 1e-12) / 1.15;
        s.high *= 1.15;
        return s;
    }
    double size = fmax(fabs(s.low), fabs(s.high));
    if (s.high - s.low <= size * 1e-9) {
        double more = unit == DRO__UNIT_SHARE ? 0.05 : size > 1e-200 ? size * 0.05 : 1;
        s.low -= more, s.high += more;
    }
    double step = round_step((s.high - s.low) / s.divisor, 5) * s.divisor;
    s.low = floor(s.low / step + 1e-6) * step;
    s.high = ceil(s.high / step - 1e-6) * step;
    if (unit == DRO__UNIT_SHARE && low >= 0 && high <= 1)
        s.low = fmax(s.low, 0), s.high = fmin(s.high, 1);
    return s;
}

double dro__scale_at(const dro__plot_scale *s, double value)
{
    double share = s->log ? log(fmax(value, DBL_MIN) / s->low) / log(s->high / s->low)
                          : (value - s->low) / (s->high - s->low);
    share = fmax(-0.02, fmin(1.02, share));
    return s->from + share * (s->to - s->from);
}

static int log_ticks(const dro__plot_scale *s, int wanted, double ticks[DRO__TICKS])
{
    static const double parts[] = {1, 2, 5};
    double low = floor(log10(s->low)), high = ceil(log10(s->high)), every;
    int count = 0;
    bool fine = high - low <= 2.5;
    every = fine ? 1 : ceil((high - low) / wanted);
    for (double p = low; p <= high; p += every)
        for (int k = 0; k < (fine ? 3 : 1); k++) {
            double tick = parts[k] * pow(10, p);
            if (tick >= s->low * 0.999 && tick <= s->high * 1.001 && count < DRO__TICKS)
                ticks[count++] = tick;
        }
    return count;
}

int dro__scale_ticks(const dro__plot_scale *s, int wanted, double ticks[DRO__TICKS])
{
    int count = 0;
    if (s->log)
        return log_ticks(s, wanted, ticks);
    double step = round_step((s->high - s->low) / s->divisor, wanted) * s->divisor;
    double first = ceil(s->low / step - 1e-6);
    for (int k = 0; count < DRO__TICKS && (first + k) * step <= s->high + step * 1e-6; k++)
        ticks[count++] = (first + k) * step;
    return count;
}

const char *dro__scale_text(const dro__plot_scale *s, double value, char out[DRO__NUMBER])
{
    double v = value / s->divisor;
    if (fabs(v) < (s->high - s->low) * 1e-9 && !s->log)
        v = 0;
    if (s->unit == DRO__UNIT_SHARE)
        snprintf(out, DRO__NUMBER, "%.4g%%", 100 * v);
    else
        dro__show_short(out, v);
    return out;
}

void dro__plot_axes(dro__plot *plot, const dro__plot_scale *x, const dro__plot_scale *y,
                    const char *x_name)
{
    double ticks[DRO__TICKS];
    char text[DRO__NUMBER];
    int count = dro__scale_ticks(y, 5, ticks);
    for (int k = 0; k < count; k++) {
        double at = dro__scale_at(y, ticks[k]);
        dro__plot_grid_line(plot, x->from, at, x->to, at);
        dro__plot_text(plot, (dro__text_style){DRO__MUTED, 12, DRO__RIGHT, 12}, x->from - 7, at + 4,
                       dro__scale_text(y, ticks[k], text));
    }
    count = dro__scale_ticks(x, 5, ticks);
    for (int k = 0; k < count; k++) {
        double at = dro__scale_at(x, ticks[k]);
        bool last = k + 1 == count && at > x->to - 4;
        dro__plot_grid_line(plot, at, y->from, at, y->from + 4);
        dro__plot_text(plot, (dro__text_style){DRO__MUTED, 12, last ? DRO__RIGHT : DRO__MIDDLE, 12},
                       last ? x->to + 6 : at, y->from + 18, dro__scale_text(x, ticks[k], text));
    }
    dro__plot_text(plot, (dro__text_style){DRO__MUTED, 12, DRO__RIGHT, 30}, x->to + 6, y->from + 34,
                   x_name);
}
