/* Reading JSON that may hold anything (report_json.h). */
#include "report_json.h"

#if DRO_WITH_JANSSON
#include "report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const json_t *dro__json_at(const json_t *object, const char *path)
{
    while (object && *path) {
        char name[64];
        size_t size = strcspn(path, ".");
        if (size >= sizeof name)
            return NULL;
        memcpy(name, path, size);
        name[size] = '\0';
        object = json_object_get(object, name);
        path += size + (path[size] == '.');
    }
    return object;
}

double dro__json_number(const json_t *object, const char *path)
{
    const json_t *value = dro__json_at(object, path);
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    return isfinite(number) ? number : NAN;
}

char *dro__json_text(const json_t *object, const char *path)
{
    char digits[32];
    const json_t *value = dro__json_at(object, path);
    if (json_is_string(value))
        return dro__copy_text(json_string_value(value));
    if (!json_is_number(value))
        return NULL;
    snprintf(digits, sizeof digits, "%.15g", json_number_value(value));
    return dro__copy_text(digits);
}

void dro__json_set_text(char **text, const json_t *object, const char *path)
{
    char *found = dro__json_text(object, path);
    if (found) {
        dro__free(*text);
        *text = found;
    }
}

void dro__json_set_numbers(double **values, int32_t *count, const json_t *object, const char *path)
{
    const json_t *array = dro__json_at(object, path);
    size_t size = json_array_size(array);
    if (size == 0 || size > DRO__CLASSES_MOST)
        return;
    double *found = dro__alloc(size, sizeof *found);
    if (!found)
        return;
    for (size_t k = 0; k < size; k++)
        found[k] = dro__json_number(json_array_get(array, k), "");
    dro__free(*values);
    *values = found;
    *count = (int32_t)size;
}

/* NaN and infinities, which some writers leave in JSON, become null; in place, outside of
 * strings. */
static void mend_numbers(char *line)
{
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    bool quoted = false;
    for (char *at = line; *at; at++) {
        if (quoted && *at == '\\' && at[1])
            at++;
        else if (*at == '"')
            quoted = !quoted;
        for (int k = 0; !quoted && k < 3; k++) {
            size_t size = strlen(words[k]);
            if (strncmp(at, words[k], size) != 0)
                continue;
            /* NaN has three bytes only: an empty text is not a number either */
            memcpy(at, size == 3 ? "\"\" " : "null     ", size);
            at += size - 1;
            break;
        }
    }
}

json_t *dro__json_line(char *line, size_t size)
{
    json_t *object = json_loadb(line, size, 0, NULL);
    if (!object) {
        mend_numbers(line);
        object = json_loadb(line, size, 0, NULL);
    }
    if (json_is_object(object))
        return object;
    json_decref(object);
    return NULL;
}

#endif
