/* Check the C client on a file of vectors: every case must hold. Prints their number. */
#include "dither.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES DITHER_ANNOUNCEMENT_BYTES

static int is(const dither_node *n, const char *text)
{
    return n && n->type == DITHER_STRING && strcmp(n->text, text) == 0;
}

/* The bytes of a member in base 16, in memory of exactly their size, so that a read beyond it is found. */
static unsigned char *hex(const dither_node *object, const char *key, size_t *length)
{
    const dither_node *n = dither_member(object, key);
    *length = n->length / 2;
    unsigned char *bytes = malloc(*length ? *length : 1);
    for (size_t i = 0; i < *length; i++) {
        char pair[3] = {n->text[2 * i], n->text[2 * i + 1], 0};
        bytes[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    return bytes;
}

static int same(const dither_node *object, const char *key, const unsigned char *bytes, size_t length)
{
    size_t expected_length;
    unsigned char *expected = hex(object, key, &expected_length);
    int equal = expected_length == length && memcmp(bytes, expected, length) == 0;
    free(expected);
    return equal;
}

static double number(const dither_node *object, const char *key) { return dither_member(object, key)->number; }

static int near(double epsilon, double expected, double tolerance)
{
    return epsilon >= expected && epsilon <= expected + tolerance;
}

static int randomise(const dither_node *c)
{
    dither_mechanism m;
    size_t count;
    double epsilon;
    if (!dither_mechanism_read(&m, dither_member(c, "mechanism")) || !dither_epsilon(&m, &epsilon)) return 0;
    unsigned char *random = hex(c, "random", &count), *report = malloc(m.report_bytes);
    int64_t cell = (int64_t)number(c, "value");
    int fine = dither_randomise(&m, cell, random, count, report) && same(c, "report", report, m.report_bytes) &&
               dither_check_report(&m, report, m.report_bytes) &&
               !dither_randomise(&m, cell, random, count - 1, report) &&
               near(epsilon, number(c, "epsilon"), 4e-16 * (1 + number(c, "epsilon")));
    free(random);
    free(report);
    return fine;
}

static int refuse_report(const dither_node *c)
{
    dither_mechanism m;
    size_t length;
    unsigned char *report = hex(c, "report", &length);
    int fine = dither_mechanism_read(&m, dither_member(c, "mechanism")) && !dither_check_report(&m, report, length);
    free(report);
    return fine;
}

static int refuse_value(const dither_node *c)
{
    dither_mechanism m;
    if (!dither_mechanism_read(&m, dither_member(c, "mechanism"))) return 0;
    unsigned char *draws = calloc(m.draw_bytes, 1), *report = malloc(m.report_bytes);
    int fine = !dither_randomise(&m, (int64_t)number(c, "value"), draws, m.draw_bytes, report);
    free(draws);
    free(report);
    return fine;
}

static int envelope(const dither_node *c, int refused)
{
    const dither_node *reports = dither_member(c, "reports"), *r = reports + 1;
    size_t length = 0, campaign_length;
    unsigned char *bytes = malloc(DITHER_BODY_BYTES), *campaign = hex(c, "campaign", &campaign_length);
    int fine = campaign_length == 16 && reports->count > 0;
    for (; fine && r < reports + reports->span; r += r->span) {
        size_t token_length, size;
        unsigned char *token = hex(r, "token", &token_length), *payload = hex(r, "payload", &size);
        fine = token_length == 32 && dither_envelope_add(bytes, &length, campaign, (int64_t)number(c, "round"), token,
                                                         (int64_t)number(r, "question"), payload, size);
        free(token);
        free(payload);
    }
    fine = refused ? !fine : fine && same(c, "bytes", bytes, length);
    free(bytes);
    free(campaign);
    return fine;
}

static int assign(const dither_node *c)
{
    const dither_node *plan = dither_member(c, "plan"), *shares = dither_member(plan, "shares");
    const dither_node *questions = dither_member(plan, "questions");
    size_t length;
    unsigned char *token = hex(c, "token", &length), *campaign = hex(c, "campaign", &length);
    unsigned char id[32], only[32], hash[32];
    double *listed = malloc((shares->count + 1) * sizeof *listed), largest = 0, sum = 0, epsilon = 0;
    uint32_t round = (uint32_t)number(plan, "round");
    int split = dither_member(plan, "split")->type == DITHER_TRUE, fine = 1;
    for (uint32_t i = 0; i < shares->count; i++) listed[i] = shares[1 + i].number;
    for (const dither_node *q = questions + 1; q < questions + questions->span; q += q->span) {
        dither_mechanism m;
        fine = fine && dither_mechanism_read(&m, dither_member(q, "mechanism")) && dither_epsilon(&m, &epsilon);
        largest = fmax(largest, epsilon);
        sum += epsilon;
    }
    int picked = split ? -1 : (int)dither_pick(token, campaign, round, listed, shares->count);
    dither_report_id(token, campaign, round, id);
    dither_report_id(token, campaign, UINT32_MAX, only);
    dither_token_hash(token, hash);
    fine = fine && dither_place(token, campaign) == number(c, "place") && picked == number(c, "question") &&
           dither_is_asked(token, campaign, number(c, "start"), number(plan, "population")) ==
               (dither_member(c, "asked")->type == DITHER_TRUE) &&
           same(c, "report_id", id, 32) && same(c, "only_report_id", only, 32) && same(c, "token_hash", hash, 32) &&
           near(split ? nextafter(sum, INFINITY) : largest, number(c, "epsilon"), 1e-13);
    free(token);
    free(campaign);
    free(listed);
    return fine;
}

static int announcement(const dither_node *c, int refused)
{
    const dither_node *node = dither_member(c, "text");
    char *text = malloc(node->length ? node->length : 1);
    dither_announcement a;
    memcpy(text, node->text, node->length);
    int fine = dither_announcement_read(&a, text, node->length);
    free(text);
    if (refused || !fine) {
        if (fine) dither_announcement_free(&a);
        return refused && !fine;
    }
    fine = is(dither_member(c, "fingerprint"), a.fingerprint) && near(a.plan_epsilon, number(c, "epsilon"), 1e-12);
    dither_announcement_free(&a);
    return fine;
}

typedef struct {
    const unsigned char *bytes;
    size_t length, used;
} stream;

static int next_bytes(void *context, unsigned char *bytes, size_t count)
{
    stream *s = context;
    if (s->length - s->used < count) return 0;
    memcpy(bytes, s->bytes + s->used, count);
    s->used += count;
    return 1;
}

/* A whole report from a stream of random bytes: the envelope, and how many bytes it took. */
static int answer(const dither_node *c)
{
    const dither_node *text = dither_member(c, "text");
    dither_announcement a;
    stream random = {NULL, 0, 0};
    size_t token_length;
    if (!dither_announcement_read(&a, text->text, text->length)) return 0;
    unsigned char *bytes = hex(c, "random", &random.length), *token = hex(c, "token", &token_length);
    unsigned char *out = malloc(DITHER_BODY_BYTES);
    random.bytes = bytes;
    size_t length = dither_answer(&a, token, dither_member(c, "record"), next_bytes, &random, out);
    int fine = same(c, "envelope", out, length) && random.used == number(c, "used");
    dither_announcement_free(&a);
    free(bytes);
    free(token);
    free(out);
    return fine;
}

static int expects(const dither_node *c, const char *key, int64_t found)
{
    const dither_node *n = dither_member(c, key);
    return n->type == DITHER_NULL ? found == -1 : found == (int64_t)n->number;
}

static int code_or_level(const dither_node *c, int level)
{
    dither_attribute a;
    const dither_node *value = dither_member(c, "value");
    int fine = dither_attribute_read(&a, dither_member(c, "attribute"));
    if (fine && !level) fine = expects(c, "code", dither_code(&a, value));
    if (fine && level)
        fine = expects(c, "level", dither_level(&a, value, (uint64_t)number(c, "levels"), (uint32_t)number(c, "draw")));
    dither_attribute_free(&a);
    return fine;
}

static int cell(const dither_node *c)
{
    const dither_node *question = dither_member(c, "question"), *names = dither_member(question, "attributes");
    const dither_node *grouped = dither_member(question, "grouped"), *attributes = dither_member(c, "attributes");
    dither_question q;
    int64_t found = 0;
    memset(&q, 0, sizeof q);
    for (uint32_t i = 0; i < names->count; i++) {
        const dither_node *node = attributes + 1;
        while (!is(dither_member(node, "name"), names[1 + i].text)) node += node->span;
        for (uint32_t g = 0; grouped && g < grouped->count; g++)
            if (is(grouped + 1 + g, names[1 + i].text)) q.grouped |= (uint64_t)1 << i;
        dither_attribute a;
        if (!dither_attribute_read(&a, node)) return 0;
        int64_t code = (int64_t)number(dither_member(c, "codes"), names[1 + i].text);
        found = found * (int64_t)dither_width(&q, i, &a) + dither_group(&q, i, &a, code);
        dither_attribute_free(&a);
    }
    return expects(c, "cell", found);
}

static int verdict(const dither_node *c)
{
    static const char *const NAMES[] = {"waiting", "acknowledged", "answered", "refused"};
    const dither_node *body = dither_member(c, "body");
    const char *type = dither_member(c, "content_type")->text;
    int found = dither_verdict((int)number(c, "status"), type, body->text, body->length);
    return is(dither_member(c, "means"), NAMES[found]);
}

static int holds(const dither_node *c)
{
    const dither_node *kind = dither_member(c, "kind");
    dither_mechanism m;
    if (is(kind, "randomise")) return randomise(c);
    if (is(kind, "refuse-mechanism")) return !dither_mechanism_read(&m, dither_member(c, "mechanism"));
    if (is(kind, "refuse-value")) return refuse_value(c);
    if (is(kind, "refuse-report")) return refuse_report(c);
    if (is(kind, "envelope") || is(kind, "refuse-envelope")) return envelope(c, !is(kind, "envelope"));
    if (is(kind, "assign")) return assign(c);
    if (is(kind, "announcement") || is(kind, "refuse-announcement")) return announcement(c, !is(kind, "announcement"));
    if (is(kind, "answer")) return answer(c);
    if (is(kind, "code") || is(kind, "level")) return code_or_level(c, is(kind, "level"));
    if (is(kind, "cell")) return cell(c);
    return is(kind, "verdict") && verdict(c);
}

int main(int count, char **names)
{
    char *text = malloc(FILE_BYTES);
    FILE *file = count == 2 ? fopen(names[1], "rb") : NULL;
    dither_json json;
    uint32_t held = 0, failed = 0;
    if (!text || !file) return 2;
    size_t length = fread(text, 1, FILE_BYTES, file);
    fclose(file);
    int fine = dither_parse(&json, text, length);
    free(text);
    if (!fine || !is(dither_member(json.nodes, "format"), "dither-vectors-1")) return 2;
    const dither_node *cases = dither_member(json.nodes, "cases"), *c = cases + 1;
    for (; c < cases + cases->span; c += c->span) {
        if (holds(c)) held++;
        else if (failed++ < 20) {
            const dither_node *why = dither_member(c, "why");
            const char *kind = dither_member(c, "kind")->text;
            printf("case %u of kind %s does not hold %s\n", held + failed - 1, kind, why ? why->text : "");
        }
    }
    printf("%u cases hold, %u do not\n", held, failed);
    dither_json_free(&json);
    return failed > 0;
}
