/* What the list of models says that a family lacks is what the code refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "ckpt/gguf/model.h"
#include "model/arch/family.h"

static bool lacks(const struct ax_family *f, const char *what) {
    return f->lacks && strstr(f->lacks, what) != NULL;
}

static void gguf(void **state) {
    const struct ax_family *f;
    size_t i = 0, without = 0;
    (void)state;
    for (; (f = ax_family_at(i)) != NULL; i++) {
        if (lacks(f, "GGUF") == (ax_gguf_kind_of(f->model_type) != NULL))
            fail_msg("%s", f->model_type);
        without += lacks(f, "GGUF");
    }
    assert_true(i > 30 && without > 0 && without < i / 2);
}

static void each_is_named(void **state) {
    const struct ax_family *f;
    (void)state;
    for (size_t i = 0; (f = ax_family_at(i)) != NULL; i++)
        assert_true(f->models && *f->models && !strchr(f->models, '|'));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf),
        cmocka_unit_test(each_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
