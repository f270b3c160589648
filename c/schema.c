/* The attributes of a schema, and the codes and levels of values. */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ANSWERS 131072u

static const char *const ATTRIBUTES[][3] = {
    {"boolean", "name kind", "missing question help labels"},
    {"categorical", "name kind values", "missing question help labels groups"},
    {"ordinal", "name kind values", "missing question help labels groups"},
    {"numeric", "name kind edges", "missing question help labels groups atoms unit clip"},
    {"duration", "name kind edges", "missing question help labels groups atoms unit clip"},
    {"date", "name kind edges", "missing question help labels groups cycles"},
    {"datetime", "name kind edges", "missing question help labels groups cycles"}};

static int two(const char **p, int from, int to) /* two digits of a number in a range, or -1 */
{
    const char *q = *p;
    if (q[0] < '0' || q[0] > '9' || q[1] < '0' || q[1] > '9') return -1;
    int n = 10 * (q[0] - '0') + q[1] - '0';
    *p = q + 2;
    return n < from || n > to ? -1 : n;
}

int dither_instant(const dither_node *n, double *seconds) /* the forms of ISO 8601 of the page */
{
    static const int DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    if (!dither_is(n, DITHER_STRING) || strlen(n->text) != n->length) return 0;
    const char *p = n->text;
    int century = two(&p, 0, 99), year = two(&p, 0, 99), month, day, hour = 0, minute = 0, second = 0, offset = 0;
    double fraction = 0;
    if (century < 0 || year < 0 || *p++ != '-' || (month = two(&p, 1, 12)) < 0 || *p++ != '-') return 0;
    year += 100 * century;
    int leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    if (year < 1 || (day = two(&p, 1, DAYS[month - 1] + (leap && month == 2))) < 0) return 0;
    if (*p) {
        if (*p != 'T' && *p != ' ') return 0;
        p++;
        if ((hour = two(&p, 0, 23)) < 0 || *p++ != ':' || (minute = two(&p, 0, 59)) < 0) return 0;
        if (*p == ':' && (p++, second = two(&p, 0, 59)) < 0) return 0;
        if (*p == '.' && p[-3] == ':' && p - n->text == 19) {
            size_t places = strspn(++p, "0123456789");
            double unit = 1;
            for (size_t i = 0; i < places; i++) fraction = 10 * fraction + (p[i] - '0'), unit *= 10;
            if (places < 1 || places > 6) return 0;
            fraction /= unit;
            p += places;
        }
        if (*p == '+' || *p == '-') {
            int sign = *p++ == '-' ? -1 : 1, hours = two(&p, 0, 23), minutes;
            if (hours < 0 || *p++ != ':' || (minutes = two(&p, 0, 59)) < 0) return 0;
            offset = sign * (60 * hours + minutes);
        } else if (*p == 'Z') p++;
        if (*p) return 0;
    }
    int before = year - 1, days = before * 365 + before / 4 - before / 100 + before / 400 - 719162 + day - 1;
    for (int i = 1; i < month; i++) days += DAYS[i - 1] + (leap && i == 2);
    *seconds = days * 86400.0 + 3600 * hour + 60 * (minute - offset) + second + fraction;
    return *seconds >= -719162 * 86400.0 && *seconds < 2932897 * 86400.0;
}

/* The number of cells of a line; *code is the cell of x, -1 if it is in none. */
static int on_line(const dither_attribute *a, double x, int64_t *code)
{
    double first = a->edges[0], last = a->edges[a->edge_count - 1];
    int64_t cells = 0, gap = -1;
    *code = -1;
    for (uint32_t i = 0, j = 0; i < a->edge_count || j < a->atom_count;) {
        double edge = i < a->edge_count ? a->edges[i] : INFINITY, atom = j < a->atom_count ? a->atoms[j] : INFINITY;
        double boundary = edge < atom ? edge : atom;
        int64_t before = gap, point = atom == boundary ? cells++ : -1;
        gap = first <= boundary && boundary < last ? cells++ : -1;
        if (point < 0) point = boundary != last ? gap : a->kind <= DURATION ? before : -1;
        if (x >= boundary) *code = x == boundary ? point : gap;
        i += edge == boundary;
        j += atom == boundary;
    }
    return (int)cells;
}

static int read_line(dither_attribute *a)
{
    const dither_node *edges = dither_member(a->node, "edges"), *atoms = dither_member(a->node, "atoms");
    const dither_node *unit = dither_member(a->node, "unit"), *clip = dither_member(a->node, "clip");
    const dither_node *cycles = dither_member(a->node, "cycles");
    int64_t unused;
    if (!dither_is(edges, DITHER_LIST) || edges->count < 2 || (atoms && !dither_rises(atoms, 1))) return 0;
    a->edge_count = edges->count;
    a->atom_count = atoms ? atoms->count : 0;
    if (a->edge_count > MAX_ANSWERS + 1 || a->edge_count + 2 * (uint64_t)a->atom_count > MAX_ANSWERS + 1) return 0;
    if (!(a->edges = malloc((edges->count + a->atom_count) * sizeof *a->edges))) return 0;
    a->atoms = a->edges + a->edge_count;
    double *to = a->edges;
    for each(n, edges) {
        double seconds = n->number;
        if (a->kind < DATE && !dither_is_number(n)) return 0;
        if (a->kind >= DATE) {
            if (!dither_instant(n, &seconds) || seconds > LAST_SECOND) return 0;
            if (n->length != (a->kind == DATE ? 10 : 19) || (n->length == 19 && n->text[10] != 'T')) return 0;
            if (n->length == 19 && n->text[16] != ':') return 0; /* hh:mm with an offset is as long */
        }
        *to = a->kind == DATE ? seconds / 86400 : seconds;
        if (to > a->edges && !(to[-1] < *to)) return 0;
        to++;
    }
    double low = a->edges[0], high = to[-1];
    if (a->kind < DATE && !(isfinite(high - low) && high - low >= 1e-290)) return 0;
    for (uint32_t i = 0; atoms && i < atoms->count; i++) *to++ = atoms[1 + i].number;
    if (atoms) low = fmin(low, a->atoms[0]), high = fmax(high, to[-1]);
    if (unit && !(dither_is_number(unit) && unit->number > 0 && unit->number <= (high - low) * (1 + 1e-9) &&
                  fmax(fabs(low), fabs(high)) <= 18446744073709551616.0 * unit->number)) return 0;
    if (clip && clip->type != DITHER_TRUE) return 0;
    a->clip = clip != NULL;
    a->answers = (uint32_t)on_line(a, 0, &unused);
    if (cycles && (!dither_is(cycles, DITHER_LIST) || cycles->count < 1 || cycles->count > 2)) return 0;
    if (cycles && cycles->count == 2 && dither_compare(cycles + 1, cycles + 2) == 0) return 0;
    for (uint32_t i = 0; cycles && i < cycles->count; i++) {
        if (!dither_is_word(cycles + 1 + i, a->kind == DATE ? "weekday" : "weekday hour")) return 0;
        a->answers *= cycles[1 + i].text[0] == 'w' ? 7 : 24;
    }
    return 1;
}

int dither_attribute_read(dither_attribute *a, const dither_node *node)
{
    memset(a, 0, sizeof *a);
    a->node = node;
    const dither_node *kind = dither_member(node, "kind"), *name = dither_member(node, "name");
    while (a->kind <= DATETIME && !dither_is_word(kind, ATTRIBUTES[a->kind][0])) a->kind++;
    if (a->kind > DATETIME || !dither_has_only(node, ATTRIBUTES[a->kind][1], ATTRIBUTES[a->kind][2])) return 0;
    const dither_node *values = dither_member(node, "values"), *groups = dither_member(node, "groups");
    const dither_node *missing = dither_member(node, "missing"), *question = dither_member(node, "question");
    const dither_node *help = dither_member(node, "help"), *labels = dither_member(node, "labels");
    if (!dither_is_text(name, 0, 1) || name->length == 0 || (missing && missing->type != DITHER_TRUE)) return 0;
    a->missing = missing != NULL;
    a->answers = 2;
    if (a->kind >= NUMERIC && !read_line(a)) return 0;
    if (values) {
        if (!dither_is(values, DITHER_LIST) || values->count > MAX_ANSWERS) return 0;
        for each(v, values) {
            if (v->type == DITHER_NULL || v->type > DITHER_STRING) return 0;
            if (v->type == DITHER_STRING && !dither_is_text(v, 0, 1)) return 0;
            if (v->type != DITHER_NUMBER) continue;
            errno = 0;
            if (!strpbrk(v->text, ".eE")) strtoll(v->text, NULL, 10);
            if (errno || !dither_is_number(v)) return 0;
        }
        a->answers = values->count;
    }
    if (a->answers < 2 || a->answers > MAX_ANSWERS) return 0;
    if (!(a->groups = malloc(a->answers * sizeof *a->groups))) return 0;
    if (values && dither_number_entries(values, a->groups) != values->count) return 0;
    if (groups) {
        if (!dither_is(groups, DITHER_LIST) || groups->count != a->answers) return 0;
        for each(g, groups) if (!dither_is_text(g, 0, 1) || g->length == 0) return 0;
        if ((a->group_count = dither_number_entries(groups, a->groups)) < 2) return 0;
    }
    if (question && (!dither_is_text(question, 500, 0) || !question->length)) return 0;
    if (help && (!dither_is_text(help, 2000, 1) || !help->length)) return 0;
    if (!labels) return 1;
    if (!dither_is(labels, DITHER_LIST)) return 0;
    if (labels->count != a->answers && labels->count != a->answers + (uint32_t)a->missing) return 0;
    for each(l, labels) if (!dither_is_text(l, 200, 0)) return 0;
    return 1;
}

void dither_attribute_free(dither_attribute *a)
{
    free(a->edges);
    free(a->groups);
}

static int number_of(const dither_attribute *a, const dither_node *value, double *x) /* its place on the line */
{
    if (a->kind >= DATE) {
        if (!dither_instant(value, x)) return 0;
        if (a->kind == DATE) *x = floor(*x / 86400);
        return 1;
    }
    *x = dither_is(value, DITHER_NUMBER) ? value->number : 0;
    return dither_is(value, DITHER_NUMBER);
}

int64_t dither_code(const dither_attribute *a, const dither_node *value)
{
    const dither_node *values = dither_member(a->node, "values"), *cycles = dither_member(a->node, "cycles");
    int64_t code = 0;
    double x;
    if (dither_is_absent(value)) return a->missing ? (int64_t)a->answers : -1;
    if (value->type >= DITHER_LIST) return -1;
    if (a->kind == BOOLEAN) {
        if (value->type == DITHER_STRING) return -1;
        x = value->type == DITHER_NUMBER ? value->number : value->type == DITHER_TRUE;
        return x == 0 ? 0 : x == 1 ? 1 : -1;
    }
    if (a->kind < NUMERIC) {
        for each(v, values) {
            if (dither_compare(v, value) == 0) return code;
            code++;
        }
        return -1;
    }
    if (!number_of(a, value, &x)) return -1;
    if (a->clip) {
        double low = a->edges[0], high = a->edges[a->edge_count - 1];
        if (a->atom_count) low = fmin(low, a->atoms[0]), high = fmax(high, a->atoms[a->atom_count - 1]);
        x = x < low ? low : x > high ? high : x;
    }
    on_line(a, x, &code);
    double days = a->kind == DATE ? x : floor(x / 86400);
    for (uint32_t i = 0; cycles && code >= 0 && i < cycles->count; i++)
        code = cycles[1 + i].text[0] == 'w' ? code * 7 + (((int64_t)days + 3) % 7 + 7) % 7
                                            : code * 24 + (int64_t)((x - days * 86400) / 3600);
    return code;
}

int64_t dither_level(const dither_attribute *a, const dither_node *value, uint64_t levels, uint32_t draw)
{
    double low = a->edges[0], high = a->edges[a->edge_count - 1], x;
    if (!number_of(a, value, &x)) return -1;
    if (a->clip) x = x < low ? low : x > high ? high : x;
    if (!(low <= x && x <= high)) return -1;
    double place = (x - low) / (high - low) * (double)(levels - 1), level = fmin(floor(place), (double)(levels - 2));
    return (int64_t)level + (draw < (place - level) * 4294967296.0);
}
