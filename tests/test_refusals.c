/* Input that the readers refuse, format by format: a file with one thing wrong, and the two parts
 * of the message that name the place and what was expected. The ordinary cases are in test_data_*;
 * these are files that a careless or hostile writer might produce. */
#include "data_text.h"

#include <dro/loader.h>

/* ---- text ---- */

#define ALL(format, cases) refuses_all(format, cases, sizeof(cases) / sizeof(cases)[0])

static void refuses_options(const char *format, const char *text, const char *const (*cases)[3],
                            size_t count)
{
    for (size_t k = 0; k < count; k++) {
        dro_data *data = (dro_data *)&data;
        dro_status status = dro_data_open(ctx, spec_for(format, text, cases[k][0]), &data);
        if (status == DRO_OK || data || !strstr(dro_context_error(ctx), cases[k][1]) ||
            !strstr(dro_context_error(ctx), cases[k][2]))
            fail_msg("%s%s: %d: %s", format, cases[k][0], (int)status, dro_context_error(ctx));
    }
}

static void test_csv(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"a,y\n1,p\ninf,q\n", ",label=y", "line 3", "infinite"},
        {"a,y\n1,p\n-1e999,q\n", ",label=y", "line 3", "infinite"},
        {"", ",label=y", "is empty", "rows of cells"},
        {"a,y\n1,p\n2,q,r\n", ",label=y", "line 3", "expected 2"},
        {"a,y\n\"1,p\n2,q\n", ",label=y", "line 2", "quote"},
        {"y\np\nq\n", ",label=y", "line 2", "at least one feature"},
    };
    static const char *const options[][3] = {
        {",label=y,decimal=dot", "decimal=dot", "point, comma or auto"},
        {",label=y,header=maybe", "header=maybe", "yes, no or auto"},
        {",label=y,target=float", "target=float", "real or class"},
        {",label=0", "label=0", "counted from 1"},
        {",label=z", "z", "column"},
        {",label=y,group=z", "z", "column"},
        {",label=y,weight=z", "z", "column"},
        {",label=y,drop=z", "z", "column"},
        {",label=y,sep=ab", "sep=ab", "semicolon"},
        {",label=y,encoding=utf7", "encoding=utf7", "latin1"},
        {",label=y,longtail=steep", "longtail=steep", "exp:R"},
        {",label=y,longtail=exp:0.5", "longtail=exp:0.5", "R >= 1"},
        {",label=y,imratio=2", "imratio=2", "expected"},
        {",label=y,holdout=1", "holdout=1", "expected"},
        {",label=y,skip_bad=-1", "skip_bad=-1", "expected"},
        {",label=y,label=a", "label", "twice"},
        {",label=y,sze=3", "no option 'sze'", "it has"},
        {",label=y,", "option", "expected"},
    };
    ALL("csv", cases);
    refuses_options("csv", "a,y\n1,p\n2,q\n3,p\n4,q\n", options,
                    sizeof options / sizeof options[0]);
}

static void test_libsvm(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"x 1:1\n", "", "line 1", "one number, then index:value"},
        {"nan 1:1\n", ",target=real", "line 1", "one finite number"},
        {"1 qid:3 1:1\n", "", "line 1", "qid=ignore"},
        {"1 0:1\n", "", "line 1", "base=0"},
        {"1 2:1 1:1\n", "", "line 1: index 1 after 2", "increasing indices"},
        {"1 2:1 2:1\n", "", "line 1: index 2 after 2", "increasing indices"},
        {"1 1:x\n", "", "line 1", "a finite number"},
        {"1 1:inf\n", "", "line 1", "finite"},
        {"1 1:\n", "", "line 1", "expected"},
    };
    static const char *const options[][3] = {
        {",classes=a:b", "classes=a:b", "whole numbers"},
        {",base=2", "base=2", "expected"},
        {",features=0", "features=0", "expected"},
        {",target=odd", "target=odd", "expected"},
    };
    ALL("libsvm", cases);
    refuses_options("libsvm", "1 1:1\n-1 1:2\n", options, sizeof options / sizeof options[0]);
}

/* ---- NumPy headers ---- */

static const char *npy_spec(const char *header)
{
    static char spec[256];
    char bytes[512];
    size_t size = strlen(header);
    memcpy(bytes, "\x93NUMPY\x01\x00", 8);
    bytes[8] = (char)(size & 255);
    bytes[9] = (char)(size >> 8);
    memcpy(bytes + 10, header, size);
    memset(bytes + 10 + size, 0, 64);
    write_file("x.npy", bytes, 10 + size + 64);
    write_file("y.npy", bytes, 10 + size + 64);
    snprintf(spec, sizeof spec, "npy:%s/x.npy,labels=%s/y.npy", dir, dir);
    return spec;
}

static void test_npy_header(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616, 2), }",
         "a size below 2^64"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': 4, }", "the shape, in brackets"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }",
         "no more than 8 dimensions"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 2), }", "a comma after a size"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4), }", "a comma after a size"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (04, 1), }", "a size"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': (4, 1), }", "True or False"},
        {"{'descr': '<f4', 'descr': '<f4', 'shape': (4, 1), }", "each once"},
        {"{'odd': 1, }", "each once"},
        {"{'descr': '<f4', 'shape': (4, 1), }", "descr, fortran_order and shape"},
        {"{'descr' '<f4'}", ":"},
        {"{'descr': '<f4' 'shape'}", ", or }"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 1), } x", "nothing after }"},
        {"{'descr': '<f4", "closing quote"},
        {"{'descr': '<\\x664'", "without escapes"},
        {"{'a word that is longer than every key of a header': 1}", "a short word"},
        {"{'descr': [('a', '<f4')], }", "structured arrays are not supported"},
        {"{'descr': '|f4', 'fortran_order': False, 'shape': (4, 1), }", "expected numbers"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (4, 1), }", "expected numbers"},
        {"x", "{"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        refuses(npy_spec(cases[k][0]), DRO_ERR_DATA, "x.npy", cases[k][1]);
}

/* ---- an archive with one field changed ---- */

typedef struct archive {
    uint8_t bytes[1024];
    size_t size, local[2], central[2], end;
} archive;

static void put(archive *z, uint64_t value, int count)
{
    for (int k = 0; k < count; k++)
        z->bytes[z->size++] = k < 8 ? (uint8_t)(value >> (8 * k)) : 0;
}

static uint32_t crc_of(const uint8_t *bytes, size_t size)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

/* x (2, 1) and y (2), stored. */
static void make_archive(archive *z)
{
    static const char *const names[] = {"x.npy", "y.npy"}, *const shapes[] = {"(2, 1)", "(2,)"};
    uint8_t arrays[2][256];
    size_t sizes[2];
    *z = (archive){0};
    for (int k = 0; k < 2; k++) {
        memcpy(arrays[k], "\x93NUMPY\x01\x00", 8);
        int used = snprintf((char *)arrays[k] + 10, 200,
                            "{'descr': '|u1', 'fortran_order': False, 'shape': %s, }", shapes[k]);
        arrays[k][8] = (uint8_t)used;
        arrays[k][9] = 0;
        arrays[k][10 + used] = 0;
        arrays[k][11 + used] = 1;
        sizes[k] = (size_t)used + 12;
        z->local[k] = z->size;
        put(z, 0x04034b50, 4), put(z, 20, 2), put(z, 0, 8);
        put(z, crc_of(arrays[k], sizes[k]), 4), put(z, sizes[k], 4), put(z, sizes[k], 4);
        put(z, 5, 2), put(z, 0, 2);
        memcpy(z->bytes + z->size, names[k], 5), z->size += 5;
        memcpy(z->bytes + z->size, arrays[k], sizes[k]), z->size += sizes[k];
    }
    for (int k = 0; k < 2; k++) {
        z->central[k] = z->size;
        put(z, 0x02014b50, 4), put(z, 20, 2), put(z, 20, 2), put(z, 0, 8);
        put(z, crc_of(arrays[k], sizes[k]), 4), put(z, sizes[k], 4), put(z, sizes[k], 4);
        put(z, 5, 2), put(z, 0, 12), put(z, z->local[k], 4);
        memcpy(z->bytes + z->size, names[k], 5), z->size += 5;
    }
    z->end = z->size;
    put(z, 0x06054b50, 4), put(z, 0, 4), put(z, 2, 2), put(z, 2, 2);
    put(z, z->end - z->central[0], 4), put(z, z->central[0], 4), put(z, 0, 2);
}

static void test_archive(void **state)
{
    (void)state;
    enum { LOCAL, CENTRAL, END };
    static const struct {
        int record, at, count;
        uint64_t value;
        const char *expected;
    } cases[] = {
        {END, 4, 2, 1, "an archive on one disk"},
        {END, 8, 2, 9, "an archive on one disk"},
        {END, 12, 4, 1, "ends where its end record begins"},
        {END, 16, 4, 0xffffffff, "ends where its end record begins"},
        {END, 0, 4, 0, "the end record of a .npz"},
        {CENTRAL, 0, 4, 0, "an entry of the directory"},
        {CENTRAL, 28, 2, 0xffff, "an entry within the directory"},
        {CENTRAL, 30, 2, 3, "expected"},
        {CENTRAL, 24, 4, 1 << 30, "an uncompressed size that the compressed bytes can have"},
        {CENTRAL, 42, 4, 1 << 30, "entries before the directory"},
        {CENTRAL, 16, 4, 7, "CRC-32"},
        {LOCAL, 8, 2, 8, "as the directory describes it"},
        {LOCAL, 26, 2, 6, "as the directory describes it"},
        {LOCAL, 28, 2, 0xffff, "as the directory describes it"},
        {LOCAL, 30, 1, 'z', "as the directory describes it"},
    };
    archive z;
    char spec[256];
    dro_examples train, test;
    snprintf(spec, sizeof spec, "npy:%s/z.npz", dir);
    make_archive(&z);
    write_file("z.npz", z.bytes, z.size);
    dro_data_close(opened(spec, &train, &test));
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        make_archive(&z);
        size_t record = cases[k].record == LOCAL ? z.local[0] : z.central[0], size = z.size;
        z.size = (cases[k].record == END ? z.end : record) + (size_t)cases[k].at;
        put(&z, cases[k].value, cases[k].count);
        write_file("z.npz", z.bytes, size);
        refuses(spec, DRO_ERR_DATA, "z.npz", cases[k].expected);
    }
    make_archive(&z); /* encrypted; packed in a way that nobody has */
    z.bytes[z.central[0] + 8] = 1;
    write_file("z.npz", z.bytes, z.size);
    refuses(spec, DRO_ERR_UNSUPPORTED, "z.npz", "is encrypted");
    make_archive(&z);
    z.bytes[z.central[0] + 10] = z.bytes[z.local[0] + 8] = 14;
    write_file("z.npz", z.bytes, z.size);
    refuses(spec, DRO_ERR_UNSUPPORTED, "compressed by method 14", "expected stored");
}

/* ---- lists of images, and images ---- */

static void test_paths(void **state)
{
    (void)state;
    static const refusal cases[] = {
        {"/etc/passwd 0\n", ",root=%T", "line 1", "is absolute, not below the root"},
        {"a/../../b 0\n", ",root=%T", "line 1", "has '..' and may leave"},
        {".. 0\n", ",root=%T", "line 1", "has '..' and may leave"},
        {"a.png x\n", ",root=%T", "line 1", "a label at the end"},
        {"a.png 99999999\n", ",root=%T", "line 1", "the label is above"},
        {"", ",root=%T", "empty", ""},
    };
    dro_data *data = NULL;
    ALL("list", cases);
    FAILS(ctx, dro_data_open(ctx, spec_for("list", "a.png 0\n", ""), &data), DRO_ERR_ARGUMENT,
          "root=DIR");
    FAILS(ctx, dro_data_open(ctx, spec_for("list", "a.png 0\n", ",root=/nowhere"), &data),
          DRO_ERR_FILE, "no such folder");
}

static void test_pnm(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"P5x4 4 255\n", "expected space after P5"},
        {"P5 a 4 255\n", "the width"},
        {"P5 4 - 255\n", "the height"},
        {"P5 4 4 many\n", "the largest value"},
        {"P5 4 4", "the file ends"},
        {"P5 4 4 0\n", "expected 1 to 65535"},
        {"P5 4 4 65536\n", "expected 1 to 65535"},
        {"P5 0 4 255\n", "is empty"},
        {"P5 99999 4 255\n", "expected at most"},
        {"P5 4 4 255\n0123", "bytes"},
        {"P2 2 2 9\n1 2 3 10\n", "above the largest, 9"},
        {"P2 2 2 9\n1 2 3        \n", "the file ends"},
    };
    char spec[256];
    dro_data *data = NULL;
    mkdir(in_dir("im"), 0777);
    mkdir(in_dir("im/a"), 0777);
    mkdir(in_dir("im/b"), 0777);
    write_file("im/b/good.pgm", "P5 2 1 9\n\001\002", 11);
    snprintf(spec, sizeof spec, "images:%s/im,size=4", dir);
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        write_file("im/a/bad.pgm", cases[k][0], strlen(cases[k][0]));
        dro_loader_options options = dro_loader_options_default();
        dro_loader *loader = NULL;
        options.batch = 2;
        dro_status status = dro_data_open(ctx, spec, &data); /* looks at a few */
        dro_loaded batch;
        if (status == DRO_OK)
            status = dro_loader_create(data, DRO_TRAIN, &options, &loader);
        if (status == DRO_OK)
            status = dro_loader_draw(loader, 0, &batch);
        if (status == DRO_OK || !strstr(dro_context_error(ctx), cases[k][1]))
            fail_msg("%s: %d: %s", cases[k][0], (int)status, dro_context_error(ctx));
        dro_loader_destroy(loader);
        dro_data_close(data);
    }
}

/* ---- SPECs ---- */

static void test_specs(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"", "a SPEC is format:path"},
        {"csv:", "no path in the SPEC"},
        {"cifar10:-", "reads a folder, not stdin"},
        {"cifar10:/tmp,labels=fine", "no option 'labels'"},
        {"cifar100:/tmp,labels=odd", "fine or coarse"},
        {"nothing:x", "no format 'nothing'"},
        {"arrays:none", "none"},
    };
    static char longest[1 << 17] = "csv:";
    dro_data *data = NULL;
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++)
        if (dro_data_open(ctx, cases[k][0], &data) == DRO_OK ||
            !strstr(dro_context_error(ctx), cases[k][1]))
            fail_msg("'%s': %s", cases[k][0], dro_context_error(ctx));
    memset(longest + 4, 'x', sizeof longest - 5);
    FAILS(ctx, dro_data_open(ctx, longest, &data), DRO_ERR_RANGE, "the SPEC is longer than");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

static const struct CMUnitTest tests[] = {
    TEST(test_csv),   TEST(test_libsvm), TEST(test_npy_header), TEST(test_archive),
    TEST(test_paths), TEST(test_pnm),    TEST(test_specs),
};

CHECK_MAIN(tests)
