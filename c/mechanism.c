/* The mechanisms: their parameters, law, epsilon and reports. */
#include "internal.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *members[5];
    uint64_t max_cells;
} KINDS[] = {{"grr", {"other"}, (uint64_t)1 << 31},
             {"sue", {"true_set", "other_set"}, (uint64_t)1 << 31},
             {"oue", {"true_set", "other_set"}, (uint64_t)1 << 31},
             {"olh", {"buckets", "other"}, 1 << 17},
             {"bloom", {"bits", "hashes", "flipped", "seed"}, 1 << 16}};

uint64_t dither_get(const unsigned char *p, uint64_t count)
{
    uint64_t n = 0;
    while (count--) n = n << 8 | p[count];
    return n;
}

uint64_t dither_bits(uint64_t n)
{
    uint64_t bits = 0;
    for (; n; n >>= 1) bits++;
    return bits;
}

static uint64_t total(const dither_mechanism *m) { return (uint64_t)1 << m->threshold_bits; }

static uint64_t keep(const dither_mechanism *m) /* of randomised response; 0 if the numbers give no guarantee */
{
    uint64_t answers = m->kind == GRR ? m->cells : m->first, other = m->kind == GRR ? m->first : m->second;
    if (other < 1 || other >= total(m) || answers - 1 > (total(m) - 1) / other) return 0;
    uint64_t kept = total(m) - (answers - 1) * other;
    return other < kept ? kept : 0;
}

int dither_mechanism_read(dither_mechanism *m, const dither_node *node)
{
    const dither_node *name = dither_member(node, "name"), *part;
    uint64_t kind = 0, count = 0;
    while (kind <= BLOOM && !dither_is_word(name, KINDS[kind].name)) kind++;
    memset(m, 0, sizeof *m);
    if (kind > BLOOM) return 0;
    uint64_t *numbers[] = {&m->first, &m->second, &m->third, &m->fourth};
    for (; KINDS[kind].members[count]; count++) {
        if (!dither_is_whole(part = dither_member(node, KINDS[kind].members[count]))) return 0;
        *numbers[count] = (uint64_t)part->number;
    }
    const dither_node *cells = dither_member(node, "cells"), *bits = dither_member(node, "threshold_bits");
    if (node->count != count + 3 || !dither_is_whole(cells) || !dither_is_whole(bits)) return 0;
    m->kind = kind;
    m->cells = (uint64_t)cells->number;
    m->threshold_bits = (uint64_t)bits->number;
    if (m->threshold_bits % 8 || m->threshold_bits < 8 || m->threshold_bits > 48) return 0;
    if (m->cells < 2 || m->cells > KINDS[kind].max_cells) return 0;
    uint64_t step = m->threshold_bits / 8;
    m->draw_bytes = kind == GRR ? step : kind == OLH ? 8 + step : (kind == BLOOM ? m->first : m->cells) * step;
    m->report_bytes = kind == GRR ? (dither_bits(m->cells - 1) + 7) / 8 : kind == OLH ? 9 + (m->first > 256)
                    : ((kind == BLOOM ? m->first : m->cells) + 7) / 8;
    if (kind == SUE || kind == OUE) return m->second >= 1 && m->second < m->first && m->first < total(m);
    if (kind == BLOOM)
        return m->second >= 1 && m->second <= 64 && m->second < m->first && m->first < 1u << 30 &&
               m->cells * m->report_bytes <= 1u << 26 && m->third >= 1 && m->third < total(m) / 2;
    return (kind == GRR || (m->first >= 2 && m->first <= 4096)) && keep(m);
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

int dither_epsilon(const dither_mechanism *m, double *epsilon)
{
    long double all = total(m), ratio;
    uint64_t times = 1;
    if (m->kind == SUE || m->kind == OUE)
        ratio = (long double)m->first / m->second * ((all - m->second) / (all - m->first));
    else if (m->kind == BLOOM) {
        ratio = (all - m->third) / m->third;
        if ((times = filter_distance(m)) == 0) return 0;
    } else ratio = (long double)keep(m) / (m->kind == GRR ? m->first : m->second);
    long double exact = times * logl(ratio); /* with more than the rounding of three operations and a logarithm */
    *epsilon = dither_round_up(exact + 8 * LDBL_EPSILON * (times + exact));
    return 1;
}

static uint64_t respond(uint64_t draw, uint64_t truth, uint64_t kept, uint64_t other)
{
    uint64_t answer = draw < kept ? truth : (draw - kept) / other;
    return draw >= kept && answer >= truth ? answer + 1 : answer;
}

void dither_put(unsigned char *p, uint64_t n, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) p[i] = (unsigned char)(n >> (8 * i));
}

int dither_randomise(const dither_mechanism *m, int64_t cell, const unsigned char *draws, size_t count,
                     unsigned char *report)
{
    if (cell < 0 || (uint64_t)cell >= m->cells || count != m->draw_bytes) return 0;
    uint64_t step = m->threshold_bits / 8;
    if (m->kind == GRR)
        dither_put(report, respond(dither_get(draws, step), (uint64_t)cell, keep(m), m->first), m->report_bytes);
    else if (m->kind == OLH) {
        uint64_t hash = (dither_get(draws, 4) * (uint64_t)cell + dither_get(draws + 4, 4)) % ((uint64_t)1 << 32) >> 16;
        memcpy(report, draws, 8);
        uint64_t answer = respond(dither_get(draws + 8, step), hash * m->first >> 16, keep(m), m->second);
        dither_put(report + 8, answer, m->report_bytes - 8);
    } else {
        if (m->kind == BLOOM) fill_filter(m, (uint64_t)cell, report);
        else memset(report, 0, m->report_bytes);
        for (uint64_t i = 0; i < (m->kind == BLOOM ? m->first : m->cells); i++) {
            uint64_t below = m->kind == BLOOM ? m->third : i == (uint64_t)cell ? m->first : m->second;
            report[i / 8] ^= (unsigned char)((dither_get(draws + i * step, step) < below) << i % 8);
        }
    }
    return 1;
}

int dither_check_report(const dither_mechanism *m, const unsigned char *report, size_t length)
{
    if (length != m->report_bytes) return 0;
    if (m->kind == GRR) return dither_get(report, length) < m->cells;
    if (m->kind == OLH) return dither_get(report + 8, length - 8) < m->first;
    uint64_t spare = (m->kind == BLOOM ? m->first : m->cells) % 8;
    return !spare || report[length - 1] >> spare == 0;
}
