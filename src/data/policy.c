/* Draws the operations of AutoAugment (Cubuk et al. 2019, the policy found on CIFAR-10) and of
 * RandAugment (Cubuk et al. 2020). The strengths are torchvision's, which are the papers' with
 * these differences: the size of a translation is in proportion to the image, signs are random, and
 * new pixels are black. */
#include "augment.h"
#include "pixels.h"

#include <math.h>
#include <string.h>

/* Random numbers of a policy come after all those of crop, flip and jitter. */
enum { FIRST_DRAW = 1000, DRAWS_EACH = 4, BINS = 9, RAND_BINS = 30, POLICIES = 25 };

/* ---- one operation ---- */

static int32_t fixed(double x)
{
    return (int32_t)floor(x * 65536 + 0.5);
}

/* Output (x, y) is input (a x + b y + c, d x + e y + f) in coordinates of corners. */
static dro_operation affine(const double m[6])
{
    return (dro_operation){DRO__PIXELS_AFFINE,
                           {fixed(m[0]), fixed(m[1]), fixed(m[2] + (m[0] + m[1]) / 2), fixed(m[3]),
                            fixed(m[4]), fixed(m[5] + (m[3] + m[4]) / 2)}};
}

static dro_operation rotation(double degrees, double height, double width)
{
    double angle = -degrees * 3.14159265358979323846 / 180, c = cos(angle), s = sin(angle);
    double x = width / 2, y = height / 2;
    return affine((double[6]){c, s, x - c * x - s * y, -s, c, y + s * x - c * y});
}

dro_operation dro__operation_of(dro__change change, double magnitude, int32_t height, int32_t width)
{
    int32_t share = (int32_t)nearbyint((1 + magnitude) * DRO__PIXELS_ONE);
    switch (change) {
    case DRO__SHEAR_X:
        return affine((double[6]){1, magnitude, 0, 0, 1, 0});
    case DRO__SHEAR_Y:
        return affine((double[6]){1, 0, 0, magnitude, 1, 0});
    case DRO__TRANSLATE_X:
        return affine((double[6]){1, 0, -trunc(magnitude), 0, 1, 0});
    case DRO__TRANSLATE_Y:
        return affine((double[6]){1, 0, 0, 0, 1, -trunc(magnitude)});
    case DRO__ROTATE:
        return rotation(magnitude, height, width);
    case DRO__BRIGHTNESS:
        return (dro_operation){DRO__PIXELS_BRIGHTNESS, {share}};
    case DRO__COLOUR:
        return (dro_operation){DRO__PIXELS_COLOUR, {share}};
    case DRO__CONTRAST:
        return (dro_operation){DRO__PIXELS_CONTRAST, {share}};
    case DRO__SHARPNESS:
        return (dro_operation){DRO__PIXELS_SHARPNESS, {share}};
    case DRO__POSTERIZE:
        return (dro_operation){DRO__PIXELS_POSTERIZE, {256 - (1 << (8 - (int)magnitude))}};
    case DRO__SOLARIZE:
        return (dro_operation){DRO__PIXELS_SOLARIZE, {(int32_t)ceil(magnitude)}};
    case DRO__AUTOCONTRAST:
        return (dro_operation){DRO__PIXELS_AUTOCONTRAST, {0}};
    case DRO__EQUALIZE:
        return (dro_operation){DRO__PIXELS_EQUALIZE, {0}};
    case DRO__INVERT:
        return (dro_operation){DRO__PIXELS_INVERT, {0}};
    default:
        return (dro_operation){DRO__PIXELS_KEEP, {0}};
    }
}

/* ---- strengths: at `share` of the largest ---- */

static double draw(const dro__augment_random *random, unsigned k)
{
    return dro__random_unit(random->seed, random->stream, FIRST_DRAW + k);
}

static dro_operation at_strength(dro__change change, double share, bool negative, int32_t height,
                                 int32_t width)
{
    double most;
    switch (change) {
    case DRO__SHEAR_X:
    case DRO__SHEAR_Y:
        most = 0.3;
        break;
    case DRO__TRANSLATE_X:
        most = 150.0 / 331 * width;
        break;
    case DRO__TRANSLATE_Y:
        most = 150.0 / 331 * height;
        break;
    case DRO__ROTATE:
        most = 30;
        break;
    case DRO__POSTERIZE:
        return dro__operation_of(change, 8 - nearbyint(4 * share), height, width);
    case DRO__SOLARIZE:
        return dro__operation_of(change, 255 * (1 - share), height, width);
    default:
        most = 0.9;
    }
    return dro__operation_of(change, negative ? -most * share : most * share, height, width);
}

/* ---- policies ---- */

typedef struct step {
    uint8_t change, tenths, bin; /* how often, in tenths; its strength, of BINS */
} step;

static const step cifar10[POLICIES][2] = {
    {{DRO__INVERT, 1, 0}, {DRO__CONTRAST, 2, 6}},
    {{DRO__ROTATE, 7, 2}, {DRO__TRANSLATE_X, 3, 9}},
    {{DRO__SHARPNESS, 8, 1}, {DRO__SHARPNESS, 9, 3}},
    {{DRO__SHEAR_Y, 5, 8}, {DRO__TRANSLATE_Y, 7, 9}},
    {{DRO__AUTOCONTRAST, 5, 0}, {DRO__EQUALIZE, 9, 0}},
    {{DRO__SHEAR_Y, 2, 7}, {DRO__POSTERIZE, 3, 7}},
    {{DRO__COLOUR, 4, 3}, {DRO__BRIGHTNESS, 6, 7}},
    {{DRO__SHARPNESS, 3, 9}, {DRO__BRIGHTNESS, 7, 9}},
    {{DRO__EQUALIZE, 6, 0}, {DRO__EQUALIZE, 5, 0}},
    {{DRO__CONTRAST, 6, 7}, {DRO__SHARPNESS, 6, 5}},
    {{DRO__COLOUR, 7, 7}, {DRO__TRANSLATE_X, 5, 8}},
    {{DRO__EQUALIZE, 3, 0}, {DRO__AUTOCONTRAST, 4, 0}},
    {{DRO__TRANSLATE_Y, 4, 3}, {DRO__SHARPNESS, 2, 6}},
    {{DRO__BRIGHTNESS, 9, 6}, {DRO__COLOUR, 2, 8}},
    {{DRO__SOLARIZE, 5, 2}, {DRO__INVERT, 0, 0}},
    {{DRO__EQUALIZE, 2, 0}, {DRO__AUTOCONTRAST, 6, 0}},
    {{DRO__EQUALIZE, 2, 0}, {DRO__EQUALIZE, 6, 0}},
    {{DRO__COLOUR, 9, 9}, {DRO__EQUALIZE, 6, 0}},
    {{DRO__AUTOCONTRAST, 8, 0}, {DRO__SOLARIZE, 2, 8}},
    {{DRO__BRIGHTNESS, 1, 3}, {DRO__COLOUR, 7, 0}},
    {{DRO__SOLARIZE, 4, 5}, {DRO__AUTOCONTRAST, 9, 0}},
    {{DRO__TRANSLATE_Y, 9, 9}, {DRO__TRANSLATE_Y, 7, 9}},
    {{DRO__AUTOCONTRAST, 9, 0}, {DRO__SOLARIZE, 8, 3}},
    {{DRO__EQUALIZE, 8, 0}, {DRO__INVERT, 1, 0}},
    {{DRO__TRANSLATE_Y, 7, 9}, {DRO__AUTOCONTRAST, 9, 0}},
};

void dro__policy_draw(const dro__augment_random *random, int32_t height, int32_t width,
                      dro_operation operations[DRO_OPERATIONS])
{
    memset(operations, 0, DRO_OPERATIONS * sizeof *operations);
    bool autos = random->ways & DRO_AUGMENT_AUTOAUGMENT;
    const step *policy = cifar10[(int)(draw(random, 0) * POLICIES)];
    int count = autos ? 2 : random->operations;
    for (int i = 0; i < count && i < DRO_OPERATIONS; i++) {
        unsigned k = DRAWS_EACH * (unsigned)(i + 1);
        double chosen = draw(random, k);
        bool negative = draw(random, k + 1) < 0.5;
        if (!autos)
            operations[i] =
                at_strength((dro__change)(chosen * (DRO__IDENTITY + 1)),
                            (double)random->magnitude / RAND_BINS, negative, height, width);
        else if (chosen * 10 < policy[i].tenths)
            operations[i] = at_strength((dro__change)policy[i].change, policy[i].bin / (double)BINS,
                                        negative, height, width);
    }
}
