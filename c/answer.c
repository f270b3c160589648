/* Answer one campaign of a collector on this machine, over plain HTTP on loopback:
 *
 *     dither-answer PORT CAMPAIGN STATE [TICKET] < record.json
 *
 * STATE is a file. The envelope is written to it before it is sent, and a later run sends the same bytes. When the
 * collector has decided, the file holds the verdict, and the campaign is not answered again. Without a ticket a token
 * is drawn. Prints one word and exits with 0 if the report is acknowledged, 1 if not, 2 for wrong input.
 *
 * A client for other machines adds TLS, the ledger of epsilons and the memo: "What a client stores" on the page. */
#define _POSIX_C_SOURCE 200809L
#include "dither.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define ATTEMPTS 5
#define VISIT_SECONDS 300.0

typedef struct {
    int status; /* 0: no answer */
    double retry_after;
    char type[128];
    char *body; /* in `bytes` */
    size_t length;
    char *bytes;
} answer;

static int random_bytes(void *context, unsigned char *bytes, size_t count)
{
    FILE *source = fopen("/dev/urandom", "rb");
    (void)context;
    size_t got = source ? fread(bytes, 1, count, source) : 0;
    if (source) fclose(source);
    return got == count;
}

static int send_all(int to, const void *data, size_t length)
{
    const char *p = data;
    while (length) {
        ssize_t sent = send(to, p, length, MSG_NOSIGNAL);
        if (sent <= 0) return 0;
        p += sent;
        length -= (size_t)sent;
    }
    return 1;
}

/* Read the status, the headers that matter and the body of an answer in `a->bytes`, which ends with a 0. */
static int read_answer(answer *a, size_t got)
{
    char *end = strstr(a->bytes, "\r\n\r\n");
    size_t announced = 0;
    int length_known = 0;
    if (!end || sscanf(a->bytes, "HTTP/1.1 %3d", &a->status) != 1) return 0;
    for (char *line = strstr(a->bytes, "\r\n") + 2; line < end + 2; line = strstr(line, "\r\n") + 2) {
        if (strncasecmp(line, "content-length:", 15) == 0) length_known = sscanf(line + 15, "%zu", &announced) == 1;
        if (strncasecmp(line, "content-type:", 13) == 0) sscanf(line + 13, " %127[^\r]", a->type);
        if (strncasecmp(line, "retry-after:", 12) == 0) {
            const char *seconds = line + 12 + strspn(line + 12, " ");
            size_t digits = strspn(seconds, "0123456789");
            if (digits >= 1 && digits <= 5 && seconds[digits] == '\r') a->retry_after = strtod(seconds, NULL);
        }
    }
    a->body = end + 4;
    a->length = got - (size_t)(a->body - a->bytes);
    return length_known && a->length == announced;
}

static void request(answer *a, int port, const char *head, const void *body, size_t length, size_t most)
{
    struct sockaddr_in here;
    struct timeval limit = {30, 0};
    size_t got = 0;
    ssize_t part = -1;
    int to = socket(AF_INET, SOCK_STREAM, 0);
    memset(&here, 0, sizeof here);
    here.sin_family = AF_INET;
    here.sin_port = htons((uint16_t)port);
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    free(a->bytes);
    memset(a, 0, sizeof *a);
    a->bytes = malloc(most + 1);
    if (to >= 0 && a->bytes && setsockopt(to, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
        connect(to, (struct sockaddr *)&here, sizeof here) == 0 && send_all(to, head, strlen(head)) &&
        send_all(to, body, length))
        while (got < most && (part = recv(to, a->bytes + got, most - got, 0)) > 0) got += (size_t)part;
    if (to >= 0) close(to);
    if (a->bytes) a->bytes[got] = 0;
    if (part != 0 || !read_answer(a, got)) a->status = 0;
}

static void pause_for(double seconds)
{
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

/* Send a request until the collector answers, as the page's "Retries" says. */
static void persist(answer *a, int port, const char *head, const void *body, size_t length, size_t most)
{
    static const int LATER[] = {0, 408, 425, 429, 500, 502, 503, 504, 507};
    double slept = 0, backoff = 0.5;
    for (int attempt = 1;; attempt++, backoff *= 2) {
        unsigned char drawn[4];
        int later = 0;
        request(a, port, head, body, length, most);
        for (size_t i = 0; i < sizeof LATER / sizeof *LATER; i++) later = later || a->status == LATER[i];
        if (!later || attempt == ATTEMPTS || !random_bytes(NULL, drawn, 4)) return;
        double part = (drawn[0] + 256.0 * drawn[1] + 65536.0 * drawn[2] + 16777216.0 * drawn[3]) / 4294967296.0;
        double wait = a->retry_after + part * (a->retry_after > backoff ? a->retry_after : backoff);
        if ((slept += wait) > VISIT_SECONDS) return;
        pause_for(wait);
    }
}

static size_t read_file(FILE *file, char *text, size_t room)
{
    size_t length = file ? fread(text, 1, room, file) : 0;
    return length < room ? length : 0;
}

/* Replace the state; it is on disk when this returns 1. */
static int write_state(const char *path, const void *data, size_t length)
{
    char beside[4096];
    if (snprintf(beside, sizeof beside, "%s.new", path) >= (int)sizeof beside) return 0;
    int file = open(beside, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0) return 0;
    int fine = write(file, data, length) == (ssize_t)length && fsync(file) == 0;
    return close(file) == 0 && fine && rename(beside, path) == 0;
}

static int read_hex(const char *text, unsigned char *bytes, size_t count)
{
    if (strlen(text) != 2 * count || strspn(text, "0123456789abcdef") != 2 * count) return 0;
    for (size_t i = 0; i < count; i++) {
        char pair[3] = {text[2 * i], text[2 * i + 1], 0};
        bytes[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
    return 1;
}

/* Fetch and check the announcement, ask about a ticket, and make the envelope; NULL, or the word for why not. */
static const char *make_envelope(answer *a, int port, const char *campaign, const char *ticket, const char *record,
                                 size_t record_length, unsigned char *envelope, size_t *length)
{
    char head[256];
    unsigned char id[32], token[32], asked_for[16];
    dither_announcement announced;
    dither_json values, json;
    const char *why = NULL;
    snprintf(head, sizeof head, "GET /v1/campaigns/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
             campaign);
    persist(a, port, head, "", 0, DITHER_ANNOUNCEMENT_BYTES + 4096);
    if (a->status != 200) return "unreachable";
    if (!dither_announcement_read(&announced, a->body, a->length)) return "refused-announcement";
    if (!read_hex(campaign, asked_for, 16) || memcmp(announced.campaign, asked_for, 16) != 0) why = "other-campaign";
    if (ticket ? !read_hex(ticket, token, 32) : !random_bytes(NULL, token, 32)) why = "bad-token";
    if (!why && !announced.open) why = "not-open";
    if (!why && !announced.arrival && !dither_is_asked(token, asked_for, announced.start, announced.population))
        why = "not-asked";
    if (!why && ticket) {
        dither_report_id(token, asked_for, announced.arrival ? UINT32_MAX : announced.round, id);
        snprintf(head, sizeof head, "POST /v1/campaigns/%s/lookup HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                 "Content-Length: 32\r\n\r\n", campaign);
        persist(a, port, head, id, 32, 65536);
        why = "unreachable";
        if (a->status == 200 && dither_parse(&json, a->body, a->length)) {
            const dither_node *stored = dither_member(json.nodes, "stored");
            if (stored && stored->type == DITHER_TRUE) why = "used-elsewhere";
            if (stored && stored->type == DITHER_FALSE) why = NULL;
            dither_json_free(&json);
        }
    }
    if (!why && !dither_parse(&values, record, record_length)) why = "bad-record";
    if (!why) {
        *length = dither_answer(&announced, token, values.nodes, random_bytes, NULL, envelope);
        if (!*length) why = "bad-record";
        dither_json_free(&values);
    }
    dither_announcement_free(&announced);
    return why;
}

int main(int count, char **arguments)
{
    static const char *const VERDICTS[] = {"waiting", "acknowledged", "answered", "refused"};
    static char record[1 << 20];
    static unsigned char envelope[DITHER_BODY_BYTES];
    unsigned char id[16];
    char head[256];
    answer a = {0};
    int port = count >= 4 ? atoi(arguments[1]) : 0, verdict = DITHER_WAITING;
    if (count > 5 || port < 1 || port > 65535 || !read_hex(arguments[2], id, 16)) {
        fprintf(stderr, "usage: dither-answer PORT CAMPAIGN STATE [TICKET] < record.json\n");
        return 2;
    }
    FILE *state = fopen(arguments[3], "rb");
    size_t length = read_file(state, (char *)envelope, sizeof envelope);
    if (state) fclose(state);
    if (length && memcmp(envelope, "DTR1", 4) != 0) { /* decided in an earlier run */
        printf("%.*s", (int)length, (char *)envelope);
        return strncmp((char *)envelope, VERDICTS[DITHER_ACKNOWLEDGED], length - 1) != 0;
    }
    if (!length) {
        size_t given = read_file(stdin, record, sizeof record);
        const char *ticket = count == 5 ? arguments[4] : NULL;
        const char *why = make_envelope(&a, port, arguments[2], ticket, record, given, envelope, &length);
        if (!why && !write_state(arguments[3], envelope, length)) why = "no-storage";
        if (why) {
            puts(why);
            free(a.bytes);
            return strncmp(why, "bad-", 4) == 0 ? 2 : 1;
        }
    }
    snprintf(head, sizeof head, "POST /v1/campaigns/%s/reports HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
             "Content-Type: application/vnd.dither.reports\r\nContent-Length: %zu\r\n\r\n", arguments[2], length);
    persist(&a, port, head, envelope, length, 65536);
    if (a.status) verdict = dither_verdict(a.status, a.type, a.body, a.length);
    snprintf(head, sizeof head, "%s\n", VERDICTS[verdict]);
    if (verdict != DITHER_WAITING && !write_state(arguments[3], head, strlen(head))) perror(arguments[3]);
    fputs(head, stdout);
    free(a.bytes);
    return verdict != DITHER_ACKNOWLEDGED;
}
