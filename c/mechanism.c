/* The mechanisms: their parameters, law, epsilon and reports. The names are those of the page. */
#include "internal.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PAIRS (1u << 21) /* cells times sets of a strategy */

static const struct {
    const char *name, *members[5]; /* the whole numbers beside cells and threshold_bits */
    uint64_t max_cells;
} KINDS[] = {{"grr", {"other"}, (uint64_t)1 << 31},
             {"sue", {"true_set", "other_set"}, (uint64_t)1 << 31},
             {"oue", {"true_set", "other_set"}, (uint64_t)1 << 31},
             {"olh", {"buckets", "other"}, 1 << 17},
             {"bloom", {"bits", "hashes", "flipped", "seed"}, 1 << 16},
             {"subset", {"size", "missing"}, 1 << 20},
             {"hadamard", {"columns", "flip"}, (uint64_t)1 << 31},
             {"square-wave", {"width", "base"}, 4096},
             {"strategy", {NULL}, 4096}};

uint64_t dither_get(const unsigned char *p, uint64_t count)
{
    uint64_t n = 0;
    while (count--) n = n << 8 | p[count];
    return n;
}

void dither_put(unsigned char *p, uint64_t n, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) p[i] = (unsigned char)(n >> (8 * i));
}

uint64_t dither_bits(uint64_t n)
{
    uint64_t bits = 0;
    for (; n; n >>= 1) bits++;
    return bits;
}

static uint64_t bytes_for(uint64_t bits) { return (bits + 7) / 8; }
static uint64_t total(const dither_mechanism *m) { return (uint64_t)1 << m->threshold_bits; }

/* What is left of all draws after `count` times `each`; 0 if nothing is. */
static uint64_t rest_of(const dither_mechanism *m, uint64_t count, uint64_t each)
{
    if (each < 1 || each >= total(m) || count > (total(m) - 1) / each) return 0;
    return total(m) - count * each;
}

static uint64_t keep(const dither_mechanism *m) /* of randomised response */
{
    return m->kind == GRR ? rest_of(m, m->cells - 1, m->first) : rest_of(m, m->first - 1, m->second);
}

static uint64_t covering(const dither_mechanism *m) { return rest_of(m, m->cells - m->first, m->second) / m->first; }
static uint64_t peak(const dither_mechanism *m) { return rest_of(m, m->cells - 1, m->second) / m->first; }
static uint64_t column_bits(const dither_mechanism *m) { return dither_bits(m->first - 1); }
static uint64_t code_bits(const dither_mechanism *m)
{
    return column_bits(m) + dither_bits(m->cells / m->first - 1);
}

static int holds(const dither_node *set, uint64_t cell) /* whether a set in base 16 has a cell */
{
    if (cell / 4 >= set->length) return 0;
    int digit = set->text[set->length - 1 - cell / 4];
    return (digit <= '9' ? digit - '0' : digit - 'a' + 10) >> cell % 4 & 1;
}

/* The draws of output i for a cell; the list `rest` has those of the last output. */
static uint64_t draws_of(const dither_mechanism *m, uint64_t i, uint64_t cell)
{
    const dither_node *set = dither_member(m->node, "sets") + 1 + i;
    if (i == m->first) return (uint64_t)dither_member(m->node, "rest")[1 + cell].number;
    return (uint64_t)dither_member(m->node, holds(set, cell) ? "high" : "low")[1 + i].number;
}

static int is_draws(const dither_mechanism *m, const dither_node *list, uint64_t count)
{
    if (!dither_is(list, DITHER_LIST) || list->count != count) return 0;
    for each(n, list) if (!dither_is_whole(n) || n->number < 1 || n->number > (double)total(m)) return 0;
    return 1;
}

static int read_strategy(dither_mechanism *m, const dither_node *node)
{
    const dither_node *sets = dither_member(node, "sets");
    if (!dither_is(sets, DITHER_LIST) || sets->count < 1 || m->cells * sets->count > MAX_PAIRS) return 0;
    for each(set, sets) {
        if (!dither_is(set, DITHER_STRING) || set->length < 1 || set->length > (m->cells + 3) / 4) return 0;
        if (strspn(set->text, "0123456789abcdef") != set->length || (set->text[0] == '0' && set->length > 1)) return 0;
        for (uint64_t cell = m->cells; cell < 4 * set->length; cell++)
            if (holds(set, cell)) return 0;
    }
    m->node = node;
    m->first = sets->count;
    if (!is_draws(m, dither_member(node, "high"), m->first)) return 0;
    if (!is_draws(m, dither_member(node, "low"), m->first)) return 0;
    if (!is_draws(m, dither_member(node, "rest"), m->cells)) return 0;
    for (uint64_t cell = 0; cell < m->cells; cell++) {
        uint64_t sum = 0;
        for (uint64_t i = 0; i <= m->first && sum <= total(m); i++) sum += draws_of(m, i, cell);
        if (sum != total(m)) return 0;
    }
    return 1;
}

/* Whether the numbers give a guarantee: the column "must hold" of the page. */
static int is_private(const dither_mechanism *m)
{
    uint64_t all = total(m), first = m->first, second = m->second, arcs = m->cells - first;
    switch (m->kind) {
    case GRR: return first < keep(m);
    case SUE:
    case OUE: return second >= 1 && second < first && first < all;
    case OLH: return first >= 2 && first <= 4096 && second < keep(m);
    case BLOOM:
        return second >= 1 && second <= 64 && second < first && first < 1u << 30 &&
               m->cells * bytes_for(first) <= 1u << 26 && m->third >= 1 && m->third < all / 2;
    case SUBSET: /* covering * arcs > left, without the product */
        return first >= 1 && first < m->cells && covering(m) > (all - first * covering(m)) / arcs;
    case HADAMARD:
        return first >= 1 && first <= m->cells && m->cells % first == 0 && code_bits(m) <= 22 && second >= 1 &&
               second < all / 2;
    case SQUARE_WAVE: return first >= 1 && first <= 8192 && second < peak(m);
    default: return 1; /* a strategy was read with its lists */
    }
}

static void set_sizes(dither_mechanism *m)
{
    uint64_t step = m->threshold_bits / 8, bits = m->kind == BLOOM ? m->first : m->cells;
    m->draw_bytes = step;
    switch (m->kind) {
    case GRR: m->report_bytes = bytes_for(dither_bits(m->cells - 1)); break;
    case OLH:
        m->draw_bytes = 8 + step;
        m->report_bytes = m->first <= 256 ? 9 : 10;
        break;
    case SUBSET:
        m->draw_bytes = 8 * m->cells + step;
        m->report_bytes = bytes_for(m->cells);
        break;
    case HADAMARD:
        m->draw_bytes = bytes_for(code_bits(m)) + step;
        m->report_bytes = bytes_for(code_bits(m) + 1);
        break;
    case SQUARE_WAVE: m->report_bytes = bytes_for(dither_bits(m->cells + m->first - 2)); break;
    case STRATEGY: m->report_bytes = bytes_for(dither_bits(m->first)); break;
    default: /* a bit for each cell or each position of a filter */
        m->draw_bytes = bits * step;
        m->report_bytes = bytes_for(bits);
    }
}

int dither_mechanism_read(dither_mechanism *m, const dither_node *node)
{
    const dither_node *name = dither_member(node, "name"), *part;
    uint64_t kind = 0, count = 0;
    memset(m, 0, sizeof *m);
    while (kind <= STRATEGY && !dither_is_word(name, KINDS[kind].name)) kind++;
    if (kind > STRATEGY) return 0;
    uint64_t *numbers[] = {&m->first, &m->second, &m->third, &m->fourth};
    for (; KINDS[kind].members[count]; count++) {
        if (!dither_is_whole(part = dither_member(node, KINDS[kind].members[count]))) return 0;
        *numbers[count] = (uint64_t)part->number;
    }
    const dither_node *cells = dither_member(node, "cells"), *bits = dither_member(node, "threshold_bits");
    uint32_t others = kind == STRATEGY ? 7 : 3; /* name, cells, threshold_bits, and four lists */
    if (node->count != count + others || !dither_is_whole(cells) || !dither_is_whole(bits)) return 0;
    m->kind = kind;
    m->cells = (uint64_t)cells->number;
    m->threshold_bits = (uint64_t)bits->number;
    if (m->threshold_bits % 8 || m->threshold_bits < 8 || m->threshold_bits > 48) return 0;
    if (m->cells < 2 || m->cells > KINDS[kind].max_cells) return 0;
    if (kind == STRATEGY && !read_strategy(m, node)) return 0;
    if (!is_private(m)) return 0;
    set_sizes(m);
    return 1;
}

int dither_compare_mechanisms(const void *x, const void *y)
{
    const dither_mechanism *a = x, *b = y;
    static const char *const LISTS[] = {"sets", "high", "low", "rest"};
    int order = memcmp(a, b, offsetof(dither_mechanism, node));
    for (int i = 0; order == 0 && a->kind == STRATEGY && i < 4; i++) {
        const dither_node *p = dither_member(a->node, LISTS[i]), *q = dither_member(b->node, LISTS[i]);
        for (uint32_t j = 1; order == 0 && j <= p->count; j++) order = dither_compare(p + j, q + j);
    }
    return order;
}

static void fill_filter(const dither_mechanism *m, uint64_t cell, unsigned char *filter)
{
    unsigned char digest[32];
    char text[96];
    uint64_t set = 0;
    memset(filter, 0, m->report_bytes);
    for (unsigned counter = 0; set < m->second; counter++) {
        int length = sprintf(text, "dither-bloom:%llu:%llu:%u", (unsigned long long)m->fourth,
                             (unsigned long long)cell, counter);
        dither_sha256(text, (size_t)length, digest);
        for (int i = 0; i < 32 && set < m->second; i += 4) {
            uint64_t bit = dither_get(digest + i, 4) % m->first;
            set += !(filter[bit / 8] >> bit % 8 & 1);
            filter[bit / 8] |= (unsigned char)(1 << bit % 8);
        }
    }
}

static uint64_t filter_distance(const dither_mechanism *m) /* 0: all filters are equal, or there is no memory */
{
    uint64_t size = m->report_bytes, h = m->second, bound = 2 * (h < m->first - h ? h : m->first - h), largest = 0;
    uint64_t left = (1u << 24) / size < 1u << 19 ? (1u << 24) / size : 1u << 19;
    unsigned char *filters = malloc(m->cells * size);
    for (uint64_t i = 0; filters && i < m->cells && largest < bound; i++) {
        fill_filter(m, i, filters + i * size);
        for (uint64_t j = 0; j < i && largest < bound; j++) {
            uint64_t differ = 0;
            for (uint64_t k = 0; k < size; k++)
                for (int x = filters[i * size + k] ^ filters[j * size + k]; x; x &= x - 1) differ++;
            if (differ > largest) largest = differ;
            if (--left == 0) largest = bound;
        }
    }
    free(filters);
    return largest;
}

double dither_round_up(long double x)
{
    double d = (double)x;
    return d < x ? nextafter(d, INFINITY) : d;
}

static long double spread(uint64_t a, uint64_t b) { return a > b ? (long double)a / b : (long double)b / a; }

static long double strategy_ratio(const dither_mechanism *m)
{
    const dither_node *rest = dither_member(m->node, "rest"), *high = dither_member(m->node, "high");
    const dither_node *low = dither_member(m->node, "low"), *sets = dither_member(m->node, "sets");
    double least = rest[1].number, most = least;
    for each(n, rest) {
        least = fmin(least, n->number);
        most = fmax(most, n->number);
    }
    long double largest = spread((uint64_t)most, (uint64_t)least);
    for (uint64_t i = 0; i < m->first; i++) {
        uint64_t held = 0;
        for (uint64_t cell = 0; cell < m->cells; cell++) held += (uint64_t)holds(sets + 1 + i, cell);
        long double ratio = spread((uint64_t)high[1 + i].number, (uint64_t)low[1 + i].number);
        if (held > 0 && held < m->cells && ratio > largest) largest = ratio;
    }
    return largest;
}

int dither_epsilon(const dither_mechanism *m, double *epsilon)
{
    long double all = total(m), ratio = 1, more = 0, cells = m->cells;
    uint64_t times = 1;
    switch (m->kind) {
    case GRR: ratio = (long double)keep(m) / m->first; break;
    case OLH: ratio = (long double)keep(m) / m->second; break;
    case SUE:
    case OUE: ratio = (long double)m->first / m->second * ((all - m->second) / (all - m->first)); break;
    case BLOOM:
        ratio = (all - m->third) / m->third;
        if ((times = filter_distance(m)) == 0) return 0;
        break;
    case SUBSET:
        ratio = (long double)covering(m) * (cells - m->first) / (all - m->first * covering(m));
        more = log1pl(2 * cells * (cells - 1) / (18446744073709551616.0L - cells + 1));
        break;
    case HADAMARD: ratio = (all - m->second) / m->second; break;
    case SQUARE_WAVE: ratio = (long double)peak(m) / m->second; break;
    default: ratio = strategy_ratio(m);
    }
    if (ratio <= 1 && more <= 0) {
        *epsilon = 0;
        return 1;
    }
    long double exact = times * logl(ratio) + more;
    /* More than the rounding of three operations and a logarithm can take away. */
    *epsilon = dither_round_up(exact + 8 * LDBL_EPSILON * (times + exact));
    return 1;
}

static uint64_t respond(uint64_t draw, uint64_t truth, uint64_t kept, uint64_t other)
{
    uint64_t answer = draw < kept ? truth : (draw - kept) / other;
    return draw >= kept && answer >= truth ? answer + 1 : answer;
}

typedef struct {
    uint64_t key, cell;
} keyed;

static int compare_keys(const void *x, const void *y)
{
    const keyed *a = x, *b = y;
    if (a->key != b->key) return a->key < b->key ? -1 : 1;
    return (a->cell > b->cell) - (a->cell < b->cell);
}

static int draw_subset(const dither_mechanism *m, uint64_t cell, const unsigned char *draws, unsigned char *report)
{
    uint64_t n = m->cells, hits = m->first * covering(m), place = 0, start;
    uint64_t draw = dither_get(draws + 8 * n, m->threshold_bits / 8);
    keyed *order = malloc(n * sizeof *order);
    if (!order) return 0;
    for (uint64_t i = 0; i < n; i++) order[i] = (keyed){dither_get(draws + 8 * i, 8), i};
    qsort(order, n, sizeof *order, compare_keys);
    while (order[place].cell != cell) place++;
    start = draw < hits ? place + n - draw / covering(m) : place + 1 + (draw - hits) % (n - m->first);
    memset(report, 0, m->report_bytes);
    for (uint64_t i = 0; i < m->first; i++) {
        uint64_t chosen = order[(start + i) % n].cell;
        report[chosen / 8] |= (unsigned char)(1 << chosen % 8);
    }
    free(order);
    return 1;
}

static uint64_t draw_coefficient(const dither_mechanism *m, uint64_t cell, const unsigned char *draws)
{
    uint64_t size = bytes_for(code_bits(m)), index = dither_get(draws, size) & (((uint64_t)1 << code_bits(m)) - 1);
    uint64_t parity = dither_get(draws + size, m->threshold_bits / 8) < m->second;
    uint64_t both = index & ((cell / m->first) << column_bits(m) | cell % m->first);
    for (; both; both &= both - 1) parity ^= 1;
    return 2 * index + parity;
}

static uint64_t draw_wave(const dither_mechanism *m, uint64_t cell, uint64_t draw)
{
    if (draw < m->first * peak(m)) return cell + draw / peak(m);
    uint64_t place = (draw - m->first * peak(m)) / m->second;
    if (place >= m->cells - 1) return (m->cells + m->first - 2) / 2;
    return place < cell ? place : place + m->first;
}

static uint64_t draw_output(const dither_mechanism *m, uint64_t cell, uint64_t draw)
{
    uint64_t output = 0, sum = 0;
    for (; output < m->first; output++)
        if ((sum += draws_of(m, output, cell)) > draw) break;
    return output;
}

int dither_randomise(const dither_mechanism *m, int64_t value, const unsigned char *draws, size_t count,
                     unsigned char *report)
{
    if (value < 0 || (uint64_t)value >= m->cells || count != m->draw_bytes) return 0;
    uint64_t step = m->threshold_bits / 8, cell = (uint64_t)value, draw = dither_get(draws, step), number = 0;
    switch (m->kind) {
    case GRR: number = respond(draw, cell, keep(m), m->first); break;
    case HADAMARD: number = draw_coefficient(m, cell, draws); break;
    case SQUARE_WAVE: number = draw_wave(m, cell, draw); break;
    case STRATEGY: number = draw_output(m, cell, draw); break;
    case SUBSET: return draw_subset(m, cell, draws, report);
    case OLH:
        number = (dither_get(draws, 4) * cell + dither_get(draws + 4, 4)) % ((uint64_t)1 << 32) >> 16;
        number = respond(dither_get(draws + 8, step), number * m->first >> 16, keep(m), m->second);
        memcpy(report, draws, 8);
        dither_put(report + 8, number, m->report_bytes - 8);
        return 1;
    default: /* bits: sue, oue, bloom */
        if (m->kind == BLOOM) fill_filter(m, cell, report);
        else memset(report, 0, m->report_bytes);
        for (uint64_t i = 0; i < (m->kind == BLOOM ? m->first : m->cells); i++) {
            uint64_t below = m->kind == BLOOM ? m->third : i == cell ? m->first : m->second;
            report[i / 8] ^= (unsigned char)((dither_get(draws + i * step, step) < below) << i % 8);
        }
        return 1;
    }
    dither_put(report, number, m->report_bytes);
    return 1;
}

int dither_check_report(const dither_mechanism *m, const unsigned char *report, size_t length)
{
    if (length != m->report_bytes) return 0;
    uint64_t spare = (m->kind == BLOOM ? m->first : m->cells) % 8, held = 0;
    switch (m->kind) {
    case GRR: return dither_get(report, length) < m->cells;
    case OLH: return dither_get(report + 8, length - 8) < m->first;
    case HADAMARD: return dither_get(report, length) >> (code_bits(m) + 1) == 0;
    case SQUARE_WAVE: return dither_get(report, length) < m->cells + m->first - 1;
    case STRATEGY: return dither_get(report, length) <= m->first;
    default: break;
    }
    for (size_t i = 0; i < length; i++)
        for (int x = report[i]; x; x &= x - 1) held++;
    return (!spare || report[length - 1] >> spare == 0) && (m->kind != SUBSET || held == m->first);
}
