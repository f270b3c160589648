/* The device side of docs/reference/protocol.md, version 1: announcement, plan, answer and verdict. */
#include "internal.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ATTRIBUTES 4096u
#define TWO_53 ((uint64_t)1 << 53)

/* ---- Schema ---- */

typedef struct {
    const dither_node *name;
    uint16_t index;
} named;

static int compare_names(const void *x, const void *y)
{
    return dither_compare(((const named *)x)->name, ((const named *)y)->name);
}

static int find(const dither_announcement *a, const named *names, const dither_node *name) /* -1 if there is none */
{
    named key = {name, 0}, *at = NULL;
    if (dither_is(name, DITHER_STRING)) at = bsearch(&key, names, a->attribute_count, sizeof key, compare_names);
    return at ? at->index : -1;
}

static int read_schema(dither_announcement *a, const dither_node *schema, named *names)
{
    const dither_node *list = dither_member(schema, "attributes"), *rules = dither_member(schema, "rules");
    uint64_t codes = 0;
    if (!dither_has_only(schema, "format attributes", "rules")) return 0;
    if (!dither_is_word(dither_member(schema, "format"), "dither-schema-1") || !dither_is(list, DITHER_LIST)) return 0;
    if (list->count < 1 || list->count > MAX_ATTRIBUTES) return 0;
    if (rules && (rules->type != DITHER_LIST || rules->count == 0)) return 0;
    if (rules)
        for each(rule, rules) if (rule->type != DITHER_OBJECT) return 0;
    if (!(a->attributes = calloc(list->count, sizeof *a->attributes))) return 0;
    for each(entry, list) {
        uint32_t i = a->attribute_count++;
        if (!dither_attribute_read(&a->attributes[i], entry)) return 0;
        codes += a->attributes[i].answers + (uint32_t)a->attributes[i].missing;
        if (codes > 1u << 20) return 0;
        names[i] = (named){dither_member(entry, "name"), (uint16_t)i};
    }
    qsort(names, list->count, sizeof *names, compare_names);
    for (uint32_t i = 1; i < list->count; i++)
        if (compare_names(names + i - 1, names + i) == 0) return 0;
    return dither_fingerprint(schema, a->fingerprint);
}

/* ---- Plan ---- */

uint64_t dither_width(const dither_question *q, uint32_t place, const dither_attribute *a)
{
    if (q->rounded) return q->mechanism.cells;
    return (q->grouped >> place & 1 ? a->group_count : a->answers) + (uint64_t)a->missing;
}

int64_t dither_group(const dither_question *q, uint32_t place, const dither_attribute *a, int64_t code)
{
    if (code < 0 || q->rounded || !(q->grouped >> place & 1)) return code;
    return code < a->answers ? a->groups[code] : a->group_count;
}

static int read_question(const dither_announcement *a, const named *names, const dither_node *node, dither_question *q)
{
    const dither_node *asked = dither_member(node, "attributes"), *grouped = dither_member(node, "grouped");
    const dither_node *rounded = dither_member(node, "rounded");
    uint64_t cells = 1;
    if (!dither_has_only(node, "attributes mechanism", rounded ? "rounded" : "grouped")) return 0;
    if (!dither_is(asked, DITHER_LIST) || asked->count < 1 || asked->count > DITHER_QUESTION_ATTRIBUTES) return 0;
    if (!dither_mechanism_read(&q->mechanism, dither_member(node, "mechanism"))) return 0;
    if (rounded && rounded->type != DITHER_TRUE) return 0;
    q->rounded = rounded != NULL;
    for each(name, asked) {
        int index = find(a, names, name);
        uint32_t i = q->count++;
        if (index < 0) return 0;
        q->attributes[i] = (uint16_t)index;
        for (; i && q->sorted[i - 1] > index; i--) q->sorted[i] = q->sorted[i - 1];
        if (i && q->sorted[i - 1] == index) return 0;
        q->sorted[i] = (uint16_t)index;
    }
    const dither_attribute *first = &a->attributes[q->attributes[0]];
    if (rounded && (q->count > 1 || (first->kind != NUMERIC && first->kind != DURATION) || first->missing)) return 0;
    if (grouped && (!dither_is(grouped, DITHER_LIST) || grouped->count < 1)) return 0;
    for (uint32_t g = 0; grouped && g < grouped->count; g++) {
        uint32_t i = 0;
        int index = find(a, names, grouped + 1 + g); /* texts, or refused: so one node each */
        while (i < q->count && q->attributes[i] != index) i++;
        if (i == q->count || !a->attributes[index].group_count || q->grouped >> i & 1) return 0;
        q->grouped |= (uint64_t)1 << i;
    }
    for (uint32_t i = 0; i < q->count; i++) {
        uint64_t width = dither_width(q, i, &a->attributes[q->attributes[i]]);
        if (cells > (TWO_53 - 1) / width) return 0;
        cells *= width;
    }
    return cells == q->mechanism.cells && q->mechanism.report_bytes <= DITHER_REPORT_BYTES &&
           q->mechanism.draw_bytes <= DITHER_DRAW_BYTES;
}

static int check_split(const dither_announcement *a)
{
    uint64_t length = 0, draws = 0;
    uint16_t uses[MAX_ATTRIBUTES] = {0}; /* up to 16,384 questions, because each takes a byte of the report */
    for (uint32_t i = 0; i < a->question_count; i++) {
        length += a->questions[i].mechanism.report_bytes;
        draws += a->questions[i].mechanism.draw_bytes;
    }
    if (length > DITHER_REPORT_BYTES || draws > DITHER_DRAW_BYTES) return 0;
    for (uint32_t i = 0; i < a->question_count; i++) {
        const dither_question *q = &a->questions[i];
        for (uint32_t j = 0; j < q->count; j++) uses[q->attributes[j]]++;
        for (const dither_question *p = a->questions; p < q; p++)
            if (p->count == q->count && memcmp(p->sorted, q->sorted, q->count * sizeof q->sorted[0]) == 0) return 0;
    }
    for (const dither_question *q = a->questions; q < a->questions + a->question_count; q++)
        for (uint32_t j = 0; j < q->count; j++)
            if ((q->rounded || q->grouped >> j & 1) && uses[q->attributes[j]] > 1) return 0;
    return 1;
}

/* The limits of a device's work and then the plan's epsilon, over the different mechanisms. */
static int check_mechanisms(dither_announcement *a, dither_mechanism *sorted)
{
    uint32_t n = a->question_count, different = 0;
    double digests = 0, pairs = 0, bytes = 0, epsilon, largest = 0; /* whole numbers far below 2^53 */
    long double sum = 0;
    for (uint32_t i = 0; i < n; i++) sorted[i] = a->questions[i].mechanism;
    qsort(sorted, n, sizeof *sorted, dither_compare_mechanisms);
    for (int spend = 0; spend < 2; spend++) {
        for (uint32_t i = 0, next; i < n; i = next) {
            const dither_mechanism *m = sorted + i;
            for (next = i + 1; next < n && dither_compare_mechanisms(m, sorted + next) == 0;) next++;
            if (spend) {
                if (!dither_epsilon(m, &epsilon)) return 0;
                largest = fmax(largest, epsilon);
                sum += (long double)epsilon * (next - i);
                continue;
            }
            if (++different > 1u << 14) return 0;
            if (m->kind == STRATEGY) pairs += (double)m->cells * (double)m->first;
            if (pairs > 1 << 21) return 0;
            if (m->kind != BLOOM) continue;
            double expected = 0, cells = (double)m->cells, compared = fmin(cells, 1024);
            for (uint64_t h = 0; h < m->second; h++) expected += (double)m->first / (double)(m->first - h);
            digests += cells * ceil(expected / 8);
            pairs += floor(compared * compared / 2);
            bytes += cells * (double)(m->first / 8 + 1);
            if (digests > 1 << 18 || pairs > 1 << 21 || bytes > 1 << 25) return 0;
        }
    }
    a->plan_epsilon = largest;
    if (a->split && n > 1) a->plan_epsilon = nextafter(dither_round_up(sum * (1 + 4 * n * LDBL_EPSILON)), INFINITY);
    return a->plan_epsilon <= a->epsilon;
}

static int read_plan(dither_announcement *a, const dither_node *plan, const named *names)
{
    const dither_node *round = dither_member(plan, "round"), *questions = dither_member(plan, "questions");
    const dither_node *shares = dither_member(plan, "shares"), *split = dither_member(plan, "split");
    const dither_node *population = dither_member(plan, "population");
    double sum = 0;
    if (!dither_has_only(plan, "round questions shares split population tally", "")) return 0;
    if (!dither_is_whole(round) || round->number > 65535 || !dither_is_number(population)) return 0;
    if (!dither_is(questions, DITHER_LIST) || questions->count < 1 || questions->count > 65535) return 0;
    if (!dither_is(shares, DITHER_LIST) || (split->type != DITHER_TRUE && split->type != DITHER_FALSE)) return 0;
    a->open = 1;
    a->split = split->type == DITHER_TRUE;
    a->round = (uint32_t)round->number;
    a->population = population->number;
    if (!(a->population > 0 && a->population <= 1 && a->start < 1)) return 0;
    if (!dither_is_word(dither_member(plan, "tally"), a->split ? "counts patterns" : "counts")) return 0;
    if (shares->count != (a->split ? 0 : questions->count)) return 0;
    a->shares = calloc(questions->count, sizeof *a->shares);
    a->questions = calloc(questions->count, sizeof *a->questions);
    if (!a->shares || !a->questions) return 0;
    for (uint32_t i = 0; i < shares->count; i++) { /* numbers, or refused: so one node each */
        if (!dither_is_number(shares + 1 + i) || shares[1 + i].number < 0) return 0;
        sum += a->shares[i] = shares[1 + i].number;
    }
    if (!a->split && fabs(sum - 1) > 1e-9) return 0;
    for each(question, questions)
        if (!read_question(a, names, question, &a->questions[a->question_count++])) return 0;
    if (a->split && !check_split(a)) return 0;
    dither_mechanism *sorted = malloc(a->question_count * sizeof *sorted);
    int fine = sorted && check_mechanisms(a, sorted);
    free(sorted);
    return fine;
}

/* ---- Announcement ---- */

static int is_count(const dither_node *n) { return dither_is_absent(n) || (dither_is_whole(n) && n->number >= 1); }

static int check_texts(const dither_node *body)
{
    static const struct { const char *key; size_t most; int lines; } TEXTS[] = {
        {"title", 200, 0}, {"purpose", 4000, 1}, {"epsilon_reason", 4000, 1}, {"contact", 500, 0}};
    const dither_node *closes = dither_member(body, "closes"), *consumers = dither_member(body, "consumers");
    uint64_t edges = 0;
    double seconds;
    for (int i = 0; i < 4; i++) {
        const dither_node *text = dither_member(body, TEXTS[i].key);
        if (text && !dither_is_text(text, TEXTS[i].most, TEXTS[i].lines)) return 0;
    }
    if (!dither_is_absent(closes)) {
        if (!dither_instant(closes, &seconds) || seconds < 0 || seconds >= LAST_SECOND) return 0;
        int day = closes->length == 10, second = closes->length == 20;
        if (!day && !(second && closes->text[10] == 'T' && closes->text[19] == 'Z')) return 0;
    }
    if (dither_is_absent(consumers)) return 1;
    if (consumers->type != DITHER_LIST) return 0;
    for each(c, consumers) {
        const dither_node *listed = dither_member(c, "edges"), *epsilon = dither_member(c, "epsilon");
        if (!dither_has_only(c, "name edges", "epsilon")) return 0;
        if (!dither_is(dither_member(c, "name"), DITHER_STRING)) return 0;
        if (!dither_rises(listed, 2) || (edges += listed->count) > 1u << 18) return 0;
        if (epsilon && !(dither_is_number(epsilon) && epsilon->number > 0)) return 0;
    }
    return 1;
}

static int read_body(dither_announcement *a, const dither_node *body, named *names)
{
    const dither_node *campaign = dither_member(body, "campaign"), *plan = dither_member(body, "plan");
    const dither_node *epsilon = dither_member(body, "epsilon"), *start = dither_member(body, "start");
    const dither_node *assignment = dither_member(body, "assignment"), *closes = dither_member(body, "round_closes");
    if (!dither_is_word(dither_member(body, "format"), "dither-campaign-1")) return 0;
    if (!dither_is(campaign, DITHER_STRING) || campaign->length != 32) return 0;
    if (strspn(campaign->text, "0123456789abcdef") != 32) return 0;
    for (int i = 0; i < 16; i++) {
        char pair[3] = {campaign->text[2 * i], campaign->text[2 * i + 1], 0};
        a->campaign[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    if (!dither_is(dither_member(body, "name"), DITHER_STRING)) return 0;
    if (!dither_is_word(dither_member(body, "state"), "draft open closing collected finalised")) return 0;
    if (!dither_is_word(dither_member(body, "participation"), "open tokens")) return 0;
    if (!dither_is_number(epsilon) || epsilon->number < 0 || !dither_is_number(start) || start->number < 0) return 0;
    if (assignment && !dither_is_word(assignment, "arrival token")) return 0;
    if (!is_count(dither_member(body, "closes_at_reports")) || !is_count(dither_member(body, "wanted"))) return 0;
    if (!dither_is_absent(closes) && !(dither_is_number(closes) && closes->number >= 0)) return 0;
    a->epsilon = epsilon->number;
    a->start = start->number;
    a->arrival = assignment && dither_is_word(assignment, "arrival");
    if (!check_texts(body) || !read_schema(a, dither_member(body, "schema"), names)) return 0;
    if (!dither_is_word(dither_member(body, "schema_fingerprint"), a->fingerprint) || !plan) return 0;
    return plan->type == DITHER_NULL || read_plan(a, plan, names);
}

int dither_announcement_read(dither_announcement *a, const char *text, size_t length)
{
    named *names = malloc(MAX_ATTRIBUTES * sizeof *names);
    memset(a, 0, sizeof *a);
    int fine = names && dither_parse(&a->json, text, length) && read_body(a, a->json.nodes, names);
    free(names);
    if (!fine) dither_announcement_free(a);
    return fine;
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

/* ---- Token, place, question, id ---- */

static void digest(const char *purpose, const unsigned char *token, const unsigned char *campaign, uint32_t number,
                   unsigned char out[32])
{
    unsigned char data[128];
    size_t length = (size_t)sprintf((char *)data, "dither-1:%s", purpose) + 1;
    memcpy(data + length, token, 32);
    memcpy(data + length + 32, campaign, 16);
    dither_put(data + length + 48, number, 4);
    dither_sha256(data, length + 52, out);
}

static double fraction(const unsigned char *d)
{
    uint64_t n = 0;
    for (int i = 0; i < 8; i++) n = n << 8 | d[i];
    return (double)(n >> 11) / (double)TWO_53;
}

double dither_place(const unsigned char token[32], const unsigned char campaign[16])
{
    unsigned char d[32];
    digest("place", token, campaign, 0, d);
    return fraction(d);
}

int dither_is_asked(const unsigned char token[32], const unsigned char campaign[16], double start, double population)
{
    double place = dither_place(token, campaign), end = start + population;
    return start <= place && place < (end >= 1 - 1e-9 ? 1 : end);
}

uint32_t dither_pick(const unsigned char token[32], const unsigned char campaign[16], uint32_t round,
                     const double *shares, uint32_t count)
{
    unsigned char d[32];
    uint32_t last = 0;
    double sum = 0;
    digest("question", token, campaign, round, d);
    for (uint32_t i = 0; i < count; i++) {
        sum += shares[i];
        if (shares[i] <= 0) continue;
        last = i;
        if (sum > fraction(d)) break;
    }
    return last;
}

void dither_report_id(const unsigned char token[32], const unsigned char campaign[16], uint32_t round,
                      unsigned char id[32])
{
    digest("report", token, campaign, round, id);
}

void dither_token_hash(const unsigned char token[32], unsigned char hash[32])
{
    unsigned char data[47] = "dither-1:token";
    memcpy(data + 15, token, 32);
    dither_sha256(data, 47, hash);
}

/* ---- From the record to a cell ---- */

static int draw_below(uint64_t count, dither_random random, void *context, uint64_t *drawn)
{
    unsigned char bytes[8];
    uint64_t bits = dither_bits(count - 1);
    do {
        if (!random(context, bytes, (bits + 7) / 8)) return 0;
        *drawn = dither_get(bytes, (bits + 7) / 8) & (((uint64_t)1 << bits) - 1);
    } while (*drawn >= count);
    return 1;
}

static int encode(const dither_announcement *a, const dither_question *q, const dither_node *record,
                  dither_random random, void *context, uint64_t *cell)
{
    *cell = 0;
    for (uint32_t i = 0; i < q->count; i++) {
        const dither_attribute *asked = &a->attributes[q->attributes[i]];
        const dither_node *name = dither_member(asked->node, "name"), *value = NULL;
        uint64_t width = dither_width(q, i, asked), instead = width - 1;
        unsigned char draw[4] = {0};
        if (!asked->missing && !draw_below(width, random, context, &instead)) return 0;
        if (q->rounded && !random(context, draw, 4)) return 0;
        for (const dither_node *k = record + 1; k < record + record->span; k += 1 + k[1].span)
            if (dither_compare(k, name) == 0) value = k + 1;
        int64_t answer = q->rounded ? dither_level(asked, value, width, (uint32_t)dither_get(draw, 4))
                                    : dither_group(q, i, asked, dither_code(asked, value));
        *cell = *cell * width + (answer < 0 ? instead : (uint64_t)answer);
    }
    return 1;
}

/* ---- Report and envelope ---- */

int dither_envelope_add(unsigned char *envelope, size_t *length, const unsigned char campaign[16], int64_t round,
                        const unsigned char token[32], int64_t question, const unsigned char *payload, size_t size)
{
    if (round < 0 || round > 65535 || question < -1 || question > 65534) return 0;
    if (size < 1 || size > DITHER_REPORT_BYTES) return 0;
    if (*length == 0) {
        memcpy(envelope, "DTR1", 4);
        memcpy(envelope + 4, campaign, 16);
        dither_put(envelope + 20, (uint64_t)round, 4);
        dither_put(envelope + 24, 0, 4);
        *length = 28;
    }
    uint64_t count = dither_get(envelope + 24, 4);
    if (count == 1000 || *length + 36 + size > DITHER_BODY_BYTES) return 0;
    dither_put(envelope + 24, count + 1, 4);
    memcpy(envelope + *length, token, 32);
    dither_put(envelope + *length + 32, question == -1 ? DITHER_ALL_QUESTIONS : (uint64_t)question, 2);
    dither_put(envelope + *length + 34, size, 2);
    memcpy(envelope + *length + 36, payload, size);
    *length += 36 + size;
    return 1;
}

size_t dither_answer(const dither_announcement *a, const unsigned char token[32], const dither_node *record,
                     dither_random random, void *context, unsigned char *envelope)
{
    unsigned char *payload = malloc(DITHER_REPORT_BYTES), *draws = malloc(DITHER_DRAW_BYTES);
    int fine = payload && draws && a->open && dither_is(record, DITHER_OBJECT) &&
               (a->arrival || dither_is_asked(token, a->campaign, a->start, a->population));
    size_t size = 0, length = 0;
    int64_t number = -1;
    if (fine && !a->split) number = dither_pick(token, a->campaign, a->round, a->shares, a->question_count);
    const dither_question *q = a->questions + (number < 0 ? 0 : number);
    const dither_question *end = q + (number < 0 ? a->question_count : 1);
    for (; fine && q < end; q++) {
        const dither_mechanism *m = &q->mechanism;
        uint64_t cell;
        fine = encode(a, q, record, random, context, &cell) && random(context, draws, m->draw_bytes) &&
               dither_randomise(m, (int64_t)cell, draws, m->draw_bytes, payload + size);
        size += m->report_bytes;
    }
    fine = fine && dither_envelope_add(envelope, &length, a->campaign, a->round, token, number, payload, size);
    free(payload);
    free(draws);
    return fine ? length : 0;
}

/* ---- Upload ---- */

static int is_problem(const char *type)
{
    static const char PROBLEM[] = "application/problem+json";
    size_t i = 0;
    type += strspn(type, " \t");
    for (; PROBLEM[i]; i++)
        if (type[i] != PROBLEM[i] && !(type[i] >= 'A' && type[i] <= 'Z' && type[i] + 32 == PROBLEM[i])) return 0;
    type += i + strspn(type + i, " \t");
    return *type == 0 || *type == ';';
}

static const char FINAL[] = "bad-envelope conflict malformed not-this-round round-closed too-large unknown-token "
                            "wrong-campaign wrong-question";

int dither_verdict(int status, const char *content_type, const char *body, size_t length)
{
    dither_json json;
    int verdict = DITHER_WAITING;
    if (!dither_parse(&json, body, length)) return verdict;
    const dither_node *results = dither_member(json.nodes, "results"), *type = dither_member(json.nodes, "type");
    int problem = status >= 400 && status < 500 && is_problem(content_type) && dither_is(type, DITHER_STRING);
    if (status == 200 || status == 201) {
        int one = dither_is(results, DITHER_LIST) && results->count == 1;
        if (one && dither_is_word(results + 1, "stored duplicate")) verdict = DITHER_ACKNOWLEDGED;
    } else if (problem && strncmp(type->text, "urn:dither:problem:", 19) == 0) {
        dither_node cause = *type;
        cause.text += 19;
        cause.length -= 19;
        if (dither_is_word(&cause, "answered")) verdict = DITHER_ANSWERED;
        if (dither_is_word(&cause, FINAL)) verdict = DITHER_REFUSED;
    }
    dither_json_free(&json);
    return verdict;
}
