/* Log-probs of a reference on disk: read only for the description and the documents they are of. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <unistd.h>

#include "data/records/pipeline/prepared.h"
#include "optim/evaluate/refer.h"
#include "tests/data/scratch.h"

enum { N = 3 };

static const uint64_t documents[N] = {11, 22, 33};
static const float values[N] = {-1.5F, -2.25F, -0.125F};

static struct ax_reference_file of(const char *model, const uint64_t *of_documents) {
    static char cache[160];
    snprintf(cache, sizeof cache, "%s", in_scratch("cache"));
    return (struct ax_reference_file){cache, json_pack("{ss}", "model", model), of_documents, N};
}

static void done(struct ax_reference_file *f) {
    json_decref((json_t *)(uintptr_t)f->description);
}

/* Expects the refusal `why`, after which nothing has been read. */
static void refused(const struct ax_reference_file *f, const char *why) {
    float read[N] = {7, 8, 9};
    bool found = true;
    assert_int_equal(ax_reference_file_read(f, read, &found), AX_ERR_DATA);
    assert_non_null(strstr(ax_error_text(), why));
    ax_error_clear();
    assert_false(found);
    assert_true(read[0] == 7 && read[1] == 8 && read[2] == 9);
}

static void what_was_written_is_read(void **state) {
    (void)state;
    struct ax_reference_file f = of("a", documents), other = of("b", documents);
    float read[N];
    bool found = true;
    assert_int_equal(ax_reference_file_read(&f, read, &found), AX_OK);
    assert_false(found);
    assert_int_equal(ax_reference_file_write(&f, values), AX_OK);
    assert_int_equal(ax_reference_file_read(&f, read, &found), AX_OK);
    assert_true(found);
    assert_memory_equal(read, values, sizeof values);
    found = false;
    assert_int_equal(ax_reference_file_read(&f, NULL, &found), AX_OK);
    assert_true(found);
    assert_int_equal(ax_reference_file_read(&other, read, &found), AX_OK);
    assert_false(found);
    done(&f);
    done(&other);
}

/* More documents than the writer takes together. */
static void many_are_in_order(void **state) {
    (void)state;
    enum { MANY = 70000 };
    struct ax_reference_file f = of("many", NULL);
    uint64_t *of_documents;
    float *written, *read;
    bool found = false;
    assert_int_equal(ax_alloc(&of_documents, MANY, sizeof *of_documents), AX_OK);
    assert_int_equal(ax_alloc(&written, MANY, sizeof *written), AX_OK);
    assert_int_equal(ax_alloc(&read, MANY, sizeof *read), AX_OK);
    for (int i = 0; i < MANY; i++) {
        of_documents[i] = (uint64_t)i * (uint64_t)i;
        written[i] = -(float)i;
    }
    f.documents = of_documents;
    f.n = MANY;
    assert_int_equal(ax_reference_file_write(&f, written), AX_OK);
    assert_int_equal(ax_reference_file_read(&f, read, &found), AX_OK);
    assert_true(found);
    assert_memory_equal(read, written, MANY * sizeof *read);
    ax_free(of_documents);
    ax_free(written);
    ax_free(read);
    done(&f);
}

/* Their checksum is right. */
static void files_of_others_are_refused(void **state) {
    (void)state;
    static const uint64_t last[N] = {11, 22, 34};
    static const char why[] = "it is of another model or of other data";
    struct ax_reference_file f = of("c", documents), data = of("c", last),
                             model = of("d", documents);
    char *from, *to;
    assert_int_equal(ax_reference_file_write(&f, values), AX_OK);
    refused(&data, why);
    /* in the place of another model's, whose description is as long */
    assert_int_equal(ax_cache_path(&from, f.cache, f.description), AX_OK);
    assert_int_equal(ax_cache_path(&to, model.cache, model.description), AX_OK);
    assert_int_equal(rename(from, to), 0);
    refused(&model, why);
    ax_free(from);
    ax_free(to);
    done(&f);
    done(&data);
    done(&model);
}

/* A writer that ended between its two renames has moved the old folder aside. */
static void a_cut_replacement_is_repaired(void **state) {
    (void)state;
    struct ax_reference_file f = of("e", documents);
    float read[N];
    bool found = false;
    char *folder, *aside;
    assert_int_equal(ax_reference_file_write(&f, values), AX_OK);
    assert_int_equal(ax_cache_path(&folder, f.cache, f.description), AX_OK);
    assert_int_equal(ax_sprintf(&aside, "%s.old-%ld", folder, (long)getpid()), AX_OK);
    assert_int_equal(rename(folder, aside), 0);
    assert_int_equal(ax_reference_file_read(&f, read, &found), AX_OK);
    assert_true(found);
    assert_memory_equal(read, values, sizeof values);
    ax_free(folder);
    ax_free(aside);
    done(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(many_are_in_order),
        cmocka_unit_test(files_of_others_are_refused),
        cmocka_unit_test(a_cut_replacement_is_repaired),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
