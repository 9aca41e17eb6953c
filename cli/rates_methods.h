/* The methods of `dro bench rates`: what is fixed, what is tuned and in which range, and what the
 * theory promises. Every method gets the same number of random settings from its own space. */
#ifndef DRO_RATES_METHODS_H
#define DRO_RATES_METHODS_H

enum { RATES_FIXED_MAX = 6, RATES_TUNED_MAX = 6 };

typedef struct rates_range {
    const char *name;
    double low, high;  /* drawn evenly in the logarithm, or evenly if low <= 0 or linear */
    int linear;        /* 1: evenly; 2: evenly in the logarithm, a whole number */
    const char *words; /* instead: one of these, separated by | */
} rates_range;

typedef struct rates_method {
    const char *label, *optimizer;
    const char *fixed[RATES_FIXED_MAX][2];
    rates_range tuned[RATES_TUNED_MAX];
    double theory_pl, theory_nonconvex; /* Table 1 of the paper as exponents; 0: it says nothing */
} rates_method;

static const rates_method rates_methods[] = {
    {"recover",
     "recover",
     {{"eta_schedule", "theory"}, {"theory_mu", "0.5"}, {"warmup", "20"}},
     {{.name = "eta", .low = 0.003, .high = 1},
      {.name = "theory_factor", .low = 0.003, .high = 10}},
     -1,
     0},
    {"recover:eta2",
     "recover",
     {{"eta_schedule", "theory"}, {"theory_mu", "0.5"}, {"warmup", "20"}, {"a_rule", "eta2"}},
     {{.name = "eta", .low = 0.003, .high = 1},
      {.name = "theory_factor", .low = 0.003, .high = 10},
      {.name = "a_c", .low = 0.1, .high = 1000}},
     -1,
     0},
    {"cover",
     "cover",
     {{"a_rule", "eta2"}, {"warmup", "20"}},
     {{.name = "eta", .low = 0.003, .high = 1},
      {.name = "poly_start", .low = 10, .high = 1e5},
      {.name = "a_c", .low = 0.1, .high = 1000}},
     0,
     -2.0 / 3},
    {"ascpg",
     "ascpg",
     {{"order", "uniform"}},
     {{.name = "eta", .low = 0.03, .high = 1},
      {.name = "eta_power", .low = 0.1, .high = 0.9, .linear = 1},
      {.name = "beta_power", .low = 0.1, .high = 0.9, .linear = 1}},
     0,
     -0.5},
    {"civr",
     "civr",
     {{"batch", "0"}},
     {{.name = "eta", .low = 0.003, .high = 1},
      {.name = "big", .low = 16, .high = 16384, .linear = 2}},
     0,
     -2.0 / 3},
    {"rcivr",
     "rcivr",
     {{"order", "uniform"}},
     {{.name = "eta", .low = 0.003, .high = 1},
      {.name = "big", .words = "32|64|128"},
      {.name = "batch", .words = "0|8|32|64|128"},
      {.name = "passes", .words = "1|3|10|30"}},
     -1,
     0},
    {"stoc-agda",
     "stoc-agda",
     {{"order", "uniform"}},
     {{.name = "eta", .low = 0.003, .high = 1},
      {.name = "tau1", .low = 10, .high = 1e4},
      {.name = "dual_eta", .low = 1e-8, .high = 1e-4},
      {.name = "tau2", .low = 10, .high = 1e4},
      {.name = "sampling", .words = "p|uniform"}},
     -1,
     0},
    {"pg-smd2",
     "pg-smd2",
     {{"order", "uniform"}},
     {{.name = "eta", .low = 0.003, .high = 1},
      {.name = "dual_eta", .low = 1e-5, .high = 1e-2},
      {.name = "stage_steps", .low = 30, .high = 1e4, .linear = 2},
      {.name = "gamma", .low = 1e-3, .high = 1},
      {.name = "sampling", .words = "p|uniform"}},
     0,
     -0.5},
    {"pes-sgda",
     "pes-sgda",
     {{"order", "uniform"}},
     {{.name = "eta", .low = 0.003, .high = 1},
      {.name = "dual_eta", .low = 1e-8, .high = 1e-4},
      {.name = "stage_steps", .low = 30, .high = 3e4, .linear = 2},
      {.name = "gamma", .low = 1e-3, .high = 1},
      {.name = "sampling", .words = "p|uniform"}},
     -1,
     0},
    {"absgd",
     "absgd",
     {{"eta_schedule", "poly"}, {"warmup", "20"}},
     {{.name = "eta", .low = 0.001, .high = 1},
      {.name = "poly_start", .low = 10, .high = 1e5},
      {.name = "poly_power", .low = 0.3, .high = 1, .linear = 1},
      {.name = "gamma", .low = 0.001, .high = 1},
      {.name = "momentum", .words = "0|0.9"}},
     0,
     0},
    {"sgd",
     "sgd",
     {{"eta_schedule", "poly"}},
     {{.name = "eta", .low = 0.001, .high = 1},
      {.name = "poly_start", .low = 10, .high = 1e5},
      {.name = "poly_power", .low = 0.3, .high = 1, .linear = 1},
      {.name = "momentum", .words = "0|0.9"}},
     0,
     0},
};

enum { RATES_METHODS = sizeof rates_methods / sizeof rates_methods[0] };

#endif
