/* A client of the Dither protocol in C99, written from docs/reference/protocol.md. See dither.h. */
#include "dither.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NUMBER 9007199254740992.0 /* 2^53 */
#define MAX_CODES (1u << 20)
#define MAX_ANSWERS 131072

/* --- SHA-256 (FIPS 180-4) ------------------------------------------------------------------------------------ */

typedef struct {
    uint32_t state[8];
    uint64_t length;
    unsigned char block[64];
} hash;

/* The first 32 bits of the fractional parts of the roots of the first primes, as the standard defines them. */
static uint32_t root_bits(int which, double power)
{
    int prime = 1, divisor;
    for (int found = -1; found < which;) {
        for (prime++, divisor = 2; prime % divisor; divisor++) {}
        found += divisor == prime;
    }
    double root = power == 0.5 ? sqrt(prime) : cbrt(prime);
    return (uint32_t)((root - floor(root)) * 4294967296.0);
}

static uint32_t turned(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void compress(hash *h)
{
    static uint32_t k[64];
    uint32_t w[64], s[8];
    for (int i = 0; i < 64 && !k[63]; i++) k[i] = root_bits(i, 1.0 / 3);
    for (int i = 0; i < 16; i++)
        for (int b = 0; b < 4; b++) w[i] = (b ? w[i] << 8 : 0) | h->block[4 * i + b];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + (turned(b, 17) ^ turned(b,
            19) ^ b >> 10);
    }
    memcpy(s, h->state, sizeof s);
    for (int i = 0; i < 64; i++) {
        uint32_t a = s[0], e = s[4], choice = (e & s[5]) ^ (~e & s[6]),
            most = (a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]);
        uint32_t one = s[7] + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + choice + k[i] + w[i];
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + (turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + most;
    }
    for (int i = 0; i < 8; i++) h->state[i] += s[i];
}

static void hash_begin(hash *h)
{
    h->length = 0;
    for (int i = 0; i < 8; i++) h->state[i] = root_bits(i, 0.5);
}

static void hash_add(hash *h, const void *data, size_t count)
{
    for (const unsigned char *bytes = data; count--; bytes++) {
        h->block[h->length++ % 64] = *bytes;
        if (h->length % 64 == 0) compress(h);
    }
}

static void hash_end(hash *h, unsigned char *out)
{
    unsigned char size[8];
    for (int i = 0; i < 8; i++) size[i] = (unsigned char)(h->length * 8 >> (56 - 8 * i));
    hash_add(h, "\x80", 1);
    while (h->length % 64 != 56) hash_add(h, "", 1);
    hash_add(h, size, 8);
    for (int i = 0; i < 32; i++) out[i] = (unsigned char)(h->state[i / 4] >> (24 - 8 * (i % 4)));
}

static uint64_t little(const unsigned char *bytes, int count)
{
    uint64_t n = 0;
    while (count--) n = n << 8 | bytes[count];
    return n;
}

static void put_little(unsigned char *out, uint64_t n, int count)
{
    for (int i = 0; i < count; i++) out[i] = (unsigned char)(n >> (8 * i));
}

static int bits(uint64_t n)
{
    int count = 0;
    for (; n; n >>= 1) count++;
    return count;
}

/* --- JSON ---------------------------------------------------------------------------------------------------- */

/* The next code point of valid UTF-8, in which single surrogates stand like other code points; -1 if invalid. */
static int32_t next_point(const char **text)
{
    const unsigned char *s = (const unsigned char *)*text;
    int more = s[0] < 0x80 ? 0 : s[0] < 0xe0 ? 1 : s[0] < 0xf0 ? 2 : 3;
    int32_t point = more ? s[0] & (0x3f >> more) : s[0];
    static const int32_t LEAST[] = {0, 0x80, 0x800, 0x10000};
    if ((s[0] >= 0x80 && s[0] < 0xc2) || s[0] > 0xf4) return -1;
    for (int i = 1; i <= more; i++) {
        if ((s[i] & 0xc0) != 0x80) return -1;
        point = point << 6 | (s[i] & 0x3f);
    }
    *text += more + 1;
    return point < LEAST[more] || point > 0x10ffff ? -1 : point;
}

static char *put_point(char *out, int32_t p)
{
    int more = p < 0x80 ? 0 : p < 0x800 ? 1 : p < 0x10000 ? 2 : 3;
    static const int FIRST[] = {0, 0xc0, 0xe0, 0xf0};
    *out++ = (char)(FIRST[more] | p >> (6 * more));
    while (more--) *out++ = (char)(0x80 | (p >> (6 * more) & 0x3f));
    return out;
}

static int is_surrogate(int32_t point) { return point >= 0xd800 && point < 0xe000; }

/* Four hexadecimal digits; -1 if they are none. */
static int32_t hex4(const char *s)
{
    int32_t n = 0;
    for (int i = 0; i < 4; i++) {
        int c = s[i] | 32, digit = s[i] >= '0' && s[i] <= '9' ? s[i] - '0' : c >= 'a' &&
            c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0) return -1;
        n = n * 16 + digit;
    }
    return n;
}

/* Decode a string in place, from after its first quote; `at` moves behind the last one. NULL if it is malformed. */
static char *decode_string(char **at, uint32_t *length)
{
    char *start = *at, *out = start, *s = start;
    while (*s != '"') {
        const char *next = s;
        int32_t point = next_point(&next), low;
        if (point < 0x20) return NULL; /* also -1, and the end of the text */
        s = (char *)next;
        if (point == '\\') {
            static const char ESCAPES[] = "\"\\/bfnrt", MEANT[] = "\"\\/\b\f\n\r\t";
            const char *known = *s ? strchr(ESCAPES, *s) : NULL;
            if (*s++ == 'u') {
                if ((point = hex4(s)) < 0) return NULL;
                s += 4;
                if (point >= 0xd800 && point < 0xdc00 && s[0] == '\\' && s[1] == 'u' &&
                    (low = hex4(s + 2)) >= 0xdc00 &&
                    low < 0xe000) {
                    point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
                    s += 6;
                }
            } else if (known) point = MEANT[known - ESCAPES];
            else return NULL;
        } else if (is_surrogate(point)) return NULL; /* invalid in UTF-8 */
        out = put_point(out, point);
    }
    *length = (uint32_t)(out - start);
    *out = 0;
    *at = s + 1;
    return start;
}

static void skip_space(char **at) { *at += strspn(*at, " \t\r\n"); }

static int decode_number(char **at, dither_node *node)
{
    char *s = *at;
    size_t whole, part;
    s += *s == '-';
    whole = strspn(s, "0123456789");
    if (!whole || (whole > 1 && *s == '0')) return 0;
    s += whole;
    if (*s == '.') {
        if (!(part = strspn(s + 1, "0123456789"))) return 0;
        s += 1 + part;
    }
    if (*s == 'e' || *s == 'E') {
        s += 1 + (s[1] == '+' || s[1] == '-');
        if (!(part = strspn(s, "0123456789"))) return 0;
        s += part;
    }
    node->text = *at;
    node->length = (uint32_t)(s - *at);
    node->number = strtod(*at, NULL);
    *at = s;
    return 1;
}

static int same_text(const char *a, uint32_t a_length, const char *b, uint32_t b_length)
{
    return a_length == b_length && memcmp(a, b, a_length) == 0;
}

static int read_value(dither_json *json, char **at, int depth)
{
    uint32_t place = json->used;
    if (json->used == json->room) {
        json->room = json->room ? 2 * json->room : 64;
        dither_node *grown = realloc(json->nodes, json->room * sizeof *grown);
        if (!grown) return 0;
        json->nodes = grown;
    }
    dither_node *node = memset(&json->nodes[json->used++], 0, sizeof *node);
    static const char *const WORDS[] = {"null", "false", "true"};
    skip_space(at);
    char first = *(*at)++, end = first == '{' ? '}' : ']';
    node->type = DITHER_NUMBER;
    if (first == '"') node->type = DITHER_STRING;
    if (first == '{') node->type = DITHER_OBJECT;
    if (first == '[') node->type = DITHER_LIST;
    node->span = 1;
    if (first == '"') return (node->text = decode_string(at, &node->length)) != NULL;
    if (node->type == DITHER_NUMBER) {
        --*at;
        for (int word = DITHER_NULL; word <= DITHER_TRUE; word++)
            if (strncmp(*at, WORDS[word], strlen(WORDS[word])) == 0) {
                *at += strlen(WORDS[word]);
                node->type = word;
                return 1;
            }
        return decode_number(at, node);
    }
    if (depth == 8) return 0;
    for (uint32_t count = 0;; count++) {
        char *key = NULL;
        uint32_t length = 0, child = json->used;
        skip_space(at);
        if (**at == end && !count) break;
        if (count && *(*at)++ != ',') return 0;
        if (end == '}') {
            skip_space(at);
            if (count == 64 || *(*at)++ != '"' || !(key = decode_string(at, &length))) return 0;
            const dither_node *member = json->nodes + place + 1;
            for (uint32_t i = 0; i < count; i++, member += member->span)
                if (same_text(key, length, member->key, member->key_length)) return 0;
            skip_space(at);
            if (*(*at)++ != ':') return 0;
        }
        if (!read_value(json, at, depth + 1)) return 0;
        json->nodes[child].key = key;
        json->nodes[child].key_length = length;
        json->nodes[place].count = count + 1;
        skip_space(at);
        if (**at == end) break;
    }
    ++*at;
    json->nodes[place].span = json->used - place;
    return 1;
}

int dither_parse(dither_json *json, const char *text, size_t length)
{
    memset(json, 0, sizeof *json);
    if (length > DITHER_ANNOUNCEMENT_BYTES || !(json->text = malloc(length + 4))) return 0;
    memcpy(json->text, text, length);
    memset(json->text + length, 0, 4);
    char *at = json->text;
    if (read_value(json, &at, 0)) {
        skip_space(&at);
        if (at == json->text + length) return 1;
    }
    dither_json_free(json);
    return 0;
}

void dither_json_free(dither_json *json)
{
    free(json->nodes);
    free(json->text);
    memset(json, 0, sizeof *json);
}

const dither_node *dither_member(const dither_node *object, const char *key)
{
    const dither_node *member = object + 1;
    if (!object || object->type != DITHER_OBJECT) return NULL;
    for (uint32_t i = 0; i < object->count; i++, member += member->span)
        if (same_text(member->key, member->key_length, key, (uint32_t)strlen(key))) return member;
    return NULL;
}

/* --- What members must be; NULL is an absent one ------------------------------------------------------------- */

static int has_type(const dither_node *n, int type) { return n && n->type == type; }
static int is_text_of(const dither_node *n, const char *t) { return has_type(n, DITHER_STRING) &&
    same_text(n->text, n->length, t, (uint32_t)strlen(t)); }
static int is_number(const dither_node *n) { return has_type(n, DITHER_NUMBER) && isfinite(n->number); }
static int is_absent_or_null(const dither_node *n) { return !n || n->type == DITHER_NULL; }

static int is_whole(const dither_node *n, double least)
{
    return is_number(n) && strspn(n->text, "0123456789") >= n->length && n->number >= least &&
        n->number < MAX_NUMBER;
}

/* A string of `least` to `most` code points without surrogates, and without controls if `plain`; '\n' if `lines`. */
static int is_text(const dither_node *n, uint32_t least, uint32_t most, int plain, int lines)
{
    uint32_t count = 0;
    if (!has_type(n, DITHER_STRING)) return 0;
    for (const char *s = n->text; s < n->text + n->length; count++) {
        int32_t p = next_point(&s);
        if (is_surrogate(p) || (plain && (p < 0x20 || (p >= 0x7f && p < 0xa0)) && !(lines && p == '\n'))) return 0;
    }
    return count >= least && count <= most;
}

static int is_one_of(const dither_node *n, const char *listed)
{
    const char *found = has_type(n, DITHER_STRING) && n->length && !memchr(n->text, ' ', n->length) ? listed : NULL;
    while (found && (found = strstr(found, n->text))) {
        if ((found == listed || found[-1] == ' ') && (!found[n->length] ||
            found[n->length] == ' ')) return strlen(n->text) == n->length;
        found++;
    }
    return 0;
}

/* An object with no other members than those listed. */
static int has_only(const dither_node *object, const char *listed)
{
    const dither_node *member = object + 1;
    if (!has_type(object, DITHER_OBJECT)) return 0;
    for (uint32_t i = 0; i < object->count; i++, member += member->span) {
        dither_node key = {DITHER_STRING, 0, 1, NULL, member->key, 0, member->key_length, 0};
        if (!is_one_of(&key, listed)) return 0;
    }
    return 1;
}

static int rises(const dither_node *list, uint32_t least)
{
    if (!has_type(list, DITHER_LIST) || list->count < least || list->span != list->count + 1) return 0;
    for (uint32_t i = 1; i <= list->count; i++)
        if (!is_number(list + i) || (i > 1 && list[i].number <= list[i - 1].number)) return 0;
    return 1;
}

/* Order of strings, and of numbers as doubles with true as 1 and false as 0; strings come last. */
static int order(const dither_node *a, const dither_node *b)
{
    int a_string = a->type == DITHER_STRING, b_string = b->type == DITHER_STRING;
    if (a_string != b_string) return a_string - b_string;
    if (a_string) {
        int first = memcmp(a->text, b->text, a->length < b->length ? a->length : b->length);
        return first ? first : (a->length > b->length) - (a->length < b->length);
    }
    double x = a->type == DITHER_NUMBER ? a->number : a->type == DITHER_TRUE;
    double y = b->type == DITHER_NUMBER ? b->number : b->type == DITHER_TRUE;
    return (x > y) - (x < y);
}

static int order_of(const void *a, const void *b)
{
    const dither_node *x = *(const dither_node *const *)a, *y = *(const dither_node *const *)b;
    int found = order(x, y);
    return found ? found : (x > y) - (x < y);
}

/* The entries of a list, or member `key` of each of them, in order; NULL without memory. */
static const dither_node **sorted(const dither_node *list, const char *key)
{
    const dither_node **out = malloc(list->count * sizeof *out), *entry = list + 1;
    for (uint32_t i = 0; out && i < list->count; i++, entry += entry->span) out[i] = key ? dither_member(entry,
        key) : entry;
    if (out) qsort(out, list->count, sizeof *out, order_of);
    return out;
}

static int all_different(const dither_node *list, const char *key)
{
    const dither_node **found = sorted(list, key);
    int fine = found != NULL;
    for (uint32_t i = 1; fine && i < list->count; i++) fine = order(found[i - 1], found[i]) != 0;
    free(found);
    return fine;
}

/* --- The canonical text --------------------------------------------------------------------------------------- */

/* Hash text as it stands in a JSON string of ASCII. */
static void hash_string(hash *h, const char *s, uint32_t length)
{
    static const char SHORT[] = "\"\\\b\f\n\r\t", ESCAPED[] = "\"\\bfnrt";
    hash_add(h, "\"", 1);
    for (const char *end = s + length; s < end;) {
        char text[16];
        int32_t p = next_point(&s);
        const char *known = p && p < 128 ? strchr(SHORT, p) : NULL;
        if (known) sprintf(text, "\\%c", ESCAPED[known - SHORT]);
        else if (p >= 0x20 && p < 0x7f) sprintf(text, "%c", (int)p);
        else if (p < 0x10000) sprintf(text, "\\u%04x", (unsigned)p);
        else sprintf(text, "\\u%04x\\u%04x", 0xd7c0u + ((unsigned)p >> 10), 0xdc00u + ((unsigned)p & 0x3ff));
        hash_add(h, text, strlen(text));
    }
    hash_add(h, "\"", 1);
}

static int order_of_keys(const void *a, const void *b)
{
    const dither_node *x = *(const dither_node *const *)a, *y = *(const dither_node *const *)b;
    int found = memcmp(x->key, y->key, x->key_length < y->key_length ? x->key_length : y->key_length);
    return found ? found : (x->key_length > y->key_length) - (x->key_length < y->key_length);
}

/* Hash the canonical text of a schema; at depth 2 are its attributes, whose texts for people are left out. */
static void hash_canonical(hash *h, const dither_node *n, int depth)
{
    static const char *const WORDS[] = {"null", "false", "true"};
    const dither_node *members[64], *entry = n + 1;
    int written = 0, object = n->type == DITHER_OBJECT;
    if (n->type <= DITHER_TRUE) hash_add(h, WORDS[n->type], strlen(WORDS[n->type]));
    else if (n->type == DITHER_NUMBER) hash_add(h, n->text, n->length);
    else if (n->type == DITHER_STRING) hash_string(h, n->text, n->length);
    if (n->type < DITHER_LIST) return;
    for (uint32_t i = 0; object && i < n->count; i++, entry += entry->span) members[i] = entry;
    if (object) qsort(members, n->count, sizeof *members, order_of_keys);
    hash_add(h, object ? "{" : "[", 1);
    entry = n + 1;
    for (uint32_t i = 0; i < n->count; i++, entry += object ? 0 : entry->span) {
        const dither_node *e = object ? members[i] : entry;
        dither_node key = {DITHER_STRING, 0, 1, NULL, e->key, 0, e->key_length, 0};
        if (object && depth == 2 && is_one_of(&key, "question help labels")) continue;
        if (written++) hash_add(h, ",", 1);
        if (object) {
            hash_string(h, e->key, e->key_length);
            hash_add(h, ":", 1);
        }
        hash_canonical(h, e, depth + 1);
    }
    hash_add(h, object ? "}" : "]", 1);
}

/* --- Attributes ---------------------------------------------------------------------------------------------- */

enum { BOOLEAN, CATEGORICAL, ORDINAL, NUMERIC, DURATION, DATE, DATETIME };

static int two_digits(const char *s, int most)
{
    int fine = s[0] >= '0' && s[0] <= '9' && s[1] >= '0' && s[1] <= '9', n = 10 * (s[0] - '0') + s[1] - '0';
    return fine && n <= most ? n : -1;
}

static int64_t days_before_year(int64_t y) { return 365 * (y - 1) + (y - 1) / 4 - (y - 1) / 100 + (y - 1) / 400; }

/* Seconds since 1970 of a date or a time that exists. */
static int read_time(const dither_node *n, double *seconds)
{
    static const int DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const char *s = has_type(n, DITHER_STRING) ? n->text : "", *end = s + strlen(s);
    if (!has_type(n, DITHER_STRING) || n->length < 10 || end != s + n->length || s[4] != '-' ||
        s[7] != '-') return 0;
    int century = two_digits(s, 99), year = two_digits(s + 2, 99), month = two_digits(s + 5, 12),
        day = two_digits(s + 8, 31);
    int part[3] = {0, 0, 0}, offset = 0, sign = 0, places = 0;
    int64_t fraction = 0, unit = 1, days;
    if (century < 0 || year < 0 || month < 1 || day < 1 || (year += 100 * century) < 1) return 0;
    int leap = (year % 4 == 0 && year % 100) || year % 400 == 0;
    if (day > DAYS[month - 1] + (leap && month == 2)) return 0;
    days = days_before_year(year) - days_before_year(1970) + day - 1 + (leap && month > 2);
    for (int m = 0; m < month - 1; m++) days += DAYS[m];
    if (*(s += 10)) {
        if (*s != 'T' && *s != ' ') return 0;
        for (int i = 0; i < 3 && (i < 2 || *s == ':'); i++, s += 3)
            if ((i && *s != ':') || (part[i] = two_digits(s + 1, i ? 59 : 23)) < 0) return 0;
        if (*s == '.' && s[-3] == ':' && end - n->text > 17 && n->text[16] == ':') {
            for (s++; *s >= '0' && *s <= '9'; s++, places++,
                unit *= places <= 6 ? 10 : 1) fraction = 10 * fraction + *s - '0';
            if (places < 1 || places > 6) return 0;
        }
        if (*s == '+' || *s == '-') {
            int hours = two_digits(s + 1, 23), minutes = end - s == 6 && s[3] == ':' ? two_digits(s + 4, 59) : -1;
            if (hours < 0 || minutes < 0) return 0;
            sign = *s == '+' ? 1 : -1;
            offset = sign * (3600 * hours + 60 * minutes);
            s = end;
        } else if (*s == 'Z') s++;
        if (s != end) return 0;
    }
    int64_t whole = days * 86400 + part[0] * 3600 + part[1] * 60 + part[2] - offset;
    *seconds = (double)whole + (double)fraction / (double)unit;
    return whole >= -days_before_year(1970) * 86400 &&
        whole < (days_before_year(10000) - days_before_year(1970)) * 86400;
}

/* The boundaries of a line and the cells at and after them. Gives the number of cells, 0 if the line is malformed. */
static uint32_t read_line(dither_attribute *a, const dither_node *edges, const dither_node *atoms)
{
    int dates = a->kind >= DATE;
    uint32_t count = has_type(edges, DITHER_LIST) ? edges->count : 0, others = atoms ? atoms->count : 0, e = 0,
        o = 0;
    double latest, previous = 0, *edge;
    dither_node top = {DITHER_STRING, 0, 1, NULL, "9998-12-31", 0, 10, 0};
    if (count < 2 || edges->span != count + 1 || (atoms && !rises(atoms, 1)) ||
        count + 2 * (uint64_t)others > MAX_ANSWERS + 1) return 0;
    edge = malloc(count * sizeof *edge);
    a->boundary = malloc((count + others) * sizeof *a->boundary);
    a->at = malloc((count + others) * sizeof *a->at);
    a->after = malloc((count + others) * sizeof *a->after);
    int fine = edge && a->boundary && a->at && a->after && read_time(&top, &latest);
    for (uint32_t i = 0; fine && i < count; previous = edge[i++]) {
        const dither_node *n = edges + 1 + i;
        fine = dates ? read_time(n, &edge[i]) && edge[i] <= latest &&
            n->length == (a->kind == DATE ? 10u : 19u) : is_number(n);
        if (fine && a->kind == DATETIME) fine = n->text[10] == 'T' && n->text[16] == ':';
        if (fine && a->kind == DATE) edge[i] /= 86400;
        if (fine && !dates) edge[i] = n->number;
        fine = fine && (!i || edge[i] > previous);
    }
    if (!fine || (!dates && !(isfinite(edge[count - 1] - edge[0]) && edge[count - 1] - edge[0] >= 1e-290))) {
        free(edge);
        return 0;
    }
    a->first = edge[0];
    a->last = edge[count - 1];
    uint32_t cells = 0;
    while (e < count || o < others) {
        double x = e == count || (o < others && atoms[1 + o].number < edge[e]) ? atoms[1 + o].number : edge[e];
        uint32_t b = a->boundaries++;
        int atom = o < others && atoms[1 + o].number == x;
        a->boundary[b] = x;
        a->at[b] = atom ? (int64_t)cells++ : -1;
        a->after[b] = x >= a->first && x < a->last ? (int64_t)cells++ : -1;
        if (!atom) a->at[b] = x == a->last ? (dates ? -1 : a->after[b - 1]) : a->after[b];
        o += atom;
        e += e < count && edge[e] == x;
    }
    free(edge);
    return cells;
}

static int unit_fits(const dither_attribute *a, const dither_node *unit)
{
    double low = a->boundary[0], high = a->boundary[a->boundaries - 1], largest = fmax(fabs(low), fabs(high));
    return is_number(unit) && unit->number > 0 && unit->number <= (1 + 1e-9) * (high - low) &&
        unit->number >= ldexp(largest, -64);
}

static int read_values(dither_attribute *a, const dither_node *values)
{
    if (!has_type(values, DITHER_LIST) || values->span != values->count + 1 ||
        values->count > MAX_ANSWERS) return 0;
    for (uint32_t i = 1; i <= values->count; i++) {
        const dither_node *v = values + i;
        int digits = v->type == DITHER_NUMBER && !memchr(v->text, '.', v->length) && !memchr(v->text, 'e',
            v->length) &&
                     !memchr(v->text, 'E', v->length);
        char text[24];
        if (v->type == DITHER_NULL || v->type >= DITHER_LIST || (v->type == DITHER_STRING && !is_text(v, 0, UINT32_MAX, 0, 0))) return 0;
        if (v->type == DITHER_NUMBER && (!is_number(v) || (digits && v->length > 20))) return 0;
        if (!digits) continue;
        sprintf(text, "%.*s", (int)v->length, v->text);
        if (fabs(v->number) >= 9.3e18 || (v->number == 0x1p63 && strcmp(text, "9223372036854775807") > 0) ||
            (v->number == -0x1p63 && strcmp(text, "-9223372036854775808") > 0)) return 0;
    }
    a->values = values;
    return values->count < 2 || all_different(values, NULL) ? (int)values->count : 0;
}

/* Number the groups in the order in which they first occur. */
static int read_groups(dither_attribute *a, const dither_node *groups)
{
    if (!has_type(groups, DITHER_LIST) || groups->count != a->answers ||
        groups->span != groups->count + 1) return 0;
    for (uint32_t i = 1; i <= groups->count; i++)
        if (!is_text(groups + i, 1, UINT32_MAX, 0, 0)) return 0;
    const dither_node **names = sorted(groups, NULL);
    uint32_t *first = malloc(a->answers * sizeof *first);
    a->group = malloc(a->answers * sizeof *a->group);
    int fine = names && first && a->group;
    for (uint32_t i = 0; fine && i < a->answers; i++) {
        uint32_t place = (uint32_t)(names[i] - groups - 1);
        first[place] = i && order(names[i - 1], names[i]) == 0 ? first[names[i - 1] - groups - 1] : place;
    }
    for (uint32_t i = 0; fine &&
        i < a->answers; i++) a->group[i] = first[i] == i ? a->groups++ : a->group[first[i]];
    free(names);
    free(first);
    return fine && a->groups >= 2;
}

static int texts_fit(const dither_attribute *a, const dither_node *n)
{
    const dither_node *question = dither_member(n, "question"), *help = dither_member(n, "help"),
        *labels = dither_member(n, "labels");
    if ((question && !is_text(question, 1, 500, 1, 0)) || (help && !is_text(help, 1, 2000, 1, 1))) return 0;
    if (labels && (labels->type != DITHER_LIST || labels->span != labels->count + 1)) return 0;
    if (labels && labels->count != a->answers && labels->count != a->answers + (uint32_t)a->missing) return 0;
    for (uint32_t i = 1; labels && i <= labels->count; i++)
        if (!is_text(labels + i, 0, 200, 1, 0)) return 0;
    return 1;
}

int dither_attribute_read(dither_attribute *a, const dither_node *n)
{
    static const char *const KINDS[] = {"boolean", "categorical", "ordinal", "numeric", "duration", "date",
        "datetime"};
    static const char *const OWN[] = {"", "values groups", "values groups", "edges atoms unit clip groups",
                                      "edges atoms unit clip groups", "edges cycles groups", "edges cycles groups"};
    const dither_node *name = dither_member(n, "name"), *kind = dither_member(n, "kind"),
        *cycles = dither_member(n, "cycles");
    const dither_node *missing = dither_member(n, "missing"), *clip = dither_member(n, "clip"),
        *unit = dither_member(n, "unit");
    const dither_node *atoms = dither_member(n, "atoms"), *groups = dither_member(n, "groups");
    char allowed[128];
    uint64_t answers;
    memset(a, 0, sizeof *a);
    while (a->kind <= DATETIME && !is_text_of(kind, KINDS[a->kind])) a->kind++;
    if (a->kind > DATETIME || !is_text(name, 1, UINT32_MAX, 0, 0)) return 0;
    sprintf(allowed, "name kind missing question help labels %s", OWN[a->kind]);
    if (!has_only(n, allowed) || (missing && missing->type != DITHER_TRUE) || (clip &&
        clip->type != DITHER_TRUE)) return 0;
    a->missing = missing != NULL;
    a->clip = clip != NULL;
    answers = a->kind == BOOLEAN ? 2 : a->kind <= ORDINAL ? (uint64_t)read_values(a, dither_member(n,
        "values")) : read_line(a, dither_member(n, "edges"), atoms);
    int fine = answers > 0 && (!unit || unit_fits(a, unit));
    if (cycles) {
        fine = fine && cycles->type == DITHER_LIST && cycles->count >= 1 && cycles->count <= 2;
        for (uint32_t i = 1; fine && i <= cycles->count; i++) {
            int hour = a->kind == DATETIME && is_text_of(cycles + i, "hour");
            fine = (hour || is_text_of(cycles + i, "weekday")) && !(hour ? a->hour : a->weekday);
            *(hour ? &a->hour : &a->weekday) = (int)i;
        }
    }
    answers *= (a->weekday ? 7 : 1) * (a->hour ? 24 : 1);
    a->answers = (uint32_t)answers;
    fine = fine && answers >= 2 && answers <= MAX_ANSWERS && (!groups || read_groups(a, groups)) && texts_fit(a, n);
    if (!fine) dither_attribute_free(a);
    return fine;
}

void dither_attribute_free(dither_attribute *a)
{
    free(a->boundary);
    free(a->at);
    free(a->after);
    free(a->group);
    memset(a, 0, sizeof *a);
}

/* A value's number on its attribute's line. */
static int number_of(const dither_attribute *a, const dither_node *value, double *number)
{
    if (a->kind >= DATE) {
        if (!read_time(value, number)) return 0;
        if (a->kind == DATE) *number = floor(*number / 86400);
        return 1;
    }
    *number = has_type(value, DITHER_NUMBER) ? value->number : 0;
    return has_type(value, DITHER_NUMBER);
}

int64_t dither_code(const dither_attribute *a, const dither_node *value)
{
    double x;
    if (is_absent_or_null(value)) return a->missing ? (int64_t)a->answers : -1;
    if (a->kind <= ORDINAL) {
        static const dither_node FALSE_TRUE[] = {{DITHER_LIST, 2, 3, 0, 0, 0, 0, 0}, {DITHER_FALSE, 0, 1, 0, 0, 0,
            0, 0}, {DITHER_TRUE, 0, 1, 0, 0, 0, 0, 0}};
        const dither_node *values = a->kind == BOOLEAN ? FALSE_TRUE : a->values;
        for (uint32_t i = 1; value->type < DITHER_LIST && i <= values->count; i++)
            if (order(values + i, value) == 0) return i - 1;
        return -1;
    }
    if (!number_of(a, value, &x)) return -1;
    if (a->clip) x = fmin(fmax(x, a->boundary[0]), a->boundary[a->boundaries - 1]);
    uint32_t low = 0, high = a->boundaries; /* the first boundary above x is in low + 1 to high */
    if (x < a->boundary[0]) return -1;
    while (high - low > 1) *(a->boundary[(low + high) / 2] <= x ? &low : &high) = (low + high) / 2;
    int64_t code = a->boundary[low] == x ? a->at[low] : a->after[low], turn = 0;
    if (code < 0) return -1;
    int64_t days = (int64_t)floor(a->kind == DATE ? x : x / 86400),
        hour = (int64_t)floor((x - 86400.0 * (double)days) / 3600);
    for (int i = 1; i <= 2; i++) {
        if (a->weekday == i) turn = turn * 7 + ((days + 3) % 7 + 7) % 7;
        if (a->hour == i) turn = turn * 24 + hour;
    }
    return code * (a->weekday ? 7 : 1) * (a->hour ? 24 : 1) + turn;
}

int64_t dither_level(const dither_attribute *a, const dither_node *value, uint64_t levels, uint32_t draw)
{
    double x, place, level;
    if (is_absent_or_null(value) || !number_of(a, value, &x)) return -1;
    if (a->clip) x = fmin(fmax(x, a->first), a->last);
    if (!(x >= a->first && x <= a->last)) return -1;
    place = (x - a->first) / (a->last - a->first) * (double)(levels - 1);
    level = fmin(floor(place), (double)(levels - 2));
    return (int64_t)level + ((double)draw < (place - level) * 4294967296.0);
}

uint64_t dither_width(const dither_question *q, uint32_t i, const dither_attribute *a)
{
    if (q->rounded) return (uint64_t)q->mechanism.cells;
    return (q->grouped >> i & 1 ? a->groups : a->answers) + (uint64_t)a->missing;
}

int64_t dither_group(const dither_question *q, uint32_t i, const dither_attribute *a, int64_t code)
{
    if (!(q->grouped >> i & 1) || code < 0) return code;
    return code == (int64_t)a->answers ? (int64_t)a->groups : (int64_t)a->group[code];
}

/* --- Mechanisms ---------------------------------------------------------------------------------------------- */

enum { GRR, SUE, OUE, OLH, BLOOM, SUBSET, HADAMARD, SQUARE_WAVE, STRATEGY };

static const struct {
    const char *name, *members[4];
    double most_cells;
} MECHANISMS[] = {
    {"grr", {"other"}, 2147483648.0},
    {"sue", {"true_set", "other_set"}, 2147483648.0},
    {"oue", {"true_set", "other_set"}, 2147483648.0},
    {"olh", {"buckets", "other"}, 131072},
    {"bloom", {"bits", "hashes", "flipped", "seed"}, 65536},
    {"subset", {"size", "missing"}, 1048576},
    {"hadamard", {"columns", "flip"}, 2147483648.0},
    {"square-wave", {"width", "base"}, 4096},
    {"strategy", {"sets", "high", "low", "rest"}, 4096},
};

static int whole_list(const dither_node *n, uint32_t count)
{
    if (!has_type(n, DITHER_LIST) || n->count != count || n->span != count + 1) return 0;
    for (uint32_t i = 1; i <= count; i++)
        if (!is_whole(n + i, 1)) return 0;
    return 1;
}

/* A set of cells: a number in base 16 below 2^cells, without leading zeros. */
static int is_set(const dither_node *n, int64_t cells)
{
    if (!has_type(n, DITHER_STRING) || !n->length || (n->length > 1 && n->text[0] == '0')) return 0;
    if (strspn(n->text, "0123456789abcdef") != n->length || (int64_t)n->length > (cells + 3) / 4) return 0;
    int top = n->text[0] <= '9' ? n->text[0] - '0' : n->text[0] - 'a' + 10;
    return 4 * ((int64_t)n->length - 1) + bits((uint64_t)top) <= cells;
}

static int in_set(const dither_node *n, int64_t cell)
{
    if (cell / 4 >= (int64_t)n->length) return 0;
    char digit = n->text[n->length - 1 - (uint32_t)(cell / 4)];
    return (digit <= '9' ? digit - '0' : digit - 'a' + 10) >> cell % 4 & 1;
}

static int read_lists(dither_mechanism *m)
{
    const dither_node *sets = m->list[0];
    if (!has_type(sets, DITHER_LIST) || !sets->count || sets->span != sets->count + 1) return 0;
    for (uint32_t i = 1; i <= sets->count; i++)
        if (!is_set(sets + i, m->cells)) return 0;
    m->report_bytes = (size_t)(bits(sets->count) + 7) / 8;
    return whole_list(m->list[1], sets->count) && whole_list(m->list[2], sets->count) &&
           whole_list(m->list[3], (uint32_t)m->cells);
}

/* What a cell gives: the number of draws of an output of a strategy; the last output is `sets->count`. */
static int64_t draws_of(const dither_mechanism *m, uint32_t output, int64_t cell)
{
    if (output == m->list[0]->count) return (int64_t)m->list[3][1 + cell].number;
    return (int64_t)m->list[in_set(m->list[0] + 1 + output, cell) ? 1 : 2][1 + output].number;
}

static int64_t code_of_cell(const dither_mechanism *m, int64_t cell)
{
    int columns = bits((uint64_t)m->own[0] - 1);
    return ((cell / m->own[0]) << columns) + cell % m->own[0];
}

/* Check the numbers of a mechanism, at little cost. */
static int read_numbers(dither_mechanism *m, const dither_node *n)
{
    const dither_node *name = dither_member(n, "name"), *width = dither_member(n, "threshold_bits");
    const dither_node *cells = dither_member(n, "cells");
    char allowed[80] = "name threshold_bits cells";
    hash h;
    memset(m, 0, sizeof *m);
    while (m->kind <= STRATEGY && !is_text_of(name, MECHANISMS[m->kind].name)) m->kind++;
    if (m->kind > STRATEGY || !is_whole(width, 8) || fmod(width->number, 8) != 0 || width->number > 48) return 0;
    for (int i = 0; i < 4 && MECHANISMS[m->kind].members[i]; i++) {
        const char *member = MECHANISMS[m->kind].members[i];
        m->list[i] = dither_member(n, member);
        if (m->kind != STRATEGY && !is_whole(m->list[i], 0)) return 0;
        if (m->kind != STRATEGY) m->own[i] = (int64_t)m->list[i]->number;
        strcat(strcat(allowed, " "), member);
    }
    if (!has_only(n, allowed) || !is_whole(cells, 2) || cells->number > MECHANISMS[m->kind].most_cells) return 0;
    m->cells = (int64_t)cells->number;
    m->width = (int)(width->number / 8);
    m->total = (int64_t)1 << (8 * m->width);
    m->draw_bytes = (size_t)m->width;
    hash_begin(&h);
    hash_canonical(&h, n, 3);
    hash_end(&h, m->identity);
    int64_t T = m->total, *own = m->own, drawn = m->kind == BLOOM ? own[0] : m->cells;
    m->report_bytes = (size_t)(drawn + 7) / 8;
    switch (m->kind) {
    case GRR:
        m->report_bytes = (size_t)(bits((uint64_t)m->cells - 1) + 7) / 8;
        return own[0] >= 1 && own[0] < T && m->cells <= (T - 1) / own[0]; /* other < keep */
    case OLH:
        m->report_bytes = own[0] <= 256 ? 9 : 10;
        m->draw_bytes += 8;
        return own[0] >= 2 && own[0] <= 4096 && own[1] >= 1 && own[1] < T && own[0] <= (T - 1) / own[1];
    case SUE:
    case OUE:
        m->draw_bytes *= (size_t)drawn;
        return own[1] >= 1 && own[1] < own[0] && own[0] < T;
    case BLOOM:
        m->draw_bytes *= (size_t)drawn;
        return own[1] >= 1 && own[1] <= 64 && own[1] < own[0] && own[0] <= (int64_t)1 << 29 &&
               m->cells * (int64_t)m->report_bytes <= (int64_t)1 << 26 && own[2] >= 1 && own[2] < T && 2 * own[2] < T;
    case SUBSET:
        m->draw_bytes += 8 * (size_t)m->cells;
        if (own[0] < 1 || own[0] >= m->cells || own[1] < 1 || own[1] > (T - 1) / (m->cells - own[0])) return 0;
        m->covering = (T - (m->cells - own[0]) * own[1]) / own[0];
        return m->covering > (T - own[0] * m->covering) / (m->cells - own[0]);
    case HADAMARD:
        if (own[0] < 1 || own[0] > m->cells || m->cells % own[0] || own[1] < 1 || own[1] >= T / 2) return 0;
        m->code_bits = bits((uint64_t)own[0] - 1) + bits((uint64_t)(m->cells / own[0]) - 1);
        m->report_bytes = (size_t)(m->code_bits + 1 + 7) / 8;
        m->draw_bytes += (size_t)(m->code_bits + 7) / 8;
        return m->code_bits <= 22;
    case SQUARE_WAVE:
        if (own[0] < 1 || own[0] > 8192 || own[1] < 1 || own[1] >= T) return 0;
        m->report_bytes = (size_t)(bits((uint64_t)(m->cells + own[0] - 2)) + 7) / 8;
        m->covering = (T - (m->cells - 1) * own[1]) / own[0];
        return own[1] < m->covering;
    default:
        return read_lists(m);
    }
}

static void fill_filter(const dither_mechanism *m, int64_t cell, unsigned char *filter)
{
    memset(filter, 0, m->report_bytes);
    int64_t set = 0;
    for (int64_t counter = 0; set < m->own[1]; counter++) {
        char text[96];
        unsigned char digest[32];
        hash h;
        int length = sprintf(text, "dither-bloom:%lld:%lld:%lld", (long long)m->own[3], (long long)cell,
            (long long)counter);
        hash_begin(&h);
        hash_add(&h, text, (size_t)length);
        hash_end(&h, digest);
        for (int i = 0; i < 8 && set < m->own[1]; i++) {
            int64_t bit = (int64_t)(little(digest + 4 * i, 4) % (uint64_t)m->own[0]);
            set += !(filter[bit / 8] >> bit % 8 & 1);
            filter[bit / 8] |= (unsigned char)(1 << bit % 8);
        }
    }
}

/* The largest number of bits in which two filters differ; its bound if comparing all pairs costs too much. */
static int64_t largest_distance(const dither_mechanism *m)
{
    int64_t bound = 2 * (m->own[1] < m->own[0] - m->own[1] ? m->own[1] : m->own[0] - m->own[1]), found = 0;
    int64_t most = (1 << 24) / (int64_t)m->report_bytes < 1 << 19 ? (1 << 24) / (int64_t)m->report_bytes : 1 << 19;
    size_t size = m->report_bytes;
    if (m->cells * (m->cells - 1) / 2 > most) return bound;
    unsigned char *filters = malloc((size_t)m->cells * size);
    for (int64_t i = 0; filters && i < m->cells; i++) fill_filter(m, i, filters + (size_t)i * size);
    for (int64_t i = 0; filters && i < m->cells; i++)
        for (int64_t j = 0; j < i && found < bound; j++) {
            int64_t distance = 0;
            for (size_t b = 0; b < size; b++)
                for (int x = filters[(size_t)i * size + b] ^ filters[(size_t)j * size + b]; x; x &= x - 1) distance++;
            if (distance > found) found = distance;
        }
    free(filters);
    return filters ? found : bound;
}

/* What takes more than a look at the numbers: a bloom mechanism's distance, and the sums of a strategy. */
static int complete(dither_mechanism *m)
{
    if (m->kind == BLOOM) return (m->distance = largest_distance(m)) > 0;
    for (int64_t cell = 0; m->kind == STRATEGY && cell < m->cells; cell++) {
        int64_t sum = 0;
        for (uint32_t i = 0; i <= m->list[0]->count && sum <= m->total; i++) sum += draws_of(m, i, cell);
        if (sum != m->total) return 0;
    }
    return 1;
}

int dither_mechanism_read(dither_mechanism *m, const dither_node *n) { return read_numbers(m, n) && complete(m); }

/* Largest over smallest probability of an output of a strategy, over all outputs. */
static long double strategy_ratio(const dither_mechanism *m)
{
    long double ratio = 1, least = m->list[3][1].number, most = least;
    for (int64_t cell = 0; cell < m->cells; cell++) {
        least = fminl(least, m->list[3][1 + cell].number);
        most = fmaxl(most, m->list[3][1 + cell].number);
    }
    for (uint32_t i = 1; i <= m->list[0]->count; i++) {
        long double high = m->list[1][i].number, low = m->list[2][i].number;
        int64_t members = 0;
        for (int64_t cell = 0; cell < m->cells; cell++) members += in_set(m->list[0] + i, cell);
        if (members && members < m->cells) ratio = fmaxl(ratio, fmaxl(high / low, low / high));
    }
    return fmaxl(ratio, most / least);
}

/* The logarithm of the ratio, rounded up. Where a long double is a double it may be 1e-15 (1 + epsilon) too large. */
int dither_epsilon(const dither_mechanism *m, double *epsilon)
{
    const int64_t *own = m->own;
    long double T = m->total, ratio = 1, times = 1, upper, cells = m->cells;
    switch (m->kind) {
    case GRR: ratio = (T - (cells - 1) * own[0]) / own[0]; break;
    case SUE:
    case OUE: ratio = own[0] * (T - own[1]) / (own[1] * (T - own[0])); break;
    case OLH: ratio = (long double)(m->total - (own[0] - 1) * own[1]) / own[1]; break;
    case BLOOM:
        ratio = (T - own[2]) / own[2];
        times = m->distance;
        break;
    case SUBSET:
        ratio = (long double)m->covering * (cells - own[0]) / (m->total - own[0] * m->covering);
        ratio *= 1 + 2 * cells * (cells - 1) / (18446744073709551616.0L - cells + 1);
        break;
    case HADAMARD: ratio = (T - own[1]) / own[1]; break;
    case SQUARE_WAVE: ratio = (long double)m->covering / own[1]; break;
    case STRATEGY: ratio = strategy_ratio(m); break;
    }
    upper = times * (logl(ratio) + 4 * LDBL_EPSILON * (1 + logl(ratio)));
    *epsilon = (double)upper;
    if ((long double)*epsilon < upper) *epsilon = nextafter(*epsilon, INFINITY);
    return isfinite(*epsilon);
}

static uint64_t randomised_response(uint64_t draw, uint64_t truth, uint64_t keep, uint64_t other)
{
    uint64_t answer = draw < keep ? truth : (draw - keep) / other;
    return draw < keep || answer < truth ? answer : answer + 1;
}

typedef struct {
    uint64_t key;
    int64_t cell;
} keyed;

static int order_of_cells(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->cell > y->cell) - (x->cell < y->cell);
}

/* `size` neighbours on a circle of cells in random order, which cover the true cell or not. */
static int draw_subset(const dither_mechanism *m, int64_t cell, const unsigned char *random, unsigned char *report)
{
    int64_t size = m->own[0], start = 0, d = (int64_t)little(random + 8 * m->cells, m->width);
    keyed *circle = malloc((size_t)m->cells * sizeof *circle);
    if (!circle) return 0;
    for (int64_t i = 0; i < m->cells; i++) circle[i] = (keyed){little(random + 8 * i, 8), i};
    qsort(circle, (size_t)m->cells, sizeof *circle, order_of_cells);
    while (circle[start].cell != cell) start++;
    if (d < size * m->covering) start -= d / m->covering;
    else start += 1 + (d - size * m->covering) % (m->cells - size);
    memset(report, 0, m->report_bytes);
    for (int64_t i = 0; i < size; i++) {
        int64_t member = circle[((start + i) % m->cells + m->cells) % m->cells].cell;
        report[member / 8] |= (unsigned char)(1 << member % 8);
    }
    free(circle);
    return 1;
}

static uint64_t draw_wave(const dither_mechanism *m, int64_t cell, int64_t d)
{
    int64_t width = m->own[0], place = (d - width * m->covering) / m->own[1];
    if (d < width * m->covering) return (uint64_t)(cell + d / m->covering);
    if (place >= m->cells - 1) return (uint64_t)((m->cells + width - 2) / 2);
    return (uint64_t)(place < cell ? place : place + width);
}

static uint64_t draw_parity(const dither_mechanism *m, int64_t cell, const unsigned char *random)
{
    int bytes = (m->code_bits + 7) / 8, parity = 0;
    uint64_t index = little(random, bytes) & (((uint64_t)1 << m->code_bits) - 1);
    for (uint64_t common = index & (uint64_t)code_of_cell(m, cell); common; common &= common - 1) parity ^= 1;
    parity ^= (int64_t)little(random + bytes, m->width) < m->own[1];
    return 2 * index + (uint64_t)parity;
}

int dither_randomise(const dither_mechanism *m, int64_t cell, const unsigned char *random, size_t count,
                     unsigned char *report)
{
    const int64_t *own = m->own;
    if (cell < 0 || cell >= m->cells || count < m->draw_bytes) return 0;
    uint64_t draw = little(random, m->width), number = 0;
    int64_t drawn = m->kind == BLOOM ? own[0] : m->cells, sum = 0;
    if (m->kind == SUBSET) return draw_subset(m, cell, random, report);
    if (m->kind == OLH) {
        uint32_t a = (uint32_t)little(random, 4), b = (uint32_t)little(random + 4, 4);
        uint64_t bucket = ((a * (uint32_t)cell + b) >> 16) * (uint64_t)own[0] >> 16;
        uint64_t keep = (uint64_t)(m->total - (own[0] - 1) * own[1]);
        memcpy(report, random, 8);
        bucket = randomised_response(little(random + 8, m->width), bucket, keep, (uint64_t)own[1]);
        put_little(report + 8, bucket, (int)m->report_bytes - 8);
        return 1;
    }
    if (m->kind == SUE || m->kind == OUE || m->kind == BLOOM) {
        if (m->kind == BLOOM) fill_filter(m, cell, report);
        else memset(report, 0, m->report_bytes);
        for (int64_t i = 0; i < drawn; i++, random += m->width) {
            int64_t below = m->kind == BLOOM ? own[2] : i == cell ? own[0] : own[1];
            report[i / 8] ^= (unsigned char)(((int64_t)little(random, m->width) < below) << i % 8);
        }
        return 1;
    }
    if (m->kind == GRR)
        number = randomised_response(draw, (uint64_t)cell, (uint64_t)(m->total - (m->cells - 1) * own[0]),
                                     (uint64_t)own[0]);
    else if (m->kind == HADAMARD) number = draw_parity(m, cell, random);
    else if (m->kind == SQUARE_WAVE) number = draw_wave(m, cell, (int64_t)draw);
    else
        while ((sum += draws_of(m, (uint32_t)number, cell)) <= (int64_t)draw) number++;
    put_little(report, number, (int)m->report_bytes);
    return 1;
}

int dither_check_report(const dither_mechanism *m, const unsigned char *report, size_t length)
{
    if (length != m->report_bytes) return 0;
    int64_t number = (int64_t)little(report, length < 8 ? (int)length : 8), set = 0;
    int64_t drawn = m->kind == BLOOM ? m->own[0] : m->cells;
    if (m->kind == GRR) return number < m->cells;
    if (m->kind == OLH) return (int64_t)little(report + 8, (int)length - 8) < m->own[0];
    if (m->kind == HADAMARD) return number < (int64_t)2 << m->code_bits;
    if (m->kind == SQUARE_WAVE) return number < m->cells + m->own[0] - 1;
    if (m->kind == STRATEGY) return number <= (int64_t)m->list[0]->count;
    for (size_t i = 0; i < length; i++)
        for (int x = report[i]; x; x &= x - 1) set++;
    if (drawn % 8 && report[length - 1] >> drawn % 8) return 0; /* bits beyond the last cell */
    return m->kind != SUBSET || set == m->own[0];
}

/* --- Announcement -------------------------------------------------------------------------------------------- */

static int read_schema(dither_announcement *a, const dither_node *schema)
{
    const dither_node *listed = dither_member(schema, "attributes"), *rules = dither_member(schema, "rules"), *n;
    uint64_t codes = 0;
    hash h;
    unsigned char digest[32];
    if (!has_only(schema, "format attributes rules") || !is_text_of(dither_member(schema, "format"),
        "dither-schema-1")) return 0;
    if (!has_type(listed, DITHER_LIST) || !listed->count || listed->count > 4096) return 0;
    if (rules && (rules->type != DITHER_LIST || !rules->count)) return 0;
    n = rules + 1;
    for (uint32_t i = 0; rules && i < rules->count; i++, n += n->span)
        if (n->type != DITHER_OBJECT) return 0;
    if (!(a->attributes = calloc(listed->count, sizeof *a->attributes))) return 0;
    n = listed + 1;
    for (uint32_t i = 0; i < listed->count; i++, n += n->span) {
        if (!dither_attribute_read(&a->attributes[i], n)) return 0;
        a->attribute_count++;
        codes += a->attributes[i].answers + (uint64_t)a->attributes[i].missing;
    }
    if (codes > MAX_CODES || (listed->count > 1 && !all_different(listed, "name"))) return 0;
    hash_begin(&h);
    hash_canonical(&h, schema, 0);
    hash_end(&h, digest);
    for (int i = 0; i < 32; i++) sprintf(a->fingerprint + 2 * i, "%02x", digest[i]);
    return 1;
}

/* The names of a schema in order, each with its place. */
typedef struct {
    const dither_node *name;
    uint16_t place;
} named;

static int order_of_names(const void *a, const void *b) { return order(((const named *)a)->name,
    ((const named *)b)->name); }

static int find_names(const dither_node *list, const named *names, uint32_t count, uint16_t *places)
{
    if (!has_type(list, DITHER_LIST) || !list->count || list->count > DITHER_QUESTION_ATTRIBUTES ||
        list->span != list->count + 1) return 0;
    for (uint32_t i = 0; i < list->count; i++) {
        named wanted = {list + 1 + i, 0}, *found = NULL;
        if (wanted.name->type == DITHER_STRING) found = bsearch(&wanted, names, count, sizeof *names,
            order_of_names);
        if (!found) return 0;
        places[i] = found->place;
        for (uint32_t j = 0; j < i; j++)
            if (places[j] == places[i]) return 0;
    }
    return 1;
}

static int read_question(const dither_announcement *a, dither_question *q, const dither_node *n, const named *names)
{
    const dither_node *list = dither_member(n, "attributes"), *grouped = dither_member(n, "grouped"),
        *rounded = dither_member(n, "rounded");
    uint16_t places[DITHER_QUESTION_ATTRIBUTES];
    uint64_t cells = 1;
    if (!has_only(n, "attributes mechanism grouped rounded") || (grouped && rounded) || (rounded &&
        rounded->type != DITHER_TRUE)) return 0;
    if (!find_names(list, names, a->attribute_count, q->attribute) || !read_numbers(&q->mechanism, dither_member(n,
        "mechanism"))) return 0;
    if (grouped && !find_names(grouped, names, a->attribute_count, places)) return 0;
    q->attributes = list->count;
    q->rounded = rounded != NULL;
    for (uint32_t g = 0; grouped && g < grouped->count; g++) {
        uint32_t i = 0;
        while (i < q->attributes && q->attribute[i] != places[g]) i++;
        if (i == q->attributes || !a->attributes[places[g]].groups) return 0;
        q->grouped |= (uint64_t)1 << i;
    }
    const dither_attribute *first = &a->attributes[q->attribute[0]];
    if (q->rounded) return q->attributes == 1 && (first->kind == NUMERIC || first->kind == DURATION) &&
        !first->missing;
    for (uint32_t i = 0; i < q->attributes; i++) {
        cells *= dither_width(q, i, &a->attributes[q->attribute[i]]);
        if ((double)cells >= MAX_NUMBER) return 0;
    }
    return cells == (uint64_t)q->mechanism.cells;
}

static int order_of_mechanisms(const void *a, const void *b)
{
    const dither_question *x = *(const dither_question *const *)a, *y = *(const dither_question *const *)b;
    return memcmp(x->mechanism.identity, y->mechanism.identity, sizeof x->mechanism.identity);
}

/* Check the sizes of a plan's reports and the work of its mechanisms, then compute its epsilon. */
static int check_work(dither_announcement *a)
{
    dither_question **by_mechanism = malloc(a->question_count * sizeof *by_mechanism);
    double report = 0, draws = 0, digests = 0, pairs = 0, filters = 0, different = 0, epsilon = 0;
    long double sum = 0;
    int fine = by_mechanism != NULL;
    for (uint32_t i = 0; fine && i < a->question_count; i++) {
        const dither_mechanism *m = &(by_mechanism[i] = &a->questions[i])->mechanism;
        report = (double)m->report_bytes + (a->split ? report : 0);
        draws = (double)m->draw_bytes + (a->split ? draws : 0);
        fine = report <= DITHER_REPORT_BYTES && draws <= 1 << 20;
    }
    if (fine) qsort(by_mechanism, a->question_count, sizeof *by_mechanism, order_of_mechanisms);
    for (uint32_t i = 0; fine && i < a->question_count; i++) {
        const dither_mechanism *m = &by_mechanism[i]->mechanism;
        double bit = 0, few = m->cells < 1024 ? (double)m->cells : 1024;
        if (i && order_of_mechanisms(&by_mechanism[i - 1], &by_mechanism[i]) == 0) continue;
        different++;
        if (m->kind == STRATEGY) pairs += (double)m->cells * m->list[0]->count;
        if (m->kind != BLOOM) continue;
        for (int64_t j = 0; j < m->own[1]; j++) bit += (double)m->own[0] / (double)(m->own[0] - j);
        digests += (double)m->cells * ceil(bit / 8);
        pairs += floor(few * few / 2);
        filters += (double)m->cells * (floor((double)m->own[0] / 8) + 1);
    }
    fine = fine && different <= 1 << 14 && digests <= 1 << 18 && pairs <= 1 << 21 && filters <= 1 << 25;
    for (uint32_t i = 0; fine && i < a->question_count; i++) {
        dither_mechanism *m = &by_mechanism[i]->mechanism;
        /* Equal mechanisms stand together; what was computed for the first serves the others. */
        int same = i && order_of_mechanisms(&by_mechanism[i - 1], &by_mechanism[i]) == 0;
        if (same) *m = by_mechanism[i - 1]->mechanism;
        else fine = complete(m) && dither_epsilon(m, &epsilon);
        sum += epsilon;
        a->plan_epsilon = a->split ? a->plan_epsilon : fmax(a->plan_epsilon, epsilon);
    }
    if (a->split) a->plan_epsilon = a->question_count > 1 ? nextafter((double)sum, INFINITY) : epsilon;
    free(by_mechanism);
    return fine;
}

static int order_of_sets(const void *a, const void *b)
{
    const dither_question *x = a, *y = b;
    if (x->attributes != y->attributes) return x->attributes < y->attributes ? -1 : 1;
    return memcmp(x->attribute, y->attribute, x->attributes * sizeof *x->attribute);
}

/* In a split plan no two questions ask the same set, and what one groups or rounds is in no other. */
static int sets_differ(const dither_announcement *a)
{
    dither_question *copies = malloc(a->question_count * sizeof *copies);
    uint32_t *uses = calloc(a->attribute_count, sizeof *uses);
    int fine = copies && uses;
    for (uint32_t i = 0; fine && i < a->question_count; i++) {
        dither_question *q = memcpy(&copies[i], &a->questions[i], sizeof *q);
        for (uint32_t k = 0; k < q->attributes; k++) {
            uses[q->attribute[k]]++;
            for (uint32_t j = k; j && q->attribute[j - 1] > q->attribute[j]; j--) {
                uint16_t other = q->attribute[j];
                q->attribute[j] = q->attribute[j - 1];
                q->attribute[j - 1] = other;
            }
        }
    }
    for (uint32_t i = 0; fine && i < a->question_count; i++)
        for (uint32_t k = 0; k < a->questions[i].attributes; k++)
            if ((a->questions[i].rounded || a->questions[i].grouped >> k & 1) &&
                uses[a->questions[i].attribute[k]] > 1) fine = 0;
    if (fine) qsort(copies, a->question_count, sizeof *copies, order_of_sets);
    for (uint32_t i = 1; fine && i < a->question_count; i++) fine = order_of_sets(&copies[i - 1], &copies[i]) != 0;
    free(copies);
    free(uses);
    return fine;
}

static int read_plan(dither_announcement *a, const dither_node *plan, const dither_node *attributes)
{
    const dither_node *round = dither_member(plan, "round"), *listed = dither_member(plan, "questions"),
        *shares = dither_member(plan, "shares");
    const dither_node *split = dither_member(plan, "split"), *population = dither_member(plan, "population"),
        *tally = dither_member(plan, "tally");
    double sum = 0;
    if (!has_only(plan, "round questions split shares population tally") || !is_whole(round, 0) ||
        round->number > 65535) return 0;
    if (!has_type(listed, DITHER_LIST) || !listed->count || listed->count > 65535 || !split) return 0;
    if ((split->type != DITHER_TRUE && split->type != DITHER_FALSE) || !is_number(population) ||
        !(population->number > 0 && population->number <= 1)) return 0;
    a->split = split->type == DITHER_TRUE;
    if (!is_text_of(tally, "counts") && !(a->split && is_text_of(tally, "patterns"))) return 0;
    if (!has_type(shares, DITHER_LIST) || shares->count != (a->split ? 0 : listed->count) ||
        shares->span != shares->count + 1) return 0;
    a->round = (uint32_t)round->number;
    a->population = population->number;
    a->questions = calloc(listed->count, sizeof *a->questions);
    a->shares = malloc((shares->count + 1) * sizeof *a->shares);
    named *names = malloc(a->attribute_count * sizeof *names);
    int fine = a->questions && a->shares && names;
    for (uint32_t i = 0; fine && i < shares->count; i++) {
        fine = is_number(shares + 1 + i) && shares[1 + i].number >= 0;
        sum += a->shares[i] = shares[1 + i].number;
    }
    const dither_node *n = attributes + 1;
    for (uint32_t i = 0; fine && i < a->attribute_count; i++, n += n->span) names[i] = (named){dither_member(n,
        "name"), (uint16_t)i};
    if (fine) qsort(names, a->attribute_count, sizeof *names, order_of_names);
    n = listed + 1;
    for (; fine && a->question_count < listed->count; a->question_count++, n += n->span) fine = read_question(a,
        &a->questions[a->question_count], n, names);
    free(names);
    return fine && (a->split ? sets_differ(a) : fabs(sum - 1) <= 1e-9) && check_work(a);
}

static int texts_of_announcement_fit(const dither_node *top)
{
    static const struct { const char *name; uint32_t most; int lines; } TEXTS[] = {
        {"title", 200, 0}, {"purpose", 4000, 1}, {"epsilon_reason", 4000, 1}, {"contact", 500, 0}, {"epoch", 64,
            0}};
    const dither_node *closes = dither_member(top, "closes"), *round_closes = dither_member(top, "round_closes"),
        *n;
    double seconds;
    for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; i++)
        if ((n = dither_member(top, TEXTS[i].name)) && !is_text(n, 0, TEXTS[i].most, 1, TEXTS[i].lines)) return 0;
    if (!is_absent_or_null(closes)) {
        if (!read_time(closes, &seconds) || seconds < 0) return 0;
        if (closes->length != 10 && (closes->length != 20 || closes->text[10] != 'T' || closes->text[16] != ':' ||
            closes->text[19] != 'Z')) return 0;
    }
    for (int i = 0; i < 2; i++)
        if (!is_absent_or_null(n = dither_member(top, i ? "wanted" : "closes_at_reports")) && !is_whole(n,
            1)) return 0;
    return is_absent_or_null(round_closes) || (is_number(round_closes) && round_closes->number >= 0);
}

static int consumers_fit(const dither_node *listed)
{
    const dither_node *n = listed + 1;
    uint64_t edges = 0;
    if (is_absent_or_null(listed)) return 1;
    if (listed->type != DITHER_LIST) return 0;
    for (uint32_t i = 0; i < listed->count; i++, n += n->span) {
        const dither_node *epsilon = dither_member(n, "epsilon"), *bins = dither_member(n, "edges");
        if (!has_only(n, "name edges epsilon") || !has_type(dither_member(n, "name"), DITHER_STRING) ||
            !rises(bins, 2)) return 0;
        if ((epsilon && !(is_number(epsilon) && epsilon->number > 0)) || (edges += bins->count) > 1 << 18) return 0;
    }
    return 1;
}

static int read_announcement(dither_announcement *a, const dither_node *top)
{
    const dither_node *campaign = dither_member(top, "campaign"), *schema = dither_member(top, "schema"),
        *plan = dither_member(top, "plan");
    const dither_node *epsilon = dither_member(top, "epsilon"), *start = dither_member(top, "start"),
        *assignment = dither_member(top, "assignment"), *n = top + 1;
    if (!has_type(top, DITHER_OBJECT) || !is_text_of(dither_member(top, "format"), "dither-campaign-1")) return 0;
    for (uint32_t i = 0; i < top->count; i++, n += n->span) {
        dither_node key = {DITHER_STRING, 0, 1, NULL, n->key, 0, n->key_length, 0};
        if (n->type >= DITHER_LIST && !is_one_of(&key, "schema plan consumers")) return 0;
    }
    if (!has_type(campaign, DITHER_STRING) || campaign->length != 32 || strspn(campaign->text,
        "0123456789abcdef") != 32) return 0;
    for (int i = 0; i < 8; i++) {
        int32_t four = hex4(campaign->text + 4 * i);
        a->campaign[2 * i] = (unsigned char)(four >> 8);
        a->campaign[2 * i + 1] = (unsigned char)four;
    }
    if (!has_type(dither_member(top, "name"), DITHER_STRING) || !is_one_of(dither_member(top, "state"),
        "draft open closing collected finalised")) return 0;
    if (!is_one_of(dither_member(top, "participation"), "open tokens") || (assignment && !is_one_of(assignment,
        "arrival token"))) return 0;
    if (!is_number(epsilon) || epsilon->number < 0 || !is_number(start) || start->number < 0 || !plan) return 0;
    a->epsilon = epsilon->number;
    a->start = start->number;
    a->arrival = assignment && is_text_of(assignment, "arrival");
    a->open = plan->type != DITHER_NULL;
    if (!texts_of_announcement_fit(top) || !consumers_fit(dither_member(top, "consumers")) || !read_schema(a,
        schema)) return 0;
    if (!is_text_of(dither_member(top, "schema_fingerprint"), a->fingerprint)) return 0;
    if (!a->open) return 1;
    return a->start < 1 && read_plan(a, plan, dither_member(schema, "attributes")) && a->plan_epsilon <= a->epsilon;
}

int dither_announcement_read(dither_announcement *a, const char *text, size_t length)
{
    memset(a, 0, sizeof *a);
    if (!dither_parse(&a->json, text, length)) return 0;
    if (read_announcement(a, a->json.nodes)) return 1;
    dither_announcement_free(a);
    return 0;
}

void dither_announcement_free(dither_announcement *a)
{
    for (uint32_t i = 0; i < a->attribute_count; i++) dither_attribute_free(&a->attributes[i]);
    free(a->attributes);
    free(a->questions);
    free(a->shares);
    dither_json_free(&a->json);
    memset(a, 0, sizeof *a);
}

/* --- Token, place, question, id ------------------------------------------------------------------------------ */

static void derive(const char *purpose, const unsigned char *token, const unsigned char *campaign, uint32_t number,
    unsigned char *out)
{
    unsigned char n[4];
    hash h;
    hash_begin(&h);
    hash_add(&h, "dither-1:", 9);
    hash_add(&h, purpose, strlen(purpose) + 1);
    hash_add(&h, token, 32);
    put_little(n, number, 4);
    if (campaign) hash_add(&h, campaign, 16), hash_add(&h, n, 4);
    hash_end(&h, out);
}

static double fraction(const char *purpose, const unsigned char *token, const unsigned char *campaign,
    uint32_t number)
{
    unsigned char digest[32];
    uint64_t n = 0;
    derive(purpose, token, campaign, number, digest);
    for (int i = 0; i < 8; i++) n = n << 8 | digest[i];
    return (double)(n >> 11) / MAX_NUMBER;
}

double dither_place(const unsigned char *token, const unsigned char *campaign) { return fraction("place", token,
    campaign, 0); }

int dither_is_asked(const unsigned char *token, const unsigned char *campaign, double start, double population)
{
    double place = dither_place(token, campaign), end = start + population;
    return start <= place && (end >= 1 - 1e-9 || place < end);
}

uint32_t dither_pick(const unsigned char *token, const unsigned char *campaign, uint32_t round,
    const double *shares, uint32_t count)
{
    double point = fraction("question", token, campaign, round), sum = 0;
    uint32_t last = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += shares[i];
        if (shares[i] <= 0) continue;
        last = i;
        if (sum > point) break;
    }
    return last;
}

void dither_report_id(const unsigned char *token, const unsigned char *campaign, uint32_t round,
    unsigned char *id) { derive("report", token, campaign, round, id); }

void dither_token_hash(const unsigned char *token, unsigned char *out) { derive("token", token, NULL, 0, out); }

/* --- Answer, envelope, verdict ------------------------------------------------------------------------------- */

static int draw_below(uint64_t n, dither_source source, void *context, uint64_t *drawn)
{
    unsigned char bytes[8];
    int count = bits(n - 1);
    do {
        if (!source(context, bytes, (size_t)(count + 7) / 8)) return 0;
        *drawn = little(bytes, (count + 7) / 8) & (((uint64_t)1 << count) - 1);
    } while (*drawn >= n);
    return 1;
}

/* Draw a record's report for one question. The number of random bytes does not depend on the record. */
static int draw_report(const dither_announcement *a, const dither_question *q, const dither_node *names,
    const dither_node *record,
                       dither_source source, void *context, unsigned char *report)
{
    uint64_t cell = 0;
    for (uint32_t i = 0; i < q->attributes; i++) {
        const dither_attribute *attribute = &a->attributes[q->attribute[i]];
        uint64_t width = dither_width(q, i, attribute), instead = width - 1;
        const dither_node *n = names + 1, *value = record + 1, *mine = NULL;
        unsigned char draw[4] = {0, 0, 0, 0};
        if ((!attribute->missing && !draw_below(width, source, context, &instead)) || (q->rounded &&
            !source(context, draw, 4))) return 0;
        for (uint32_t k = 0; k < q->attribute[i]; k++) n += n->span;
        n = dither_member(n, "name");
        for (uint32_t k = 0; k < record->count; k++, value += value->span)
            if (same_text(value->key, value->key_length, n->text, n->length)) mine = value;
        int64_t answer = q->rounded ? dither_level(attribute, mine, width, (uint32_t)little(draw,
            4)) : dither_group(q, i, attribute, dither_code(attribute, mine));
        cell = cell * width + (answer < 0 ? instead : (uint64_t)answer);
    }
    unsigned char *random = malloc(q->mechanism.draw_bytes);
    int fine = random && source(context, random, q->mechanism.draw_bytes) && dither_randomise(&q->mechanism,
        (int64_t)cell, random, q->mechanism.draw_bytes, report);
    free(random);
    return fine;
}

size_t dither_answer(const dither_announcement *a, const unsigned char *token, const dither_node *record,
    dither_source source, void *context, unsigned char *out)
{
    unsigned char payload[DITHER_REPORT_BYTES];
    size_t size = 0, length = 0;
    const dither_node *names = dither_member(dither_member(a->json.nodes, "schema"), "attributes");
    if (!a->open || !has_type(record, DITHER_OBJECT) || !(a->arrival || dither_is_asked(token, a->campaign,
        a->start, a->population))) return 0;
    uint32_t first = a->split ? 0 : dither_pick(token, a->campaign, a->round, a->shares, a->question_count);
    for (uint32_t i = first; i < (a->split ? a->question_count : first + 1); i++) {
        if (!draw_report(a, &a->questions[i], names, record, source, context, payload + size)) return 0;
        size += a->questions[i].mechanism.report_bytes;
    }
    return dither_envelope_add(out, &length, a->campaign, a->round, token, a->split ? -1 : (int64_t)first, payload,
        size) ? length : 0;
}

int dither_envelope_add(unsigned char *out, size_t *length, const unsigned char *campaign, int64_t round,
    const unsigned char *token, int64_t question,
                        const unsigned char *payload, size_t size)
{
    uint64_t count = *length ? little(out + 24, 4) + 1 : 1;
    size_t start = *length ? *length : 28;
    if (round < 0 || round > 65535 || question < -1 || question > 65534 || !size ||
        size > DITHER_REPORT_BYTES) return 0;
    if (count > 1000 || start + 36 + size > DITHER_BODY_BYTES) return 0;
    memcpy(out, "DTR1", 4);
    memcpy(out + 4, campaign, 16);
    put_little(out + 20, (uint64_t)round, 4);
    put_little(out + 24, count, 4);
    memcpy(out + start, token, 32);
    put_little(out + start + 32, (uint64_t)(question < 0 ? 65535 : question), 2);
    put_little(out + start + 34, size, 2);
    memcpy(out + start + 36, payload, size);
    *length = start + 36 + size;
    return 1;
}

static int is_problem(const char *type)
{
    static const char WANTED[] = "application/problem+json";
    type += strspn(type, " \t");
    size_t end = strcspn(type, ";");
    while (end && (type[end - 1] == ' ' || type[end - 1] == '\t')) end--;
    for (size_t i = 0; i < end; i++)
        if ((type[i] >= 'A' &&
            type[i] <= 'Z' ? type[i] | 32 : type[i]) != WANTED[i]) return 0; /* also at WANTED's end */
    return end == strlen(WANTED);
}

int dither_verdict(int status, const char *content_type, const char *body, size_t length)
{
    static const char PREFIX[] = "urn:dither:problem:";
    static const char CAUSES[] = "bad-envelope conflict malformed not-this-round round-closed too-large "
                                 "unknown-token wrong-campaign wrong-question";
    dither_json json;
    int means = DITHER_WAITING;
    if (length > DITHER_ANSWER_BYTES || !dither_parse(&json, body, length)) return DITHER_WAITING;
    const dither_node *results = dither_member(json.nodes, "results"), *type = dither_member(json.nodes, "type");
    if (status == 200 || status == 201) {
        if (has_type(results, DITHER_LIST) && results->count == 1 && is_one_of(results + 1,
            "stored duplicate")) means = DITHER_ACKNOWLEDGED;
    } else if (status >= 400 && status < 500 && is_problem(content_type) && has_type(type, DITHER_STRING) &&
        strncmp(type->text, PREFIX, strlen(PREFIX)) == 0) {
        dither_node cause = *type;
        cause.text += strlen(PREFIX);
        cause.length -= (uint32_t)strlen(PREFIX);
        means = is_text_of(&cause, "answered") ? DITHER_ANSWERED : is_one_of(&cause,
            CAUSES) ? DITHER_REFUSED : DITHER_WAITING;
    }
    dither_json_free(&json);
    return means;
}
