/* Designs control filters through the PRIME-ANC service, as an embedded host would: sockets, no library, no heap.

     cc -std=c99 -O2 -o refine refine.c
     ./refine localhost 8000 [-c COHERENCE] PRIMARY SECONDARY FIR [[-c COHERENCE] PRIMARY SECONDARY FIR]...

   The service is named by its host name or address, of IPv4 or IPv6. All files are raw little-endian float32:
   PRIMARY and SECONDARY impulse responses at 48 kHz, COHERENCE the 16385 values of a calibration, FIR the filter
   that is written, 2048 taps. All designs (both ears, say) go over one connection, which is kept. A 503 is sent
   again after its Retry-After, within MAX_RETRIES and MAX_WAIT_S. The exit status is 0 when every filter was
   written, 1 when one was not (standard error says why), 2 for a command line that cannot be read. The service's
   warnings go to standard error. docs/http-api.md describes the format, safetensors. A service with keys needs one more
   line in HEAD: "Authorization: Bearer KEY\r\n". */

#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#ifndef MAX_SAMPLES
#define MAX_SAMPLES 8192 /* of a path: as many as /calibrate answers with; the service takes up to 32768 */
#endif

enum {
    N_TAPS = 2048,
    HEADER_BYTES = 512, /* of safetensors: 8 of length, then JSON with blanks at its end */
    N_COHERENCE = 16385, /* bins of the design grid */
    MAX_BODY_BYTES = HEADER_BYTES + 4 * (2 * MAX_SAMPLES + N_COHERENCE),
    MAX_ANSWER_BYTES = 16384, /* head and body: a filter takes 8192 bytes, its head about 600 */
    TIMEOUT_S = 10,           /* to connect, to send, and for an answer, which may take up to twice that */
    MAX_RETRIES = 15,
    MAX_WAIT_S = 30 /* of all waits for one filter together */
};

static const char HEAD[] = "POST /v1/refine HTTP/1.1\r\n"
                           "Host: %s%s%s:%s\r\n"
                           "Connection: keep-alive\r\n"
                           "Content-Type: application/x-safetensors\r\n"
                           "Accept: application/octet-stream\r\n"
                           "Content-Length: %lu\r\n\r\n";

typedef char float_has_32_bits[sizeof(float) == 4 ? 1 : -1];

/* The service, and the connection to it: -1 while there is none. */
struct service {
    const char *host, *port;
    int connection;
};

struct answer {
    unsigned char bytes[MAX_ANSWER_BYTES]; /* head, then body */
    size_t n_received, n_head, n_body;
    int status;
};

/* --- Little-endian numbers on any machine. --- */

static float get_f32(const unsigned char *from)
{
    const uint32_t bits =
        (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* --- Files, whose numbers are those of request and answer byte by byte. --- */

/* Reads a file of up to n_max float32 (there is room for a byte more); returns their bytes, 0 after saying why. */
static size_t read_file(const char *name, unsigned char *to, size_t n_max)
{
    FILE *file = fopen(name, "rb");
    size_t n_bytes;
    int is_broken;

    if (!file) {
        fprintf(stderr, "%s: %s\n", name, strerror(errno));
        return 0;
    }
    n_bytes = fread(to, 1, 4 * n_max + 1, file); /* one more than may be, so that more is noticed */
    is_broken = ferror(file);
    fclose(file);
    if (is_broken) {
        fprintf(stderr, "%s: could not be read\n", name);
        return 0;
    }
    if (n_bytes == 0 || n_bytes % 4 || n_bytes > 4 * n_max) {
        fprintf(stderr, "%s: found %lu bytes%s, expected 1 to %lu float32\n", name, (unsigned long)n_bytes,
                n_bytes > 4 * n_max ? " or more" : "", (unsigned long)n_max);
        return 0;
    }
    return n_bytes;
}

/* Whether the whole filter stands in the file; no half one is left. */
static int write_taps(const char *name, const unsigned char *taps)
{
    FILE *file = fopen(name, "wb");
    int is_whole;

    if (!file) {
        fprintf(stderr, "%s: %s\n", name, strerror(errno));
        return 0;
    }
    is_whole = fwrite(taps, 4, N_TAPS, file) == N_TAPS;
    if (fclose(file) != 0 || !is_whole) {
        fprintf(stderr, "%s: could not be written\n", name);
        remove(name);
        return 0;
    }
    return 1;
}

/* --- The body of a request. --- */

static const char REQUEST[] = "{\\\"sample_rate\\\":48000,\\\"k\\\":1}"; /* JSON as text within JSON */

/* Appends the description of a tensor of float32 to the JSON; returns its new length. */
static size_t describe(char *json, size_t n, const char *name, size_t begin, size_t n_bytes)
{
    return n + (size_t)snprintf(json + n, HEADER_BYTES - n, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%lu],"
                                "\"data_offsets\":[%lu,%lu]}", name, (unsigned long)n_bytes / 4,
                                (unsigned long)begin, (unsigned long)(begin + n_bytes));
}

/* Reads the files behind a header; returns the bytes of the body, 0 after saying why there is none. coherence: NULL
   where there is none. */
static size_t encode(unsigned char body[MAX_BODY_BYTES + 1], const char *primary, const char *secondary,
                     const char *coherence)
{
    unsigned char *const payload = body + HEADER_BYTES;
    const size_t n_primary = read_file(primary, payload, MAX_SAMPLES);
    const size_t n_secondary = n_primary ? read_file(secondary, payload + n_primary, MAX_SAMPLES) : 0;
    size_t n_coherence = 0, n;
    char json[HEADER_BYTES];

    if (!n_secondary)
        return 0;
    if (coherence) {
        n_coherence = read_file(coherence, payload + n_primary + n_secondary, N_COHERENCE);
        if (n_coherence != 4 * N_COHERENCE) {
            if (n_coherence)
                fprintf(stderr, "%s: found %lu values, expected %d\n", coherence, (unsigned long)n_coherence / 4,
                        N_COHERENCE);
            return 0;
        }
    }
    n = (size_t)snprintf(json, sizeof json, "{\"__metadata__\":{\"request\":\"%s\"}", REQUEST);
    n = describe(json, n, "primary", 0, n_primary);
    n = describe(json, n, "secondary", n_primary, n_secondary);
    if (coherence)
        n = describe(json, n, "coherence", n_primary + n_secondary, n_coherence);
    memset(body, 0, 8);
    body[0] = (HEADER_BYTES - 8) & 0xff; /* little-endian */
    body[1] = (HEADER_BYTES - 8) >> 8;
    memset(body + 8, ' ', HEADER_BYTES - 8);
    memcpy(body + 8, json, n);
    body[8 + n] = '}';
    return HEADER_BYTES + n_primary + n_secondary + n_coherence;
}

/* --- The connection. --- */

static void leave(struct service *service)
{
    if (service->connection >= 0)
        close(service->connection);
    service->connection = -1;
}

/* NULL once connected to one of the host's addresses, else what went wrong with the last. */
static const char *reach(struct service *service)
{
    const struct timeval timeout = {TIMEOUT_S, 0};
    const int now = 1; /* the body does not wait for the head to be acknowledged */
    const char *fault = "found no address of this name";
    struct addrinfo hints, *places, *place;
    int failed;

    memset(&hints, 0, sizeof hints);
    hints.ai_family = AF_UNSPEC; /* IPv4 and IPv6 */
    hints.ai_socktype = SOCK_STREAM;
    failed = getaddrinfo(service->host, service->port, &hints, &places);
    if (failed)
        return gai_strerror(failed);
    for (place = places; place; place = place->ai_next) {
        service->connection = socket(place->ai_family, place->ai_socktype, place->ai_protocol);
        if (service->connection >= 0 &&
            setsockopt(service->connection, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0 &&
            setsockopt(service->connection, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) == 0 &&
            setsockopt(service->connection, IPPROTO_TCP, TCP_NODELAY, &now, sizeof now) == 0 &&
            connect(service->connection, place->ai_addr, place->ai_addrlen) == 0) {
            fault = NULL;
            break;
        }
        fault = strerror(errno);
        leave(service);
    }
    freeaddrinfo(places);
    return fault;
}

static int send_all(int connection, const void *data, size_t n)
{
    const unsigned char *bytes = data;

    while (n > 0) {
        const ssize_t sent = send(connection, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return 0;
        bytes += sent;
        n -= (size_t)sent;
    }
    return 1;
}

/* --- Answers. --- */

/* Copies the value of a header and returns 1; 0 where it is missing or too long. */
static int header(const struct answer *answer, const char *name, char *value, size_t size)
{
    const char *line = (const char *)answer->bytes;
    const char *const end = line + answer->n_head;
    const size_t n_name = strlen(name);

    while (line < end) {
        const char *const stop = memchr(line, '\r', (size_t)(end - line));
        if (!stop)
            return 0;
        if ((size_t)(stop - line) > n_name && line[n_name] == ':' && strncasecmp(line, name, n_name) == 0) {
            const char *from = line + n_name + 1;
            const size_t n_blanks = strspn(from, " \t"); /* ends at the '\r' at the latest */
            const size_t n_value = (size_t)(stop - from) - n_blanks;
            if (n_value >= size)
                return 0;
            memcpy(value, from + n_blanks, n_value);
            value[n_value] = '\0';
            return 1;
        }
        line = stop + 1 + (stop + 1 < end && stop[1] == '\n');
    }
    return 0;
}

/* A whole number from 0 to 999999999 from a header; -1 where there is none. */
static long header_number(const struct answer *answer, const char *name)
{
    char value[10];

    if (!header(answer, name, value, sizeof value) || !*value || value[strspn(value, "0123456789")])
        return -1;
    return strtol(value, NULL, 10);
}

/* Reads the status line and the length of the body. NULL, or what is wrong with them. */
static const char *read_head(struct answer *answer)
{
    const unsigned char *const line = answer->bytes;
    long n_body;

    if (answer->n_head < 14 || memcmp(line, "HTTP/1.1 ", 9) != 0 || line[9] < '1' || line[9] > '5' ||
        line[10] < '0' || line[10] > '9' || line[11] < '0' || line[11] > '9')
        return "found no answer of HTTP/1.1";
    answer->status = 100 * (line[9] - '0') + 10 * (line[10] - '0') + (line[11] - '0');
    n_body = header_number(answer, "Content-Length");
    if (n_body < 0)
        return "found an answer without Content-Length";
    if ((size_t)n_body > sizeof answer->bytes - answer->n_head)
        return "found a longer answer than there is room for";
    answer->n_body = (size_t)n_body;
    return NULL;
}

/* Receives exactly one answer. NULL, or what went wrong. */
static const char *receive(int connection, struct answer *answer)
{
    struct timespec began, now;

    clock_gettime(CLOCK_MONOTONIC, &began);
    answer->n_received = answer->n_head = answer->n_body = 0;
    for (;;) {
        const ssize_t n = recv(connection, answer->bytes + answer->n_received,
                               sizeof answer->bytes - answer->n_received, 0);
        size_t i;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? "found no answer in time" : strerror(errno);
        if (n == 0)
            return answer->n_head ? "found a shorter body than promised" : "found the connection closed";
        answer->n_received += (size_t)n;
        for (i = 4; !answer->n_head && i <= answer->n_received; i++) {
            if (memcmp(answer->bytes + i - 4, "\r\n\r\n", 4) == 0) {
                const char *fault;
                answer->n_head = i;
                fault = read_head(answer);
                if (fault)
                    return fault;
            }
        }
        if (answer->n_head && answer->n_received > answer->n_head + answer->n_body)
            return "found a longer body than promised";
        if (answer->n_head && answer->n_received == answer->n_head + answer->n_body)
            return NULL;
        if (answer->n_received == sizeof answer->bytes)
            return "found a longer head than there is room for";
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - began.tv_sec > TIMEOUT_S) /* nor does it help to send byte by byte */
            return "found no answer in time";
    }
}

/* One request and its answer. A kept connection may have been closed since: where it brings nothing at all, a fresh
   one is tried, for asking twice changes nothing. NULL, or what went wrong. */
static const char *ask(struct service *service, const unsigned char *body, size_t n_body, struct answer *answer)
{
    char head[512];
    const int is_ipv6 = strchr(service->host, ':') != NULL; /* which a header has in brackets */
    const int n_head = snprintf(head, sizeof head, HEAD, is_ipv6 ? "[" : "", service->host, is_ipv6 ? "]" : "",
                                service->port, (unsigned long)n_body);

    if (n_head < 0 || (size_t)n_head >= sizeof head)
        return "found too long a host name";
    for (;;) {
        const int is_kept = service->connection >= 0;
        const char *fault = is_kept ? NULL : reach(service);
        char connection[16];

        if (!fault) {
            /* The service may refuse before it has read the body: what it says counts, even where sending fails. */
            answer->n_received = 0;
            if (send_all(service->connection, head, (size_t)n_head))
                send_all(service->connection, body, n_body);
            fault = receive(service->connection, answer);
            if (!fault && header(answer, "Connection", connection, sizeof connection) &&
                strcasecmp(connection, "close") == 0)
                leave(service);
        }
        if (!fault)
            return NULL;
        leave(service);
        if (!is_kept || answer->n_received > 0)
            return fault;
    }
}

/* Prints the `detail` of a problem document (RFC 9457), or that there is none. */
static void print_problem(const struct answer *answer)
{
    static const char KEY[] = "\"detail\"";
    const size_t n_key = sizeof KEY - 1;
    const char *at = (const char *)answer->bytes + answer->n_head;
    const char *const end = at + answer->n_body;

    fprintf(stderr, "refused with %d: ", answer->status);
    /* Quotes inside a text are escaped, so that the key followed by a colon is the key. */
    for (; at + n_key < end; at++) {
        const char *value = at + n_key;
        if (memcmp(at, KEY, n_key) != 0)
            continue;
        while (value < end && (*value == ' ' || *value == ':'))
            value++;
        if (value == at + n_key || value == end || *value != '"')
            continue;
        for (value++; value < end && *value != '"'; value++) {
            if (*value == '\\' && value + 1 < end && strchr("\"\\/", value[1]))
                value++;
            fputc((unsigned char)*value < 0x20 || *value == 0x7f ? '?' : *value, stderr);
        }
        fputc('\n', stderr);
        return;
    }
    fputs("found no problem document\n", stderr);
}

/* The filter that the service gave, NULL after saying why there is none; waits where it asks for patience. */
static const unsigned char *design(struct service *service, const unsigned char *body, size_t n_body)
{
    static struct answer answer;
    const unsigned char *taps;
    char predicted_db[24], warnings[1024];
    long waited_s = 0;
    int n_left, i;

    for (n_left = MAX_RETRIES;; n_left--) {
        const char *const fault = ask(service, body, n_body, &answer);
        struct timespec pause = {1, 0}; /* where a 503 does not say how long, as a proxy's may not */
        long asked_s;

        if (fault) {
            fprintf(stderr, "%s, port %s: %s\n", service->host, service->port, fault);
            return NULL;
        }
        asked_s = header_number(&answer, "Retry-After");
        if (asked_s >= 0)
            pause.tv_sec = asked_s;
        if (answer.status != 503 || n_left == 0 || pause.tv_sec > MAX_WAIT_S - waited_s)
            break;
        waited_s += (long)pause.tv_sec;
        while (nanosleep(&pause, &pause) != 0 && errno == EINTR)
            continue;
    }
    if (answer.status != 200) {
        print_problem(&answer);
        return NULL;
    }
    if (answer.n_body != 4 * N_TAPS) {
        fprintf(stderr, "found an answer of %lu bytes, expected %d\n", (unsigned long)answer.n_body, 4 * N_TAPS);
        return NULL;
    }
    taps = answer.bytes + answer.n_head;
    for (i = 0; i < N_TAPS; i++) {
        if (!isfinite(get_f32(taps + 4 * i))) {
            fprintf(stderr, "found a tap that is not finite\n");
            return NULL;
        }
    }
    if (!header(&answer, "X-Predicted-NR-dB", predicted_db, sizeof predicted_db)) {
        fprintf(stderr, "found no X-Predicted-NR-dB\n");
        return NULL;
    }
    printf("predicted noise reduction %.2f dB\n", strtod(predicted_db, NULL));
    if (header(&answer, "X-Warnings", warnings, sizeof warnings))
        fprintf(stderr, "warnings: %s (docs/http-api.md says what they mean)\n", warnings);
    return taps;
}

int main(int n_arguments, char **arguments)
{
    static unsigned char body[MAX_BODY_BYTES + 1];
    struct service service = {NULL, NULL, -1};
    int i = 3, n_designs = 0, n_failed = 0;
    long port;

    while (i < n_arguments) { /* count the designs before the first request */
        i += strcmp(arguments[i], "-c") == 0 ? 5 : 3;
        n_designs++;
    }
    if (!n_designs || i != n_arguments) {
        fprintf(stderr, "usage: %s HOST PORT [-c COHERENCE] PRIMARY SECONDARY FIR ...\n", arguments[0]);
        return 2;
    }
    port = strtol(arguments[2], NULL, 10);
    if (port < 1 || port > 65535 || arguments[2][strspn(arguments[2], "0123456789")]) {
        fprintf(stderr, "port: found %s, expected 1 to 65535\n", arguments[2]);
        return 2;
    }
    service.host = arguments[1];
    service.port = arguments[2];
    for (i = 3; i < n_arguments; i += 3) {
        const char *const coherence = strcmp(arguments[i], "-c") == 0 ? arguments[i + 1] : NULL;
        const unsigned char *taps;
        size_t n_body;

        i += coherence ? 2 : 0;
        n_body = encode(body, arguments[i], arguments[i + 1], coherence);
        taps = n_body ? design(&service, body, n_body) : NULL;
        if (!taps || !write_taps(arguments[i + 2], taps))
            n_failed++;
    }
    leave(&service);
    return n_failed ? 1 : 0;
}
