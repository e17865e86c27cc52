#include "data/grammar/formats.h"

#include <stddef.h>
#include <string.h>

#define DIGITS "[0-9]{1,6}"
#define HEX    "[0-9a-fA-F]"

/* RFC 3339: dates, times, and ISO 8601's durations of its appendix A. Years have four digits; those that 100 divides have
 * a 29th of February only if 400 divides them. */
#define LONG_MONTH  "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
#define SHORT_MONTH "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
#define FEBRUARY    "02-(?:0[1-9]|1[0-9]|2[0-8])"
#define LEAP_YEAR                                                                                  \
    "(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29"
#define DATE     "(?:[1-9][0-9]{3}-(?:" LONG_MONTH "|" SHORT_MONTH "|" FEBRUARY ")|" LEAP_YEAR ")"
#define CLOCK    "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
#define TIME     CLOCK ":[0-5][0-9](?:\\." DIGITS ")?(?:Z|[+-]" CLOCK ")"
#define DAYS     DIGITS "D"
#define MONTHS   DIGITS "M(?:" DAYS ")?"
#define YEARS    DIGITS "Y(?:" MONTHS ")?"
#define SECONDS  DIGITS "S"
#define MINUTES  DIGITS "M(?:" SECONDS ")?"
#define HOURS    DIGITS "H(?:" MINUTES ")?"
#define HOURS_ON "T(?:" HOURS "|" MINUTES "|" SECONDS ")"
#define DURATION "P(?:(?:" YEARS "|" MONTHS "|" DAYS ")(?:" HOURS_ON ")?|" HOURS_ON "|" DIGITS "W)"

/* RFC 1123, 4122, 2673, 4291, 5321 and 3986, as far as they agree with what others make of them. */
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,46}[A-Za-z0-9])?"
#define HOST  LABEL "(?:\\." LABEL "){0,4}"
#define MAILBOX                                                                                    \
    "[A-Za-z0-9_+-]{1,30}(?:\\.[A-Za-z0-9_+-]{1,30})?@(?:" LABEL "\\.){1,4}[A-Za-z]{2,10}"
#define OCTET   "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define GROUP   HEX "{1,4}"
#define IPV6    "(?:" GROUP ":){7}" GROUP "|(?:" GROUP ":){1,6}:" GROUP "|::(?:" GROUP ")?"
#define SEGMENT "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%" HEX "{2})"
#define URI                                                                                        \
    "[a-zA-Z][a-zA-Z0-9+.-]*://" HOST "(?::[1-9][0-9]{0,3})?(?:/" SEGMENT "*)*"                    \
    "(?:\\?(?:" SEGMENT "|/)*)?(?:#(?:" SEGMENT "|/)*)?"

static const struct {
    const char *name, *pattern;
} formats[] = {
    {"date", DATE},
    {"time", TIME},
    {"date-time", DATE "T" TIME},
    {"duration", DURATION},
    {"uuid", HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}"},
    {"email", MAILBOX},
    {"hostname", HOST},
    {"ipv4", "(?:" OCTET "\\.){3}" OCTET},
    {"ipv6", IPV6},
    {"uri", URI},
    {"password", NULL},
    {"path", NULL},
    {"file-path", NULL},
    {"directory-path", NULL},
};
const char ax_grammar_format_names[] = "date, time, date-time, duration, uuid, email, hostname, "
                                       "ipv4, ipv6, uri or password";

bool ax_grammar_find_format(const char *name, const char **pattern) {
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0) {
            *pattern = formats[i].pattern;
            return true;
        }
    return false;
}
