/* A strict reader of JSON (RFC 8259), what its nodes may be, and a schema's fingerprint. */
#include "internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 8
#define MAX_MEMBERS 64
#define MAX_NODES (1u << 22)
#define TWO_53 9007199254740992.0

typedef struct {
    const unsigned char *at, *end;
    dither_json *json;
    char *pool; /* where the next text goes; it never needs more room than the JSON text has */
} reader;

static void skip_space(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t')) r->at++;
}

static int take(reader *r, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0) return 0;
    r->at += n;
    return 1;
}

static uint32_t code_point(const unsigned char **at) /* of UTF-8 that was checked, or of a lone surrogate in it */
{
    const unsigned char *p = *at;
    int more = p[0] < 0x80 ? 0 : p[0] < 0xe0 ? 1 : p[0] < 0xf0 ? 2 : 3;
    uint32_t c = more == 0 ? p[0] : p[0] & (0x3fu >> more);
    for (int i = 1; i <= more; i++) c = c << 6 | (p[i] & 0x3fu);
    *at = p + more + 1;
    return c;
}

static void put_code_point(reader *r, uint32_t c)
{
    if (c < 0x80) *r->pool++ = (char)c;
    else {
        int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        *r->pool++ = (char)((0xff00u >> (more + 1) & 0xffu) | c >> (6 * more));
        while (more--) *r->pool++ = (char)(0x80 | (c >> (6 * more) & 0x3f));
    }
}

static int read_utf8(reader *r) /* one code point that is not ASCII, in its shortest form */
{
    const unsigned char *p = r->at;
    int more = p[0] >= 0xc2 && p[0] < 0xe0 ? 1 : p[0] >= 0xe0 && p[0] < 0xf0 ? 2 : p[0] >= 0xf0 && p[0] < 0xf5 ? 3 : 0;
    if (more == 0 || r->end - p <= more) return 0;
    for (int i = 1; i <= more; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    uint32_t c = code_point(&r->at);
    uint32_t least = more == 1 ? 0x80 : more == 2 ? 0x800 : 0x10000;
    if (c < least || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    put_code_point(r, c);
    return 1;
}

static int read_hex4(reader *r, uint32_t *c)
{
    *c = 0;
    if (r->end - r->at < 4) return 0;
    for (int i = 0; i < 4; i++) {
        int x = *r->at++;
        if (!(x >= '0' && x <= '9') && !((x | 32) >= 'a' && (x | 32) <= 'f')) return 0;
        *c = *c * 16 + (uint32_t)(x <= '9' ? x - '0' : (x | 32) - 'a' + 10);
    }
    return 1;
}

static int read_string(reader *r, dither_node *node)
{
    static const char NAMES[] = "\"\\/bfnrt", VALUES[] = "\"\\/\b\f\n\r\t";
    node->text = r->pool;
    for (r->at++; r->at < r->end && *r->at != '"';) {
        if (*r->at < 0x20) return 0;
        if (*r->at >= 0x80) {
            if (!read_utf8(r)) return 0;
        } else if (*r->at != '\\') *r->pool++ = (char)*r->at++;
        else if (take(r, "\\u")) {
            uint32_t c, low;
            if (!read_hex4(r, &c)) return 0;
            const unsigned char *after = r->at;
            if (c >= 0xd800 && c < 0xdc00 && take(r, "\\u") && read_hex4(r, &low) && low >= 0xdc00 && low < 0xe000)
                c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
            else r->at = after;
            put_code_point(r, c);
        } else {
            const char *name = r->end - r->at > 1 && r->at[1] ? strchr(NAMES, r->at[1]) : NULL;
            if (!name) return 0;
            *r->pool++ = VALUES[name - NAMES];
            r->at += 2;
        }
    }
    if (r->at == r->end) return 0;
    r->at++;
    node->length = (size_t)(r->pool - node->text);
    *r->pool++ = 0;
    return 1;
}

static int digits(reader *r)
{
    const unsigned char *from = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
    return r->at > from;
}

static int read_number(reader *r, dither_node *node)
{
    const unsigned char *from = r->at;
    take(r, "-");
    if (!take(r, "0") && !digits(r)) return 0;
    if (take(r, ".") && !digits(r)) return 0;
    if (take(r, "e") || take(r, "E")) {
        if (!take(r, "-")) take(r, "+");
        if (!digits(r)) return 0;
    }
    node->text = r->pool;
    node->length = (size_t)(r->at - from);
    memcpy(r->pool, from, node->length);
    r->pool[node->length] = 0;
    r->pool += node->length + 1;
    node->number = strtod(node->text, NULL);
    return 1;
}

static int is_key(const dither_node *n, const char *key, size_t length)
{
    return n->type == DITHER_STRING && n->length == length && memcmp(n->text, key, length) == 0;
}

static int read_value(reader *r, int depth)
{
    dither_json *json = r->json;
    if (json->used == json->room) {
        uint32_t room = json->room ? 2 * json->room : 256;
        dither_node *more = room > MAX_NODES ? NULL : realloc(json->nodes, room * sizeof *more);
        if (!more) return 0;
        json->nodes = more;
        json->room = room;
    }
    uint32_t at = json->used++, count = 0;
    dither_node node = {DITHER_NULL, 1, 0, "", 0, 0.0};
    skip_space(r);
    if (r->at == r->end) return 0;
    int list = *r->at == '[';
    if (list || *r->at == '{') {
        const char *close = list ? "]" : "}";
        if (depth == MAX_DEPTH) return 0;
        r->at++;
        skip_space(r);
        for (; !take(r, close); count++) {
            if (count && !take(r, ",")) return 0;
            uint32_t key = json->used;
            if (!list) {
                skip_space(r);
                if (count == MAX_MEMBERS || r->at == r->end || *r->at != '"' || !read_value(r, depth + 1)) return 0;
                const dither_node *name = json->nodes + key, *other = json->nodes + at + 1;
                for (; other < name; other += 1 + other[1].span)
                    if (is_key(name, other->text, other->length)) return 0;
                skip_space(r);
                if (!take(r, ":")) return 0;
            }
            if (!read_value(r, depth + 1)) return 0;
            skip_space(r);
        }
        node.type = list ? DITHER_LIST : DITHER_OBJECT;
    } else if (*r->at == '"') {
        node.type = DITHER_STRING;
        if (!read_string(r, &node)) return 0;
    } else if (take(r, "true")) node.type = DITHER_TRUE;
    else if (take(r, "false")) node.type = DITHER_FALSE;
    else if (!take(r, "null")) {
        node.type = DITHER_NUMBER;
        if (!read_number(r, &node)) return 0;
    }
    node.count = count;
    node.span = json->used - at;
    json->nodes[at] = node;
    return 1;
}

int dither_parse(dither_json *json, const char *text, size_t length)
{
    reader r = {(const unsigned char *)text, (const unsigned char *)text + length, json, NULL};
    memset(json, 0, sizeof *json);
    if (length > DITHER_ANNOUNCEMENT_BYTES || !(json->pool = malloc(length + 1))) return 0;
    r.pool = json->pool;
    int fine = read_value(&r, 0);
    skip_space(&r);
    if (fine && r.at == r.end) return 1;
    dither_json_free(json);
    return 0;
}

void dither_json_free(dither_json *json)
{
    free(json->nodes);
    free(json->pool);
    memset(json, 0, sizeof *json);
}

const dither_node *dither_member(const dither_node *object, const char *key)
{
    if (!object || object->type != DITHER_OBJECT) return NULL;
    for (const dither_node *n = object + 1; n < object + object->span; n += 1 + n[1].span)
        if (is_key(n, key, strlen(key))) return n + 1;
    return NULL;
}

/* ---- What a node must be ---- */

int dither_is(const dither_node *n, int type) { return n && n->type == type; }
int dither_is_number(const dither_node *n) { return dither_is(n, DITHER_NUMBER) && isfinite(n->number); }
int dither_is_whole(const dither_node *n)
{
    return dither_is_number(n) && strspn(n->text, "0123456789") == n->length && n->number < TWO_53;
}
int dither_is_word(const dither_node *n, const char *words) /* one of some words */
{
    if (!dither_is(n, DITHER_STRING) || n->length == 0) return 0;
    for (const char *w = words; *w; w += strspn(w, " ")) {
        size_t length = strcspn(w, " ");
        if (is_key(n, w, length)) return 1;
        w += length;
    }
    return 0;
}
int dither_is_absent(const dither_node *n) { return !n || n->type == DITHER_NULL; }

int dither_has_only(const dither_node *o, const char *must, const char *may) /* an object with these members */
{
    uint32_t needed = 0, met = 0;
    if (!dither_is(o, DITHER_OBJECT)) return 0;
    for (const char *w = must; *w; w += strspn(w, " "), needed++) w += strcspn(w, " ");
    for (const dither_node *n = o + 1; n < o + o->span; n += 1 + n[1].span) {
        if (dither_is_word(n, must)) met++;
        else if (!dither_is_word(n, may)) return 0;
    }
    return met == needed;
}

int dither_is_text(const dither_node *n, size_t most, int lines) /* most 0: any length, control characters too */
{
    if (!dither_is(n, DITHER_STRING)) return 0;
    const unsigned char *p = (const unsigned char *)n->text, *end = p + n->length;
    for (size_t count = 0; p < end; count++) {
        uint32_t c = code_point(&p);
        int control = c < 0x20 || (c >= 0x7f && c < 0xa0);
        if ((c >= 0xd800 && c < 0xe000) || (most && (count == most || (control && !(lines && c == '\n'))))) return 0;
    }
    return 1;
}

int dither_rises(const dither_node *list, uint32_t least)
{
    double last = -INFINITY;
    if (!dither_is(list, DITHER_LIST) || list->count < least) return 0;
    for each(n, list) {
        if (!dither_is_number(n) || !(last < n->number)) return 0;
        last = n->number;
    }
    return 1;
}

static double plain(const dither_node *n) { return n->type == DITHER_NUMBER ? n->number : n->type == DITHER_TRUE; }

int dither_compare(const dither_node *a, const dither_node *b) /* true equals 1; texts by their code points */
{
    int text = a->type == DITHER_STRING;
    if (text != (b->type == DITHER_STRING)) return text ? 1 : -1;
    if (!text) return (plain(a) > plain(b)) - (plain(a) < plain(b));
    int order = memcmp(a->text, b->text, a->length < b->length ? a->length : b->length);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

static int compare_entries(const void *a, const void *b) /* equal ones in the order of the text */
{
    const dither_node *x = *(const dither_node *const *)a, *y = *(const dither_node *const *)b;
    int order = dither_compare(x, y);
    return order ? order : (x > y) - (x < y);
}

/* Number the different entries of a list of texts, numbers or booleans in the order of their first occurrence; how
 * many there are, 0 on failure. */
uint32_t dither_number_entries(const dither_node *list, uint32_t *numbers)
{
    const dither_node **sorted = malloc((list->count + 1) * sizeof *sorted);
    uint32_t i = 0, first = 0, different = 0;
    if (!sorted) return 0;
    for each(n, list) sorted[i++] = n;
    qsort(sorted, list->count, sizeof *sorted, compare_entries);
    for (i = 0; i < list->count; i++) {
        if (dither_compare(sorted[first], sorted[i]) != 0) first = i;
        numbers[sorted[i] - list - 1] = (uint32_t)(sorted[first] - list - 1);
    }
    free(sorted);
    for (i = 0; i < list->count; i++) numbers[i] = numbers[i] == i ? different++ : numbers[numbers[i]];
    return different;
}

typedef struct {
    char *text; /* NULL: only measure */
    size_t length;
} writer;

static void put(writer *w, const char *text, size_t length)
{
    if (w->text) memcpy(w->text + w->length, text, length);
    w->length += length;
}

static void put_string(writer *w, const dither_node *n)
{
    static const char SHORT[] = "\"\\\b\f\n\r\t", NAMES[] = "\"\\bfnrt";
    const unsigned char *p = (const unsigned char *)n->text, *end = p + n->length;
    char out[16];
    put(w, "\"", 1);
    while (p < end) {
        uint32_t c = code_point(&p);
        const char *known = c && c < 0x80 ? strchr(SHORT, (int)c) : NULL;
        if (known) sprintf(out, "\\%c", NAMES[known - SHORT]);
        else if (c >= 0x20 && c < 0x7f) sprintf(out, "%c", (int)c);
        else if (c < 0x10000) sprintf(out, "\\u%04x", (unsigned)c);
        else sprintf(out, "\\u%04x\\u%04x", 0xd7c0u + (unsigned)(c >> 10), 0xdc00u + (unsigned)(c & 0x3ff));
        put(w, out, strlen(out));
    }
    put(w, "\"", 1);
}

static void put_canonical(writer *w, const dither_node *n, int depth)
{
    static const char *const WORDS[] = {"null", "false", "true"};
    const dither_node *keys[MAX_MEMBERS];
    uint32_t count = 0, written = 0;
    if (n->type == DITHER_STRING) put_string(w, n);
    else if (n->type == DITHER_NUMBER) put(w, n->text, n->length);
    else if (n->type == DITHER_LIST) {
        put(w, "[", 1);
        for each(entry, n) {
            if (written++) put(w, ",", 1);
            put_canonical(w, entry, depth + 1);
        }
        put(w, "]", 1);
    } else if (n->type == DITHER_OBJECT) {
        for (const dither_node *k = n + 1; k < n + n->span; k += 1 + k[1].span)
            if (depth != 2 || !dither_is_word(k, "question help labels")) keys[count++] = k; /* depth 2: an attribute */
        qsort(keys, count, sizeof *keys, compare_entries);
        put(w, "{", 1);
        for (uint32_t i = 0; i < count; i++) {
            if (i) put(w, ",", 1);
            put_string(w, keys[i]);
            put(w, ":", 1);
            put_canonical(w, keys[i] + 1, depth + 1);
        }
        put(w, "}", 1);
    } else put(w, WORDS[n->type], strlen(WORDS[n->type]));
}

int dither_fingerprint(const dither_node *schema, char hex[65])
{
    unsigned char digest[32];
    writer w = {NULL, 0};
    put_canonical(&w, schema, 0);
    if (!(w.text = malloc(w.length))) return 0;
    w.length = 0;
    put_canonical(&w, schema, 0);
    dither_sha256(w.text, w.length, digest);
    free(w.text);
    for (int i = 0; i < 32; i++) sprintf(hex + 2 * i, "%02x", digest[i]);
    return 1;
}
