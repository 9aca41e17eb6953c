/* The methods of `dro bench rates`: what is fixed, what is tuned and in which range, and what the
 * theory promises. Every method begins with the defaults of `dro train` for the problem's rows and
 * gets the same number of random settings from its own space; the first one is the default. */
#ifndef DRO_RATES_METHODS_H
#define DRO_RATES_METHODS_H

enum { RATES_FIXED_MAX = 4, RATES_TUNED_MAX = 6 };

typedef struct rates_range {
    const char *name;
    double low, high;  /* drawn evenly in the logarithm */
    int linear;        /* 1: evenly; 2: evenly in the logarithm, a whole number */
    const char *words; /* instead: one of these, separated by | */
} rates_range;

typedef struct rates_method {
    const char *label, *optimizer;
    const char *fixed[RATES_FIXED_MAX][2]; /* also by default */
    rates_range tuned[RATES_TUNED_MAX];
    double theory; /* Table 1 of the paper for a PL objective, as an exponent; 0: it says nothing */
} rates_method;

#define RATES_BATCH                                                                                \
    {                                                                                              \
        .name = "batch", .words = "8|32|128"                                                       \
    }
#define RATES_ETA(from, to)                                                                        \
    {                                                                                              \
        .name = "eta", .low = from, .high = to                                                     \
    }

static const rates_method rates_methods[] = {
    {"recover",
     "recover",
     {{NULL}},
     {RATES_ETA(0.001, 1),
      {.name = "precondition", .words = "none|rms|adam"},
      {.name = "eta_schedule", .words = "cosine|step|poly"},
      {.name = "momentum", .words = "0|0.9"},
      RATES_BATCH},
     -1},
    {"recover:eta2",
     "recover",
     {{"a_rule", "eta2"}, {"precondition", "none"}, {"momentum", "0"}, {"eta_schedule", "theory"}},
     {RATES_ETA(0.003, 1),
      {.name = "theory_mu", .low = 0.05, .high = 5},
      {.name = "theory_factor", .low = 0.003, .high = 10},
      {.name = "a_c", .low = 0.1, .high = 1000},
      RATES_BATCH},
     -1},
    {"cover",
     "cover",
     {{NULL}},
     {RATES_ETA(0.001, 1),
      {.name = "precondition", .words = "none|rms"},
      {.name = "eta_schedule", .words = "cosine|poly"},
      {.name = "poly_start", .low = 10, .high = 1e5},
      RATES_BATCH},
     0},
    {"scent",
     "scent",
     {{NULL}},
     {RATES_ETA(0.0003, 1),
      {.name = "precondition", .words = "none|rms|adam"},
      {.name = "eta_schedule", .words = "cosine|poly"},
      {.name = "gamma", .low = 0.003, .high = 1},
      RATES_BATCH},
     0},
    {"adamw",
     "adamw",
     {{NULL}},
     {RATES_ETA(0.0003, 1), {.name = "eta_schedule", .words = "cosine|poly"}, RATES_BATCH},
     0},
    {"sgd",
     "sgd",
     {{NULL}},
     {RATES_ETA(0.001, 1),
      {.name = "eta_schedule", .words = "cosine|poly"},
      {.name = "momentum", .words = "0|0.9"},
      RATES_BATCH},
     0},
    {"absgd",
     "absgd",
     {{NULL}},
     {RATES_ETA(0.001, 1),
      {.name = "eta_schedule", .words = "cosine|poly"},
      {.name = "gamma", .low = 0.001, .high = 1},
      {.name = "momentum", .words = "0|0.9"},
      RATES_BATCH},
     0},
    {"ascpg",
     "ascpg",
     {{NULL}},
     {RATES_ETA(0.003, 1),
      {.name = "eta_schedule", .words = "cosine|constant"},
      {.name = "eta_power", .low = 0.1, .high = 0.9, .linear = 1},
      {.name = "beta_power", .low = 0.1, .high = 0.9, .linear = 1},
      RATES_BATCH},
     0},
    {"civr",
     "civr",
     {{"eta_schedule", "constant"}},
     {RATES_ETA(0.003, 1), {.name = "big", .low = 16, .high = 16384, .linear = 2}},
     0},
    {"rcivr",
     "rcivr",
     {{"eta_schedule", "constant"}},
     {RATES_ETA(0.003, 1),
      {.name = "big", .words = "32|64|128"},
      {.name = "batch", .words = "0|8|32|64|128"},
      {.name = "passes", .words = "1|3|10|30"}},
     -1},
    {"stoc-agda",
     "stoc-agda",
     {{NULL}},
     {RATES_ETA(0.003, 1),
      {.name = "tau1", .low = 10, .high = 1e4},
      {.name = "dual_eta", .low = 1e-9, .high = 1e-4},
      {.name = "tau2", .low = 10, .high = 1e4},
      {.name = "sampling", .words = "p|uniform"},
      RATES_BATCH},
     -1},
    {"pg-smd2",
     "pg-smd2",
     {{NULL}},
     {RATES_ETA(0.003, 1),
      {.name = "dual_eta", .low = 1e-6, .high = 1e-2},
      {.name = "stage_steps", .low = 30, .high = 1e4, .linear = 2},
      {.name = "gamma", .low = 1e-3, .high = 1},
      {.name = "sampling", .words = "p|uniform"},
      RATES_BATCH},
     0},
    {"pes-sgda",
     "pes-sgda",
     {{NULL}},
     {RATES_ETA(0.003, 1),
      {.name = "dual_eta", .low = 1e-9, .high = 1e-4},
      {.name = "stage_steps", .low = 30, .high = 3e4, .linear = 2},
      {.name = "gamma", .low = 1e-3, .high = 1},
      {.name = "sampling", .words = "p|uniform"},
      RATES_BATCH},
     -1},
};

enum { RATES_METHODS = sizeof rates_methods / sizeof rates_methods[0] };

#endif
