/* Python's str methods, shared by methods and filters with the same names. */
#ifndef AX_DATA_TEXT_JINJA_TEXT_H
#define AX_DATA_TEXT_JINJA_TEXT_H

#include "data/text/jinja/vm.h"

enum ax_jletters {
    AX_JLETTERS_LOWER,
    AX_JLETTERS_UPPER,
    AX_JLETTERS_CAPITALIZE, /* first character in title case, the rest lower */
    AX_JLETTERS_TITLE,      /* str.title: each run of letters as a word */
    AX_JLETTERS_WORDS       /* the filter title: words begin after blanks, - and brackets */
};
enum ax_status ax_jtext_case(struct ax_jvm *vm, enum ax_jletters how, struct ax_jstr *s,
                             struct ax_jval *out);

enum ax_jsides { AX_JLEFT = 1, AX_JRIGHT = 2, AX_JBOTH = 3 };
/* sep NULL: splits at runs of white space. At most `max` splits (negative: no limit). */
enum ax_status ax_jtext_split(struct ax_jvm *vm, struct ax_jstr *s, const struct ax_jstr *sep,
                              int64_t max, struct ax_jval *out);
/* Joins the strings of an iterable with sep; items must be strings unless `any`. */
enum ax_status ax_jtext_join(struct ax_jvm *vm, const struct ax_jstr *sep, struct ax_jval items,
                             bool any, struct ax_jval *out);

#endif
