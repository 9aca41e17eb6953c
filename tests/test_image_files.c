/* Image files as data sets: folders of classes, lists of paths, iNaturalist's JSON. */
#include "check.h"
#include "data.h"
#include "image_files.h"

#include <dro/loader.h>

#include <sys/stat.h>
#include <unistd.h>

#define IMAGES DRO_TEST_DIR "/refs/images/"
#define LISTS  DRO_SHARED_DATA "/lists/"

/* ---- a folder for each test ---- */

typedef struct place {
    dro_context *ctx;
    char dir[64];
} place;

static int set_up(void **state)
{
    place *p = calloc(1, sizeof *p);
    p->ctx = check_context("ref", 2);
    strcpy(p->dir, "/tmp/dro-images-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    *state = p;
    return 0;
}

static int tear_down(void **state)
{
    place *p = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", p->dir);
    assert_int_equal(system(command), 0);
    dro_context_destroy(p->ctx);
    free(p);
    return 0;
}

static const char *in_place(const place *p, const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", p->dir, name);
    return path;
}

/* Writes a file and the folders above it. */
static void put(const place *p, const char *name, const void *bytes, size_t size)
{
    char path[256];
    strcpy(path, in_place(p, name));
    for (char *slash = path + strlen(p->dir) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

static void put_text(const place *p, const char *name, const char *text)
{
    put(p, name, text, strlen(text));
}

/* A grey image of 4 x 2 pixels, left half a, right half b. */
static void put_pgm(const place *p, const char *name, char a, char b)
{
    char bytes[] = "P5 4 2 255\n........";
    memset(bytes + 11, a, 8);
    memset(bytes + 13, b, 2);
    memset(bytes + 17, b, 2);
    put(p, name, bytes, 19);
}

/* format:DIR/NAME with %s for the folder wherever it stands. */
static dro_status open_spec(const place *p, const char *pattern, dro_data **data)
{
    char spec[1024];
    size_t used = 0;
    for (const char *c = pattern; *c && used < sizeof spec; c++)
        used += (size_t)(*c == '%' ? snprintf(spec + used, sizeof spec - used, "%s", p->dir)
                                   : snprintf(spec + used, sizeof spec - used, "%c", *c));
    assert_true(used < sizeof spec);
    return dro_data_open(p->ctx, spec, data);
}

static void refused(const place *p, const char *pattern, dro_status status, const char *part)
{
    dro_data *data = (dro_data *)1;
    FAILS(p->ctx, open_spec(p, pattern, &data), status, part);
    assert_null(data);
}

/* ---- images:DIR ---- */

static void check_paths(const place *p, dro_data *data, dro_split split, const char *const *names)
{
    dro_examples e;
    OK(p->ctx, dro_data_examples(data, split, &e));
    for (int64_t i = 0; i < e.count; i++)
        assert_string_equal(e.paths[i], in_place(p, names[i]));
}

static void test_folders(void **state)
{
    const place *p = *state;
    static const char *const names[] = {"b/1.JPG",          "b/2.png",    "b/deeper/3.jpg",
                                        "b/deeper/a/0.jpg", "c/x.y.jpeg", "d/z.pnm"};
    for (int k = 5; k >= 0; k--)
        put_text(p, names[k], "not looked at");
    put_text(p, "b/.hidden.jpg", "");
    put_text(p, "b/notes.txt", "");
    put_text(p, "b/.hidden/5.jpg", "");
    put_text(p, ".git/4.jpg", "");
    put_text(p, "readme.jpg", "");
    dro_data *data;
    dro_data_info info;
    OK(p->ctx, open_spec(p, "images:%", &data));
    OK(p->ctx, dro_data_info_get(data, &info));
    assert_int_equal(info.kind, DRO_DATA_FILES);
    assert_int_equal(info.classes, 3);
    assert_string_equal(info.class_names[2], "d");
    assert_int_equal(info.examples[DRO_TRAIN], 6);
    assert_int_equal(info.examples[DRO_TEST], 0);
    assert_int_equal(info.counts[DRO_TRAIN][0], 4);
    assert_true(info.channels == 3 && info.width == 0 && info.height == 0);
    check_paths(p, data, DRO_TRAIN, names);
    dro_data_close(data);
    OK(p->ctx, open_spec(p, "images:%/,channels=1", &data));
    check_paths(p, data, DRO_TRAIN, names);
    dro_data_close(data);
    refused(p, "images:%,channels=2", DRO_ERR_RANGE, "1 (greyscale) or 3");
    refused(p, "images:%,root=x", DRO_ERR_NAME, "root");
}

static void test_splits(void **state)
{
    const place *p = *state;
    dro_data *data;
    static const char *const train[] = {"train/a/1.jpg", "train/b/2.jpg"}, *const test[] = {
                                                                               "val/b/3.jpg"};
    put_text(p, train[0], "");
    put_text(p, train[1], "");
    put_text(p, test[0], "");
    put_text(p, "test/no-classes.jpg", "");
    OK(p->ctx, open_spec(p, "images:%", &data));
    assert_int_equal(data->classes, 2);
    assert_int_equal(data->split[DRO_TEST].n, 1);
    assert_int_equal(data->split[DRO_TEST].labels[0], 1);
    check_paths(p, data, DRO_TRAIN, train);
    check_paths(p, data, DRO_TEST, test);
    dro_data_close(data);
    put_text(p, "val/c/4.jpg", "");
    refused(p, "images:%", DRO_ERR_DATA, "val/c: a class that the training set does not have");
}

/* Other names of the sets; val is the holdout where there is a test set, unless one is drawn. */
static void test_three_sets(void **state)
{
    const place *p = *state;
    dro_data *data;
    static const char *const train[] = {"Training/a/1.pgm", "Training/b/1.pgm"};
    static const char *const test[] = {"TEST/b/2.pgm"};
    static const char *const val[] = {"valid/a/3.pgm", "valid/b/3.pgm"};
    put_pgm(p, train[0], 1, 2);
    put_pgm(p, train[1], 3, 4);
    put_pgm(p, test[0], 5, 6);
    put_pgm(p, val[0], 7, 8);
    put_pgm(p, val[1], 9, 10);
    put_text(p, "__MACOSX/Training/a/1.pgm", "");
    put_text(p, "Training/__MACOSX/1.pgm", "");
    OK(p->ctx, open_spec(p, "images:%", &data));
    assert_int_equal(data->classes, 2);
    assert_int_equal(data->split[DRO_HOLDOUT].n, 2);
    check_paths(p, data, DRO_TRAIN, train);
    check_paths(p, data, DRO_TEST, test);
    check_paths(p, data, DRO_HOLDOUT, val);
    assert_null(dro_data_remark(data, 0));
    dro_data_close(data);
    OK(p->ctx, open_spec(p, "images:%,size=2", &data));
    assert_int_equal(data->split[DRO_HOLDOUT].pixels[12], 9);
    dro_data_close(data);
    OK(p->ctx, open_spec(p, "images:%,holdout=0.5", &data));
    assert_int_equal(data->split[DRO_HOLDOUT].n, 0); /* one of each class stays */
    assert_non_null(
        strstr(dro_data_remark(data, 0), "1 folder beside Training and TEST is not read (valid)"));
    dro_data_close(data);
}

static void test_class_called_train(void **state)
{
    const place *p = *state;
    dro_data *data;
    put_text(p, "train/1.jpg", "");
    put_text(p, "car/2.jpg", "");
    OK(p->ctx, open_spec(p, "images:%", &data));
    assert_int_equal(data->classes, 2);
    assert_int_equal(data->split[DRO_TRAIN].n, 2);
    assert_string_equal(data->class_names[1], "train");
    dro_data_close(data);
}

/* A name that no JSON can hold is not replaced by another. */
static void test_folder_bytes(void **state)
{
    const place *p = *state;
    put_pgm(p, "bytes/th\xe9/1.pgm", 0, 1);
    put_pgm(p, "bytes/caf\xe9/1.pgm", 0, 1);
    refused(p, "images:%/bytes", DRO_ERR_DATA,
            "bytes/caf\\xe9: the name of this class is not UTF-8: rename the folder");
}

static void test_bad_folders(void **state)
{
    const place *p = *state;
    refused(p, "images:%", DRO_ERR_DATA, "no folders in it");
    refused(p, "images:%/nowhere", DRO_ERR_FILE, "nowhere: cannot open the folder");
    put_text(p, "a/readme.txt", "");
    refused(p, "images:%", DRO_ERR_DATA, "a: no images in the folder of a class");
    refused(p, "images:%", DRO_ERR_DATA, "only others such as ");
    refused(p, "images:%", DRO_ERR_DATA, "a/readme.txt: expected .jpg");
    put_text(p, "a/1.jpg", "");
    mkdir(in_place(p, "b"), 0777);
    refused(p, "images:%", DRO_ERR_DATA, "files (remove the folder if it is no class)");
    rmdir(in_place(p, "b"));
    refused(p, "images:%/a/1.jpg", DRO_ERR_FILE, "1.jpg");
    assert_int_equal(symlink("2.jpg", in_place(p, "a/2.jpg")), 0);
    refused(p, "images:%", DRO_ERR_FILE, "a/2.jpg: Too many levels");
    unlink(in_place(p, "a/2.jpg"));
    assert_int_equal(symlink("..", in_place(p, "a/up.jpg")), 0); /* a folder, whatever its name */
    refused(p, "images:%", DRO_ERR_FILE, "a/up.jpg: a symbolic link to a folder above it");
    unlink(in_place(p, "a/up.jpg"));
    mkdir(in_place(p, "a/b"), 0777);
    assert_int_equal(symlink("..", in_place(p, "a/b/c")), 0);
    refused(p, "images:%", DRO_ERR_FILE, "a/b/c: a symbolic link to a folder above it");
}

/* ---- size=N ---- */

static void test_loading(void **state)
{
    const place *p = *state;
    dro_data *data;
    dro_data_info info;
    dro_examples e;
    put_pgm(p, "a/1.pgm", 10, 20);
    put_pgm(p, "a/3.pgm", 30, 40);
    put_pgm(p, "b/4.pgm", 50, 60);
    put_text(p, "a/2.pgm", "P5 what?");
    refused(p, "images:%,size=2", DRO_ERR_DATA, "a/2.pgm: byte 3: expected the width");
    refused(p, "images:%,size=0", DRO_ERR_RANGE, "size=0");
    OK(p->ctx, open_spec(p, "images:%,size=2,skip_bad=1", &data));
    OK(p->ctx, dro_data_info_get(data, &info));
    OK(p->ctx, dro_data_examples(data, DRO_TRAIN, &e));
    assert_int_equal(info.kind, DRO_DATA_PIXELS);
    assert_true(info.width == 2 && info.height == 2 && info.channels == 3);
    assert_int_equal(info.skipped, 1);
    assert_int_equal(info.bytes_read, 3 * 19 + 8);
    assert_int_equal(e.count, 3);
    assert_int_equal(e.records[1], 2);
    assert_int_equal(e.labels[1] * 10 + e.labels[2], 1);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 12;
             k++) /* the square in the middle: the two inner columns as they are */
            assert_int_equal(e.pixels[12 * i + k], 10 + 20 * i + 10 * (k % 2));
    dro_data_close(data);
    put_text(p, "b/5.pgm", "");
    refused(p, "images:%,size=2,skip_bad=1", DRO_ERR_DATA, "b/5.pgm: is empty");
    OK(p->ctx, open_spec(p, "images:%,size=2,skip_bad=2,channels=1", &data));
    assert_int_equal(data->skipped.count, 2);
    OK(p->ctx, dro__trainable(data));
    dro_data_close(data);
    put_text(p, "b/4.pgm", "P5"); /* the last of its class */
    OK(p->ctx, open_spec(p, "images:%,size=2,skip_bad=3", &data));
    assert_non_null(
        strstr(dro_data_skipped(data, 2), "; no image of class 'b' is left in the train"));
    assert_int_equal(dro__trainable(data), DRO_ERR_DATA);
    assert_non_null(strstr(dro_context_error(p->ctx), "class 'b': none of its training images"));
    dro_data_close(data);
}

/* Colours become planes. */
static void test_planes(void **state)
{
    const place *p = *state;
    dro_data *data;
    put(p, "a/1.ppm", "P6 1 1 255\n\1\2\3", 14);
    OK(p->ctx, open_spec(p, "images:%,size=2", &data));
    for (int k = 0; k < 12; k++)
        assert_int_equal(data->split[DRO_TRAIN].pixels[k], 1 + k / 4);
    dro_data_close(data);
}

/* ---- list:FILE ---- */

static void test_list(void **state)
{
    const place *p = *state;
    dro_data *data;
    dro_data_info info;
    static const char *const names[] = {"root/a/1.jpg", "root/a b/2.jpg", "root/..c/3.jpg"};
    put_text(p, "l.txt",
             "\xef\xbb\xbf"
             "a/1.jpg 0\n\na b/2.jpg\t 1 \r\n..c/3.jpg 1");
    put_text(p, "t.txt", "x.jpg 1\n");
    mkdir(in_place(p, "root"), 0777);
    OK(p->ctx, open_spec(p, "list:%/l.txt,root=%/root,test=%/t.txt", &data));
    OK(p->ctx, dro_data_info_get(data, &info));
    assert_int_equal(info.classes, 2);
    assert_string_equal(info.class_names[1], "1");
    assert_int_equal(info.examples[DRO_TRAIN], 3);
    assert_int_equal(info.counts[DRO_TRAIN][1], 2);
    assert_int_equal(info.counts[DRO_TEST][1], 1);
    check_paths(p, data, DRO_TRAIN, names);
    for (int k = 0; k < 3; k++) /* lines, from 0 on: the second is blank */
        assert_int_equal(data->split[DRO_TRAIN].records[k], k + (k > 0));
    /* Label, record, place and path of each of the four images. */
    assert_int_equal(info.memory, 4 * (4 + 8 + 8 + strlen(p->dir) + 7) + 7 + 9 + 9 + 5);
    dro_data_close(data);
    put_text(p, "few.txt", "x.jpg 0\n"); /* a test set with fewer classes */
    OK(p->ctx, open_spec(p, "list:%/l.txt,root=%/root,test=%/few.txt", &data));
    assert_int_equal(data->classes, 2);
    OK(p->ctx, dro__trainable(data));
    dro_data_close(data);
}

/* A class without a training example can be read, for a model that knows it, and not trained. */
static void test_list_gaps(void **state)
{
    const place *p = *state;
    dro_data *data;
    put_text(p, "l.txt", "a.jpg 0\nb.jpg 999999\nc.jpg 2\n");
    put_text(p, "t.txt", "x.jpg 0\n\ny.jpg 1\n");
    OK(p->ctx, open_spec(p, "list:%/l.txt,root=%", &data));
    assert_non_null(strstr(dro_data_remark(data, 0), "l.txt: line 2: label 999999, but no line has "
                                                     "label 1: expected all from 0 on"));
    FAILS(p->ctx, dro__trainable(data), DRO_ERR_DATA, "l.txt: line 2: label 999999");
    dro_data_close(data);
    refused(p, "list:%/l.txt,root=%,test=%/t.txt", DRO_ERR_DATA,
            "t.txt: line 3: label 1: expected one that the training file has");
    put_text(p, "t.txt", "x.jpg 1000000\n");
    refused(p, "list:%/l.txt,root=%,test=%/t.txt", DRO_ERR_DATA, "t.txt: line 1: the label is ab");
}

/* Files that are not read are reported. */
static void test_remarks(void **state)
{
    const place *p = *state;
    static const char *const remarks[] = {
        "1 folder beside train and test is not read (more)",
        "2 files in the folders of classes are not read (",
        "1 image beside the folders of classes is not read (",
    };
    static const char *const files[] = {"train/a/1.pgm",    "train/a/w.webp",  "train/b/in/2.pgm",
                                        "train/b/in/x.bmp", "train/b/.hidden", "train/3.pgm",
                                        "train/README",     "test/a/4.pgm",    "more/a/5.pgm"};
    dro_data *data;
    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++)
        put_pgm(p, files[k], 1, 2);
    OK(p->ctx, open_spec(p, "images:%", &data));
    for (int k = 0; k < 3; k++)
        assert_non_null(strstr(dro_data_remark(data, k), remarks[k]));
    assert_non_null(strstr(dro_data_remark(data, 1), "train/a/w.webp): expected .jpg"));
    assert_non_null(strstr(dro_data_remark(data, 2), "train/3.pgm): expected each"));
    assert_null(dro_data_remark(data, 3));
    dro_data_close(data);
}

/* A pipe that nobody writes into is not waited for, whoever reads it. */
static void test_pipe(void **state)
{
    const place *p = *state;
    dro_data *data;
    dro_loader *loader;
    dro_loaded batch;
    dro_loader_options o = dro_loader_options_default();
    put_text(p, "l.txt", "pipe.jpg 0\n");
    assert_int_equal(mkfifo(in_place(p, "pipe.jpg"), 0666), 0);
    alarm(60);
    refused(p, "list:%/l.txt,root=%,size=4", DRO_ERR_FILE,
            "pipe.jpg: is not a regular file: expected an image (line 1 of ");
    OK(p->ctx, open_spec(p, "list:%/l.txt,root=%", &data));
    o.batch = 1;
    OK(p->ctx, dro_loader_create(data, DRO_TRAIN, &o, &loader));
    FAILS(p->ctx, dro_loader_draw(loader, 0, &batch), DRO_ERR_FILE, "is not a regular file");
    alarm(0);
    dro_loader_destroy(loader);
    dro_data_close(data);
}

static void test_bad_lists(void **state)
{
    const place *p = *state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "l.txt: is empty"},
        {"\n \n", "is empty"},
        {"a 1\nb", "l.txt: line 2: expected `path label`"},
        {"a 1\n\nb x", "line 3: expected a label"},
        {"a -1", "line 1: expected a label"},
        {"a 1.5", "line 1: expected a label"},
        {"a 99999999999999999999", "line 1: the label is above"},
        {"/etc/passwd 1", "line 1: the path '/etc/passwd' is absolute"},
        {"a 1\n../b 1", "line 2: the path '../b' has '..'"},
        {"a/../../b 1", "has '..'"},
        {"a/.. 1", "has '..'"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        put_text(p, "l.txt", cases[k].text);
        refused(p, "list:%/l.txt,root=%", DRO_ERR_DATA, cases[k].part);
    }
    put(p, "l.txt", "a\0b 1\n", 6);
    refused(p, "list:%/l.txt,root=%", DRO_ERR_DATA, "zero byte");
    put_text(p, "l.txt", "a.jpg 1");
    refused(p, "list:%/l.txt", DRO_ERR_ARGUMENT, "root=DIR");
    refused(p, "list:%/none.txt,root=%", DRO_ERR_FILE, "none.txt");
    refused(p, "list:%/l.txt,root=%,test=%/none.txt", DRO_ERR_FILE, "none.txt");
    put_text(p, "l.txt", "\na.jpg 1");
    refused(p, "list:%/l.txt,root=%,size=4", DRO_ERR_FILE, "a.jpg: cannot open");
    refused(p, "list:%/l.txt,root=%,size=4", DRO_ERR_FILE, "(line 2 of ");
    refused(p, "list:%/l.txt,root=%/none", DRO_ERR_FILE, "none: there is no such folder");
    refused(p, "list:%/l.txt,root=%/l.txt", DRO_ERR_FILE, "l.txt: there is no such folder");
}

/* ---- inat:FILE ---- */

#define TWO_IMAGES "\"images\":[{\"id\":9,\"file_name\":\"x\"},{\"id\":7,\"file_name\":\"y\"}]"
#define NOTES                                                                                      \
    "\"annotations\":[{\"image_id\":7,\"category_id\":50},{\"image_id\":9,\"category_id\":-3}]"

static bool no_json(const place *p)
{
    dro_data *data;
    put_text(p, "j.json", "{}");
    bool missing = open_spec(p, "inat:%/j.json,root=%", &data) == DRO_ERR_UNSUPPORTED;
    if (missing)
        print_message("left out: this build has no jansson\n");
    return missing;
}

static void test_inat(void **state)
{
    const place *p = *state;
    static const char *const names[] = {"r/x", "r/y"};
    dro_data *data;
    if (no_json(p))
        return;
    put_text(p, "j.json", "{" TWO_IMAGES "," NOTES "}");
    mkdir(in_place(p, "r"), 0777);
    OK(p->ctx, open_spec(p, "inat:%/j.json,root=%/r", &data));
    assert_int_equal(data->classes, 2);
    assert_string_equal(data->class_names[0], "-3");
    assert_int_equal(data->split[DRO_TRAIN].labels[0], 0);
    assert_int_equal(data->split[DRO_TRAIN].labels[1], 1);
    check_paths(p, data, DRO_TRAIN, names);
    dro_data_close(data);
    put_text(p, "t.json",
             "{\"images\":[{\"id\":1,\"file_name\":\"z\"}],\"annotations\":[{\"image_id\":1,"
             "\"category_id\":8}],\"categories\":[{\"id\":50,\"name\":\"fly\"},{\"id\":-3},"
             "{\"id\":8,\"name\":\"ant\"}]}");
    OK(p->ctx, open_spec(p, "inat:%/j.json,root=%/r,test=%/t.json", &data));
    assert_int_equal(data->classes, 3);
    assert_string_equal(data->class_names[0], "-3");
    assert_string_equal(data->class_names[1], "ant");
    assert_string_equal(data->class_names[2], "fly");
    assert_int_equal(data->split[DRO_TRAIN].labels[1], 2);
    assert_int_equal(data->split[DRO_TEST].labels[0], 1);
    dro_data_close(data);
}

static const struct {
    const char *text, *part;
} bad_inat[] = {
    {"", "j.json: line 1, column 0: not JSON"},
    {"[1]", "expected an object"},
    {"{", "not JSON"},
    {"{\"images\":[],\"images\":[]}", "not JSON: duplicate object key"},
    {"{}", "'images' is missing: expected an array"},
    {"{\"images\":7}", "'images' is not an array"},
    {"{" TWO_IMAGES "}", "'annotations' is missing"},
    {"{\"images\":[],\"annotations\":[]}", "0 categories"},
    {"{\"images\":[]," NOTES "}", "'images' is empty"},
    {"{\"images\":[{\"id\":9,\"file_name\":\"x\"},{\"id\":9,\"file_name\":\"y\"}]," NOTES "}",
     "images[1]: id 9 is that of images[0] too"},
    {"{\"images\":[{\"id\":9,\"file_name\":\"x\"},{\"id\":7}]," NOTES "}",
     "images[1]: 'file_name' is missing"},
    {"{\"images\":[{\"id\":9,\"file_name\":\"x\"},{\"id\":7,\"file_name\":\"a/../y\"}]," NOTES "}",
     "images[1]: the path 'a/../y' has '..'"},
    {"{\"images\":[{\"id\":1.5,\"file_name\":\"x\"}]," NOTES "}",
     "images[0]: 'id' is not an integer"},
    {"{\"images\":[3]," NOTES "}", "images[0]: 'id' is missing"},
    {"{\"images\":[{\"id\":99999999999999999999,\"file_name\":\"x\"}]," NOTES "}",
     "too big integer"},
    {"{" TWO_IMAGES ",\"annotations\":[{\"image_id\":7,\"category_id\":5}]}",
     "images[0]: 'x' has no annotation"},
    {"{" TWO_IMAGES ",\"annotations\":[{\"image_id\":7}]}",
     "annotations[0]: 'category_id' is missing"},
    {"{" TWO_IMAGES ",\"annotations\":[{\"image_id\":\"7\",\"category_id\":5}]}",
     "annotations[0]: 'image_id' is not an integer"},
    {"{" TWO_IMAGES ",\"annotations\":[{\"image_id\":8,\"category_id\":5}]}",
     "annotations[0]: there is no image 8"},
    {"{" TWO_IMAGES ",\"annotations\":[{\"image_id\":7,\"category_id\":5},{\"image_id\":7,"
     "\"category_id\":5}]}",
     "annotations[1]: image 7 has another annotation"},
    {"{" TWO_IMAGES "," NOTES ",\"categories\":[{\"id\":50}]}",
     "annotations[1]: there is no category -3"},
    {"{" TWO_IMAGES "," NOTES ",\"categories\":[{\"id\":50},{\"id\":50}]}",
     "categories[1]: id 50 is that of categories[0]"},
    {"{" TWO_IMAGES "," NOTES ",\"categories\":[{\"id\":50,\"name\":3}]}",
     "categories[0]: 'name' is not a string"},
    {"{" TWO_IMAGES "," NOTES ",\"categories\":{}}", "'categories' is not an array"},
};

static void test_bad_inat(void **state)
{
    const place *p = *state;
    if (no_json(p))
        return;
    for (size_t k = 0; k < sizeof bad_inat / sizeof bad_inat[0]; k++) {
        put_text(p, "j.json", bad_inat[k].text);
        refused(p, "inat:%/j.json,root=%", DRO_ERR_DATA, bad_inat[k].part);
    }
    char *deep = malloc(1000001);
    memset(deep, '[', 1000000);
    deep[1000000] = '\0';
    put_text(p, "j.json", deep);
    free(deep);
    refused(p, "inat:%/j.json,root=%", DRO_ERR_DATA, "maximum parsing depth");
    refused(p, "inat:%/j.json", DRO_ERR_ARGUMENT, "root=DIR");
}

/* ---- the shared data ---- */

static void test_shared(void **state)
{
    const place *p = *state;
    dro_data *data;
    if (access(LISTS "Places_LT_train.txt", R_OK) != 0) {
        print_message("skipped: no " LISTS "\n");
        return;
    }
    OK(p->ctx, open_spec(p, "list:" LISTS "Places_LT_train.txt,root=%", &data));
    assert_int_equal(data->split[DRO_TRAIN].n, 62500);
    assert_int_equal(data->classes, 365);
    dro_data_close(data);
    if (no_json(p))
        return;
    OK(p->ctx, open_spec(p, "inat:" LISTS "iNaturalist19_val2019.json,root=%", &data));
    assert_int_equal(data->split[DRO_TRAIN].n, 3030);
    assert_int_equal(data->classes, 1010);
    for (int k = 0; k < 1010; k++)
        assert_int_equal(data->counts[DRO_TRAIN][k], 3);
    dro_data_close(data);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    TEST(test_folders),      TEST(test_splits),  TEST(test_class_called_train),
    TEST(test_bad_folders),  TEST(test_loading), TEST(test_planes),
    TEST(test_folder_bytes), TEST(test_list),    TEST(test_list_gaps),
    TEST(test_bad_lists),    TEST(test_inat),    TEST(test_bad_inat),
    TEST(test_shared),       TEST(test_pipe),    TEST(test_remarks),
    TEST(test_three_sets),
};

CHECK_MAIN(tests)
